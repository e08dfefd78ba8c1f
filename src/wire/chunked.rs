//! Chunked content of HTTP/1, followed byte by byte under the strictest reading of RFC 9112 §7.1.

use super::lines::{Lines, has_control, split_field};
use super::malformed::WireMalformed;
use gateway_message::fields::is_forbidden_trailer;

/// Follows chunked content, however cut.
#[derive(Debug, Clone, Default)]
pub struct Chunked(Position);

/// The position within chunked content.
#[derive(Debug, Clone)]
enum Position {
    /// In the hexadecimal size of a chunk.
    Size { digits: u8, size: u64 },
    /// After the carriage return that ends a size.
    SizeFeed { size: u64 },
    /// In a chunk, with this many bytes left.
    Data { left: u64 },
    /// After a chunk's data.
    DataReturn,
    /// After the carriage return that follows a chunk's data.
    DataFeed,
    /// After the last chunk.
    Trailers { lines: Lines, fields: usize },
    /// After the empty line that ends the content.
    End,
}

impl Default for Position {
    fn default() -> Position {
        Position::Size { digits: 0, size: 0 }
    }
}

impl Chunked {
    /// Returns how many of the bytes may be passed on now, and what is wrong with the next ones.
    ///
    /// Framing and data are passed on as they arrive. A trailer section is passed on whole or not
    /// at all, so bytes that are not counted must be shown again, with more after them.
    pub fn follow(&mut self, bytes: &[u8]) -> (usize, Result<(), WireMalformed>) {
        let position = &mut self.0;
        let mut at = 0;
        while at < bytes.len() {
            let step = match position {
                Position::Data { left } => Ok(skip(left, bytes.len() - at)),
                Position::Trailers { lines, fields } => {
                    match trailers(lines, fields, &bytes[at..]) {
                        Ok(None) => return (at, Ok(())),
                        Ok(Some(length)) => {
                            *position = Position::End;
                            Ok(length)
                        }
                        Err(malformed) => Err(malformed),
                    }
                }
                Position::End => return (at, Ok(())),
                _ => position.framing_byte(bytes[at]),
            };
            match step {
                Ok(length) => at += length,
                Err(malformed) => return (at, Err(malformed)),
            }
            if matches!(position, Position::Data { left: 0 }) {
                *position = Position::DataReturn;
            }
        }
        (at, Ok(()))
    }

    /// Whether the empty line that ends the content was passed.
    pub fn is_complete(&self) -> bool {
        matches!(self.0, Position::End)
    }
}

impl Position {
    /// Follows one byte of framing. Extensions, white space, signs and prefixes are refused: no
    /// honest client sends them, and parsers differ on all of them.
    fn framing_byte(&mut self, byte: u8) -> Result<usize, WireMalformed> {
        *self = match (&*self, byte) {
            (Position::Size { digits, size }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F')
                if *digits < MOST_DIGITS =>
            {
                let digit = char::from(byte).to_digit(16).ok_or(WireMalformed::Chunk)?;
                let size = size.checked_mul(16).ok_or(WireMalformed::Chunk)? + u64::from(digit);
                Position::Size {
                    digits: digits + 1,
                    size: Some(size)
                        .filter(|s| *s <= LARGEST)
                        .ok_or(WireMalformed::Chunk)?,
                }
            }
            (Position::Size { digits: 1.., size }, b'\r') => Position::SizeFeed { size: *size },
            (Position::SizeFeed { size: 0 }, b'\n') => Position::Trailers {
                lines: Lines::default(),
                fields: 0,
            },
            (Position::SizeFeed { size }, b'\n') => Position::Data { left: *size },
            (Position::DataReturn, b'\r') => Position::DataFeed,
            (Position::DataFeed, b'\n') => Position::default(),
            _ => return Err(WireMalformed::Chunk),
        };
        Ok(1)
    }
}

fn skip(left: &mut u64, available: usize) -> usize {
    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(available);
    *left -= length as u64;
    length
}

/// The length of the trailer section once it is complete.
fn trailers(
    lines: &mut Lines,
    fields: &mut usize,
    bytes: &[u8],
) -> Result<Option<usize>, WireMalformed> {
    while let Some(line) = lines.next(bytes).map_err(|_| WireMalformed::Trailer)? {
        if lines.start > LONGEST_TRAILERS {
            return Err(WireMalformed::Trailer);
        }
        if line.is_empty() {
            return Ok(Some(lines.start));
        }
        *fields += 1;
        let (name, value) = split_field(line).map_err(|_| WireMalformed::Trailer)?;
        // A token is ASCII.
        let name = str::from_utf8(name)
            .map_err(|_| WireMalformed::Trailer)?
            .to_ascii_lowercase();
        if *fields > MOST_TRAILERS || has_control(value) || is_forbidden_trailer(&name) {
            return Err(WireMalformed::Trailer);
        }
    }
    if bytes.len() > LONGEST_TRAILERS {
        Err(WireMalformed::Trailer)
    } else {
        Ok(None)
    }
}

const MOST_DIGITS: u8 = 16;
const LARGEST: u64 = i64::MAX as u64;
const MOST_TRAILERS: usize = 32;
const LONGEST_TRAILERS: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_in_chunks_passes_whole_however_cut(
            chunks in vec(vec(any::<u8>(), 1..40), 0..5), trailers in 0..3_usize, step in 1..60_usize,
        ) {
            let chunk = |data: &Vec<u8>| [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat();
            let mut bytes: Vec<u8> = chunks.iter().flat_map(chunk).collect();
            bytes.extend(format!("0\r\n{}\r\n", "X: y\r\n".repeat(trailers)).bytes());
            let whole = bytes.len();
            bytes.extend_from_slice(b"GET /");
            let (mut chunked, mut at) = (Chunked::default(), 0);
            for end in (1..bytes.len()).step_by(step).chain([bytes.len()]) {
                prop_assert!(!chunked.is_complete() || at == whole);
                let (length, outcome) = chunked.follow(&bytes[at..end.max(at)]);
                prop_assert_eq!(outcome, Ok(()));
                at += length;
            }
            prop_assert_eq!((at, chunked.is_complete()), (whole, true));
        }
    }
}
