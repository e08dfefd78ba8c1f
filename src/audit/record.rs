//! The keys of a record: it is written and read by this one list.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A word of this program: not copied when it is written, owned when it is read.
pub type Word = Cow<'static, str>;

/// One record of any kind as it stands in the log; `docs/audit.md` tells what each key means.
///
/// A key with nothing to say is absent. Before a record has its place in the chain, `v`, `seq`,
/// `prev` and `hash` say nothing.
#[serde_with::apply(_ => #[serde(skip_serializing_if = "is_unset")])]
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
    pub kind: Word,
    /// Id of the exchange.
    pub id: Option<String>,
    /// Wall-clock time, UTC.
    pub time: Option<String>,
    /// Name of the session.
    pub session: Option<String>,
    /// Way by which the client came in.
    pub entry: Option<Word>,
    /// Client's protocol.
    pub protocol: Option<Word>,
    /// Request method.
    pub method: Option<String>,
    /// Scheme of the target.
    pub scheme: Option<Word>,
    /// Canonical host.
    pub host: Option<String>,
    /// Port of the target.
    pub port: Option<u16>,
    /// Canonical path.
    pub path: Option<String>,
    /// Whole length of a path that is shown in part.
    pub path_bytes: Option<u64>,
    /// Names of the query parameters.
    pub query: Vec<String>,
    /// How many names are not shown.
    pub query_more: Option<u64>,
    /// How far the exchange came.
    pub phase: Option<Word>,
    /// What policy said.
    pub decision: Option<Word>,
    /// Policies that decided.
    pub policies: Vec<String>,
    /// How many policies are not shown.
    pub policies_more: Option<u64>,
    /// Facts of content that the decision read, by name.
    pub facts: Vec<String>,
    /// How many facts are not shown.
    pub facts_more: Option<u64>,
    /// Generation of the policy set.
    pub generation: Option<u64>,
    /// Credentials lent.
    pub lent: Vec<Lent>,
    /// How many loans are not shown.
    pub lent_more: Option<u64>,
    /// Address that was connected to.
    pub dialled: Option<SocketAddr>,
    /// Origin's protocol.
    pub origin_protocol: Option<Word>,
    /// How it ended.
    pub outcome: Option<Word>,
    /// Status that the client got.
    pub status: Option<u16>,
    /// Status that the origin gave.
    pub origin_status: Option<u16>,
    /// Code of a refusal's or a cut's reason.
    pub reason: Option<Word>,
    /// Side at fault.
    pub blame: Option<Word>,
    /// Bytes of request content.
    pub request_bytes: Option<u64>,
    /// Bytes of response content.
    pub response_bytes: Option<u64>,
    /// Echoes replaced in the response.
    pub scrubbed: Option<u64>,
    /// Microseconds from accept to each phase.
    pub us: BTreeMap<Word, u64>,
    /// What happened.
    pub name: Option<Word>,
    /// What an event is about.
    pub subject: Option<String>,
    /// How many events the record stands for.
    pub count: Option<u64>,
    /// Id of the chain.
    pub chain: Option<String>,
    /// Version of the software.
    pub version: Option<Word>,
    /// Process id of the writer.
    pub pid: Option<u32>,
    /// Why the log had to recover.
    pub cause: Option<Word>,
    /// Where torn bytes stand in the file.
    pub torn_at: Option<u64>,
    /// How many bytes are torn.
    pub torn_bytes: Option<u64>,
    /// Hash of the torn bytes.
    pub torn_sha256: Option<String>,
    /// How many records could not be written.
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

fn is_unset<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
