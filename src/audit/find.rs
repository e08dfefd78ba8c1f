//! The search for an exchange in the files of a log.

use std::path::PathBuf;

use serde::Serialize;

use super::chain::unseal;
use super::error::Error;
use super::record::Record;
use super::scan::{Lines, open};
use gateway_names::ExchangeId;

/// What the log holds of one exchange.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Found {
    /// The file that holds the record.
    pub file: PathBuf,
    /// The record's line; the first is 1.
    pub line: u64,
    /// The record made before the answer, or instead of it.
    pub exchange: Record,
    /// The record of its end, where it did not end as announced.
    pub end: Option<Record>,
}

/// Searches the files for an exchange; a line that does not match its hash is not believed.
///
/// Reads in the order of `paths` and stops at the end of the files, since an `end` record may come
/// hours later.
///
/// # Errors
/// [`Error::Open`] for the first file that cannot be read.
pub fn find(paths: &[PathBuf], id: ExchangeId) -> Result<Option<Found>, Error> {
    let mark = [b"\"id\":\"".as_slice(), &id.to_hex(), b"\""].concat();
    let finder = memchr::memmem::Finder::new(&mark);
    let (mut exchange, mut end) = (None, None);
    for path in paths {
        let mut lines = Lines::new(open(path)?);
        while let Some(piece) = lines.next().map_err(|source| Error::Open {
            path: path.clone(),
            source,
        })? {
            if finder.find(piece.bytes).is_none() || unseal(piece.bytes).is_err() {
                continue;
            }
            match serde_json::from_slice::<Record>(piece.bytes) {
                Ok(record) if record.kind == "exchange" => {
                    exchange = Some((path.clone(), piece.number, record))
                }
                Ok(record) if record.kind == "end" => end = Some(record),
                _ => {}
            }
        }
    }
    Ok(exchange.map(|(file, line, exchange)| Found {
        file,
        line,
        exchange,
        end,
    }))
}
