//! The keys of a record. This one list both writes and reads it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::SystemTime;

use gateway_names::CredentialName;
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};
use smol_str::SmolStr;

use super::chain::ChainHead;
use super::encode::{Object, Value, timestamp};
use super::words::Phase;

/// A word of this program: borrowed when written, owned when read.
pub type Word = Cow<'static, str>;

/// Any other text. Most are short, and need no allocation.
pub type Text = SmolStr;

/// A JSON object. Its one list of keys both writes and reads it; an unset key is absent.
macro_rules! object {
    ($(#[$about_it:meta])* $name:ident { $($(#[$about:meta])* $key:ident: $kind:ty,)* }) => {
        $(#[$about_it])*
        #[derive(Clone, PartialEq, Default, Debug, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($(#[$about])* pub $key: $kind,)*
        }

        impl Value for $name {
            fn is_unset(&self) -> bool {
                $(self.$key.is_unset())&&*
            }

            fn write(&self, out: &mut Vec<u8>) {
                let mut object = Object::new(out);
                $(object.member(concat!(",\"", stringify!($key), "\":"), &self.$key);)*
                object.end();
            }
        }
    };
}

object! {
/// One log record of any kind; `docs/audit.md` explains each key.
///
/// Until the record is placed in the chain, `v`, `seq`, `prev` and `hash` are unset.
Record {
    /// Version of the format.
    v: u32,
    /// Number in the chain.
    seq: u64,
    /// Hash of the previous record.
    prev: String,
    /// Kind of the record.
    kind: Word,
    /// Id of the exchange.
    id: Option<Text>,
    /// Wall-clock time, UTC.
    time: Option<Word>,
    /// Name of the session.
    session: Option<Text>,
    /// User behind the connection.
    user: Option<Text>,
    /// Id of the token that was presented.
    token_id: Option<Text>,
    /// Groups that the connection's evidence shows.
    groups: Vec<Text>,
    /// How many groups are not shown.
    groups_more: Option<u64>,
    /// The client's trace, as it sent it.
    traceparent: Option<Text>,
    /// How the client connected.
    entry: Option<Word>,
    /// Address that the client connected from.
    client: Option<SocketAddr>,
    /// Client's protocol.
    protocol: Option<Word>,
    /// Request method.
    method: Option<Text>,
    /// Scheme of the target.
    scheme: Option<Word>,
    /// Canonical host.
    host: Option<Text>,
    /// Port of the target.
    port: Option<u16>,
    /// Canonical path.
    path: Option<Text>,
    /// Full length of a path that is shown in part.
    path_bytes: Option<u64>,
    /// Names of the query parameters.
    query: Vec<Text>,
    /// How many names are not shown.
    query_more: Option<u64>,
    /// How far the exchange got.
    phase: Option<Word>,
    /// Policy's decision.
    decision: Option<Word>,
    /// Policies that decided.
    policies: Vec<Text>,
    /// How many policies are not shown.
    policies_more: Option<u64>,
    /// Names of the content facts that the decision read.
    facts: Vec<Text>,
    /// How many facts are not shown.
    facts_more: Option<u64>,
    /// Generation of the policy set.
    generation: Option<u64>,
    /// Credentials lent.
    lent: Vec<Injection>,
    /// How many loans are not shown.
    lent_more: Option<u64>,
    /// Credential that no policy lent, and where it was.
    unlent: Option<Injection>,
    /// Credential for which the exchange was refused, and where it or its phantom was.
    misplaced: Option<Injection>,
    /// Credentials whose phantoms the content has outside of their places.
    noted: Vec<Injection>,
    /// How many of these are not shown.
    noted_more: Option<u64>,
    /// Address of the connection to the origin.
    dialled: Option<SocketAddr>,
    /// Origin's protocol.
    origin_protocol: Option<Word>,
    /// How the exchange or its content ended.
    outcome: Option<Word>,
    /// Status sent to the client.
    status: Option<u16>,
    /// Status received from the origin.
    origin_status: Option<u16>,
    /// Reason code of a refusal or a cut.
    reason: Option<Word>,
    /// Side at fault.
    blame: Option<Word>,
    /// Bytes of request content.
    request_bytes: Option<u64>,
    /// Bytes of response content.
    response_bytes: Option<u64>,
    /// Echoes replaced in the response.
    scrubbed: Option<u64>,
    /// Microseconds from accept to each phase.
    us: PhaseTimes,
    /// Name of the event or act.
    name: Option<Word>,
    /// Operator who acted, on the control socket.
    operator: Option<Text>,
    /// What an event or an act is about.
    subject: Option<Text>,
    /// How many events the record stands for.
    count: Option<u64>,
    /// Id of the chain.
    chain: Option<String>,
    /// Version of the software.
    version: Option<Word>,
    /// Process id of the writer.
    pid: Option<u32>,
    /// Why the log had to recover; of a refusal, what failed.
    cause: Option<Word>,
    /// Offset of the torn bytes in the file.
    torn_at: Option<u64>,
    /// Number of torn bytes.
    torn_bytes: Option<u64>,
    /// Hash of the torn bytes.
    torn_sha256: Option<String>,
    /// How many records could not be written.
    lost: Option<u64>,
    /// Hash of this record.
    hash: String,
}
}

object! {
/// Microseconds from accept to each phase that was reached.
PhaseTimes {
    /// The client was identified.
    identify: Option<u64>,
    /// Policy was evaluated.
    authorize: Option<u64>,
    /// The connection to the origin was opened.
    open: Option<u64>,
    /// Credentials were attached.
    attach: Option<u64>,
    /// The origin answered.
    answer: Option<u64>,
    /// The record was made.
    total: Option<u64>,
}
}

impl PhaseTimes {
    /// The time of a phase. `None` for the first one, where the time begins.
    pub(super) fn of(&mut self, phase: Phase) -> Option<&mut Option<u64>> {
        Some(match phase {
            Phase::Accept => return None,
            Phase::Identify => &mut self.identify,
            Phase::Authorize => &mut self.authorize,
            Phase::Open => &mut self.open,
            Phase::Attach => &mut self.attach,
            Phase::Answer => &mut self.answer,
        })
    }
}

impl Record {
    /// A record that is made now.
    pub(super) fn now(kind: &'static str) -> Self {
        Self {
            kind: kind.into(),
            time: Some(timestamp(SystemTime::now()).into()),
            ..Self::default()
        }
    }

    /// The number and the hash of a record that was read; `None` if it is not placed in a chain.
    pub fn head(&self) -> Option<ChainHead> {
        ChainHead::new(self.seq, &self.hash)
    }
}

/// Serializes the record as it appears in the log.
impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = Vec::new();
        self.write(&mut json);
        serde_json::from_slice::<serde_json::Value>(&json)
            .map_err(S::Error::custom)?
            .serialize(serializer)
    }
}

/// A credential of an exchange, and where it was.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    /// The credential's name.
    pub credential: Text,
    /// Where the secret was put, or the phantom was seen.
    pub place: Text,
}

impl Injection {
    pub(super) fn new(credential: &CredentialName, place: Text) -> Self {
        let credential = credential.as_str().into();
        Self { credential, place }
    }
}

impl Value for Injection {
    fn is_unset(&self) -> bool {
        false
    }

    fn write(&self, out: &mut Vec<u8>) {
        // Both are written even if they are empty.
        out.extend_from_slice(b"{\"credential\":");
        self.credential.write(out);
        out.extend_from_slice(b",\"place\":");
        self.place.write(out);
        out.push(b'}');
    }
}
