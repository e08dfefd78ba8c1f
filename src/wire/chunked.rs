//! Chunked content of HTTP/1, followed byte by byte under the strictest reading of RFC 9112 §7.1.

use super::cursor::{Cursor, ReadError};
use super::lines::{Lines, has_control, split_field};
use super::malformed::WireMalformed;
use gateway_message::fields::is_forbidden_trailer;

/// Follows chunked content, however cut.
#[derive(Debug, Clone, Default)]
pub struct Chunked(Position);

/// The position within chunked content.
#[derive(Debug, Clone, Default)]
enum Position {
    /// Before the size of a chunk.
    #[default]
    Size,
    /// In a chunk, with this many bytes left.
    Data { left: u64 },
    /// After a chunk's data.
    DataEnd,
    /// After the last chunk.
    Trailers { lines: Lines, fields: usize },
    /// After the empty line that ends the content.
    End,
}

impl Chunked {
    /// Returns how many of the bytes may be passed on now, and what is wrong with the next ones.
    ///
    /// Data is passed on as it arrives; a size, a line end and the trailer section whole or not at
    /// all, so bytes that are not counted must be shown again, with more after them.
    pub fn follow(&mut self, bytes: &[u8]) -> (usize, Result<(), WireMalformed>) {
        let mut cursor = Cursor::new(bytes);
        let outcome = loop {
            match self.0.next(&mut cursor) {
                Ok(Some(next)) => self.0 = next,
                Ok(None) => break Ok(()),
                Err(malformed) => break Err(malformed),
            }
        };
        (bytes.len() - cursor.rest().len(), outcome)
    }

    /// Whether the empty line that ends the content was passed.
    pub fn is_complete(&self) -> bool {
        matches!(self.0, Position::End)
    }
}

impl Position {
    /// The next position; `None` if it is not reached yet.
    fn next(&mut self, cursor: &mut Cursor<'_>) -> Result<Option<Self>, WireMalformed> {
        Ok(match self {
            Self::Size => cursor.whole(size)?.map(|size| match size {
                0 => Self::Trailers {
                    lines: Lines::default(),
                    fields: 0,
                },
                left => Self::Data { left },
            }),
            Self::Data { left } => {
                cursor.payload(left);
                (*left == 0).then_some(Self::DataEnd)
            }
            Self::DataEnd => cursor.whole(line_end)?.map(|()| Self::Size),
            Self::Trailers { lines, fields } => cursor
                .whole(|cursor| trailers(lines, fields, cursor))?
                .map(|()| Self::End),
            Self::End => None,
        })
    }
}

/// Reads the size of a chunk. Extensions, white space, signs and prefixes are refused: no honest
/// client sends them, and parsers differ on all of them.
fn size(cursor: &mut Cursor<'_>) -> Result<u64, ReadError<WireMalformed>> {
    let (mut size, mut digits) = (0, 0);
    loop {
        let byte = cursor.u8()?;
        match char::from(byte).to_digit(16) {
            Some(digit) if digits < MOST_DIGITS => size = size << 4 | u64::from(digit),
            None if byte == b'\r' && digits > 0 => break,
            _ => return Err(MALFORMED),
        }
        digits += 1;
    }
    if cursor.u8()? == b'\n' && size <= LARGEST {
        Ok(size)
    } else {
        Err(MALFORMED)
    }
}

/// Reads the line end after a chunk's data.
fn line_end(cursor: &mut Cursor<'_>) -> Result<(), ReadError<WireMalformed>> {
    for expected in *b"\r\n" {
        if cursor.u8()? != expected {
            return Err(MALFORMED);
        }
    }
    Ok(())
}

/// Reads the trailer section. Lines that were read of it before are not read again.
fn trailers(
    lines: &mut Lines,
    fields: &mut usize,
    cursor: &mut Cursor<'_>,
) -> Result<(), ReadError<WireMalformed>> {
    const MALFORMED: ReadError<WireMalformed> = ReadError::Malformed(WireMalformed::Trailer);
    while let Some(line) = lines.next(cursor.rest()).map_err(|_| MALFORMED)? {
        if lines.start > LONGEST_TRAILERS {
            return Err(MALFORMED);
        }
        if line.is_empty() {
            cursor.bytes(lines.start)?;
            return Ok(());
        }
        *fields += 1;
        let (name, value) = split_field(line).map_err(|_| MALFORMED)?;
        // A token is ASCII.
        let name = str::from_utf8(name).map_err(|_| MALFORMED)?;
        let is_forbidden = is_forbidden_trailer(&name.to_ascii_lowercase());
        if *fields > MOST_TRAILERS || has_control(value) || is_forbidden {
            return Err(MALFORMED);
        }
    }
    if cursor.rest().len() > LONGEST_TRAILERS {
        Err(MALFORMED)
    } else {
        Err(ReadError::Incomplete)
    }
}

const MALFORMED: ReadError<WireMalformed> = ReadError::Malformed(WireMalformed::Chunk);
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
