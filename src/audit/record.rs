//! Reads records back: the shape of one, and the search for an exchange.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::chain::unseal;
use super::error::Error;
use super::scan::Lines;
use crate::names::ExchangeId;

/// One record of any kind as it stands in the log; `docs/audit.md` tells what each key means.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Record {
    /// Version of the format.
    pub v: u32,
    /// Number in the chain.
    pub seq: u64,
    /// Hash of the record before.
    pub prev: String,
    /// Kind of the record.
    pub kind: String,
    /// Id of the exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Wall-clock time, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Name of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Way by which the client came in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// Client's protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Request method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Scheme of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// Canonical host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Port of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Canonical path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Whole length of a path that is shown in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<u64>,
    /// Names of the query parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<String>,
    /// How many names are not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_more: Option<u64>,
    /// How far the exchange came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// What policy said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// Policies that decided.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// How many policies are not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies_more: Option<u64>,
    /// Generation of the policy set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Credentials lent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lent: Vec<Lent>,
    /// How many loans are not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lent_more: Option<u64>,
    /// What was noticed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Noted>,
    /// How many notes are not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes_more: Option<u64>,
    /// Address that was connected to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialled: Option<String>,
    /// Origin's protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin_protocol: Option<String>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Status that the client got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Status that the origin gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin_status: Option<u16>,
    /// Code of a refusal's or a cut's reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Side at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blame: Option<String>,
    /// Bytes of request content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<u64>,
    /// Bytes of response content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u64>,
    /// Echoes replaced in the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrubbed: Option<u64>,
    /// Microseconds from accept to each phase.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub us: BTreeMap<String, u64>,
    /// What happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What an event is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// How many events the record stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Id of the chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// Version of the software.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Process id of the writer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Why the log had to recover.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Where torn bytes stand in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torn_at: Option<u64>,
    /// How many bytes are torn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torn_bytes: Option<u64>,
    /// Hash of the torn bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torn_sha256: Option<String>,
    /// How many records could not be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Hash of this record.
    pub hash: String,
}

/// A credential that was lent to an exchange, and the place where it stood.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lent {
    /// The credential's name.
    pub credential: String,
    /// Where the secret was put.
    pub place: String,
}

/// Something noticed that decided nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noted {
    /// What was noticed.
    pub note: String,
    /// The credential that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Where it was noticed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

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

pub(super) fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|source| Error::Open {
        path: path.to_owned(),
        source,
    })
}
