//! Reads a log line by line in constant memory, and measures the torn bytes between records.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::chain::{ChainHead, ChainLink, MAX_LINE_BYTES, unseal};
use super::error::Error;
use super::private::opening;
use super::record::Record;

/// Yields the lines of a file; a line longer than any record comes in pieces.
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    piece: Vec<u8>,
    offset: u64,
    number: u64,
    at_start: bool,
}

/// A line, or part of one that is too long for a record.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    /// The bytes, including the line feed if the line is complete.
    pub(super) bytes: &'a [u8],
    /// The offset of the bytes in the file.
    pub(super) offset: u64,
    /// The line's number; the first is 1.
    pub(super) number: u64,
    /// Whether the line begins here.
    pub(super) at_start: bool,
}

/// The bytes of an unfinished write: their offset, length and hash.
#[derive(Clone)]
pub(super) struct Torn {
    pub(super) at: u64,
    pub(super) bytes: u64,
    hash: Sha256,
}

/// A file's part of the chain.
#[derive(Default)]
pub(super) struct Scan {
    /// The chain's id, from the first record that names it.
    pub(super) chain: Option<String>,
    /// The number of the file's first record.
    pub(super) first_seq: Option<u64>,
    /// The last valid record.
    pub(super) head: Option<ChainHead>,
    /// The bytes after the last valid record.
    pub(super) torn: Option<Torn>,
    /// The file's length in bytes.
    pub(super) len: u64,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(source: R) -> Self {
        let reader = BufReader::with_capacity(READ_BYTES, source);
        Self {
            reader,
            piece: Vec::new(),
            offset: 0,
            number: 0,
            at_start: true,
        }
    }

    /// Returns the next line or piece; `None` at the end of the file.
    ///
    /// # Errors
    /// The I/O error if the file cannot be read.
    pub(super) fn next(&mut self) -> io::Result<Option<Piece<'_>>> {
        self.offset += self.piece.len() as u64;
        let at_start = self.at_start;
        self.piece.clear();
        (&mut self.reader)
            .take(MAX_LINE_BYTES as u64)
            .read_until(b'\n', &mut self.piece)?;
        if self.piece.is_empty() {
            return Ok(None);
        }
        self.number += u64::from(at_start);
        self.at_start = self.piece.ends_with(b"\n");
        Ok(Some(Piece {
            bytes: &self.piece,
            offset: self.offset,
            number: self.number,
            at_start,
        }))
    }

    /// Returns the first result of `look` for a line or piece.
    ///
    /// # Errors
    /// The I/O error if the file cannot be read.
    pub(super) fn find<T>(
        mut self,
        mut look: impl FnMut(&Piece<'_>) -> Option<T>,
    ) -> io::Result<Option<T>> {
        while let Some(piece) = self.next()? {
            if let Some(found) = look(&piece) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

impl Piece<'_> {
    /// The line's place in the chain; `None` if it does not match its hash.
    pub(super) fn link(&self) -> Option<ChainLink<'_>> {
        unseal(self.bytes).ok().filter(|_| self.at_start)
    }

    /// The record of a line that matches its hash.
    pub(super) fn record(&self) -> Option<Record> {
        self.link()?;
        serde_json::from_slice(self.bytes).ok()
    }
}

impl Torn {
    pub(super) fn at(at: u64) -> Self {
        Self {
            at,
            bytes: 0,
            hash: Sha256::new(),
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
    }

    pub(super) fn sha256(&self) -> String {
        base16ct::lower::encode_string(&self.hash.clone().finalize())
    }
}

/// Opens a log file for reading.
///
/// # Errors
/// [`Error::Open`].
pub(super) fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(opening(path))
}

/// Returns the first result of `look` for the lines of a file.
///
/// # Errors
/// [`Error::Open`] if the file cannot be read.
pub(super) fn find_in<T>(
    path: &Path,
    look: impl FnMut(&Piece<'_>) -> Option<T>,
) -> Result<Option<T>, Error> {
    Lines::new(open(path)?).find(look).map_err(opening(path))
}

/// Finds where a file's chain begins and ends.
///
/// Reads the first and the last line, and the whole file only if the last line is not a record.
///
/// # Errors
/// The I/O error if the file cannot be read.
pub(super) fn scan(file: &File) -> io::Result<Scan> {
    let len = file.metadata()?.len();
    let (chain, first_seq) = beginning(file)?;
    let (mut head, mut torn) = (last_line(file, len)?, None::<Torn>);
    if head.is_none() {
        Lines::new(rewound(file, 0)?).find(|piece| -> Option<()> {
            match piece.link() {
                Some(link) => (head, torn) = (Some(link.head), None),
                None => torn
                    .get_or_insert_with(|| Torn::at(piece.offset))
                    .push(piece.bytes),
            }
            None
        })?;
    }
    Ok(Scan {
        chain,
        first_seq,
        head,
        torn,
        len,
    })
}

fn beginning(file: &File) -> io::Result<(Option<String>, Option<u64>)> {
    let mut first_seq = None;
    let chain = Lines::new(rewound(file, 0)?).find(|piece| {
        first_seq.get_or_insert(piece.link()?.head.seq);
        piece.record()?.chain
    })?;
    Ok((chain, first_seq))
}

fn last_line(file: &File, len: u64) -> io::Result<Option<ChainHead>> {
    let from = len.saturating_sub(MAX_LINE_BYTES as u64);
    let mut window = Vec::new();
    rewound(file, from)?
        .take(len - from)
        .read_to_end(&mut window)?;
    let ends = window.strip_suffix(b"\n").unwrap_or(&window);
    let start = memchr::memrchr(b'\n', ends).map_or(0, |at| at + 1);
    Ok(unseal(&window[start..]).ok().map(|link| link.head))
}

fn rewound(mut file: &File, to: u64) -> io::Result<&File> {
    file.seek(SeekFrom::Start(to))?;
    Ok(file)
}

/// The end mark that a recovery writes after torn bytes. A line feed alone would complete a record
/// that lacks only its line feed.
pub(super) const TORN_END: &[u8] = b"~\n";
const READ_BYTES: usize = 256 * 1024;
