//! Searches the files of a log for an exchange.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::Error;
use super::record::Record;
use super::scan::find_in;
use gateway_names::ExchangeId;

/// The records that a log holds about one exchange.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ExchangeEntry {
    /// The file that holds the record.
    pub file: PathBuf,
    /// The record's line number; the first line is 1.
    pub line: u64,
    /// The record written before the answer, or in place of it.
    pub exchange: Record,
    /// The `end` record, if the exchange did not end as announced.
    pub end: Option<Record>,
    /// How many later callers were refused for the same cause, with the same id.
    pub again: u64,
}

/// Searches the files for an exchange.
///
/// Ignores every line that does not match its hash. Reads the files in the order of `paths`, to the
/// end of the last one, because an `end` record may come hours later.
///
/// # Errors
/// [`Error::Open`] for the first file that cannot be read.
pub fn find(paths: &[PathBuf], id: ExchangeId) -> Result<Option<ExchangeEntry>, Error> {
    let mark = [b"\"id\":\"".as_slice(), &id.to_hex(), b"\""].concat();
    let finder = memchr::memmem::Finder::new(&mark);
    let (mut exchange, mut end, mut again) = (None, None, 0);
    for path in paths {
        find_in(path, |piece| -> Option<()> {
            finder.find(piece.bytes)?;
            let record = piece.record()?;
            match &*record.kind {
                "exchange" => exchange = Some((path.clone(), piece.number, record)),
                "end" => end = Some(record),
                "refused_caller" => again += record.count.unwrap_or_default(),
                _ => {}
            }
            None
        })?;
    }
    Ok(exchange.map(|(file, line, exchange)| ExchangeEntry {
        file,
        line,
        exchange,
        end,
        again,
    }))
}

/// Returns the id of the chain that a file belongs to; `None` if no intact record names one.
///
/// # Errors
/// [`Error::Open`] if the file cannot be read.
pub fn chain_of(path: &Path) -> Result<Option<String>, Error> {
    find_in(path, |piece| piece.record()?.chain)
}
