//! The lines of git's protocol (gitprotocol-common, "pkt-line Format").

use super::cursor::{Cursor, ReadError};

/// A line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PktLine<'b> {
    /// The flush packet, which ends a list.
    Flush,
    /// Some bytes, at least one.
    Data(&'b [u8]),
}

/// What stands there is no line, or one that no list of a push has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PktMalformed;

impl<'b> PktLine<'b> {
    /// Reads a line.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn read(cursor: &mut Cursor<'b>) -> Result<Self, ReadError<PktMalformed>> {
        let digits: [u8; LENGTH] = cursor.array()?;
        // Another sign than a digit, such as `+`, is none in git.
        let length = digits.iter().try_fold(0, |length, digit| {
            Some(length << 4 | char::from(*digit).to_digit(16)? as usize)
        });
        match length.ok_or(ReadError::Malformed(PktMalformed))? {
            0 => Ok(Self::Flush),
            length @ 5..=LONGEST => Ok(Self::Data(cursor.bytes(length - LENGTH)?)),
            _ => Err(ReadError::Malformed(PktMalformed)),
        }
    }

    /// Writes the line. Its data has at most [`LONGEST_DATA`] bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Flush => out.extend_from_slice(b"0000"),
            Self::Data(data) => {
                out.extend_from_slice(format!("{:04x}", data.len() + LENGTH).as_bytes());
                out.extend_from_slice(data);
            }
        }
    }
}

/// The digits of a length, which counts them too.
const LENGTH: usize = 4;
/// git's `LARGE_PACKET_MAX`.
const LONGEST: usize = 65_520;
/// git's `LARGE_PACKET_DATA_MAX`.
pub const LONGEST_DATA: usize = LONGEST - LENGTH;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_that_are_written_are_read_as_far_as_they_are_whole(
            lines in vec(vec(any::<u8>(), 0..300), 0..9), end in 0..3_000_usize,
        ) {
            let line = |data| Some(data).filter(|data: &&Vec<u8>| !data.is_empty());
            let lines = lines.iter().map(|data| line(data).map_or(PktLine::Flush, |data| PktLine::Data(data)));
            let lines: Vec<_> = lines.collect();
            let mut written = Vec::new();
            lines.iter().for_each(|line| line.write(&mut written));
            let mut cursor = Cursor::new(&written[..end.min(written.len())]);
            let mut read = Vec::new();
            while let Some(line) = cursor.whole(PktLine::read).unwrap() {
                read.push(line);
            }
            prop_assert!(lines.starts_with(&read));
            prop_assert_eq!(read.len() == lines.len(), end >= written.len());
        }
    }
}
