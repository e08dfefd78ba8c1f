//! Callers that a listener refuses. They have no share of the log: the first of a kind is recorded,
//! and later ones get that record's id and are counted.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use gateway_audit::{Log, RepeatedRefusals};
use gateway_intercept::{CallerRefused, Entry};
use gateway_message::Authority;
use gateway_names::{ExchangeId, ReasonCode, User};
use parking_lot::Mutex;

/// Refused callers, by address and cause.
#[derive(Default)]
pub struct RefusedCallers(Mutex<HashMap<RefusedKind, KindCount>>);

/// What the refused callers of one kind have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
struct RefusedKind {
    entry: &'static str,
    address: Option<IpAddr>,
    user: Option<User>,
    reason: &'static str,
    cause: String,
}

/// The count of one kind.
struct KindCount {
    /// The id of the first, which has a record.
    id: ExchangeId,
    /// The destination that the latest one asked for.
    asked: Option<Authority>,
    /// How many are not in any record yet.
    untold: u64,
    /// When they are recorded next, and the interval after that.
    tells: (Instant, Duration),
    last: Instant,
}

impl RefusedCallers {
    /// Counts a caller. Returns the id to answer it with, and whether it needs a record of its own.
    pub(crate) fn count(
        &self,
        (entry, client): (Entry, Option<SocketAddr>),
        refused: &CallerRefused,
        (id, asked): (ExchangeId, Option<&Authority>),
    ) -> (ExchangeId, bool) {
        let now = Instant::now();
        let mut kind = RefusedKind {
            entry: entry.as_str(),
            address: client.map(|client| client.ip()),
            user: refused.user.clone(),
            reason: refused.reason.as_str(),
            cause: refused.cause.clone(),
        };
        let mut all = self.0.lock();
        if all.len() >= KINDS && !all.contains_key(&kind) {
            // One kind for the rest. Causes are the gateway's own words.
            (kind.address, kind.user) = (None, None);
            kind.cause = OTHERS.to_owned();
        }
        let mut is_first = false;
        let counted = all.entry(kind).or_insert_with(|| {
            is_first = true;
            KindCount {
                id,
                asked: None,
                untold: 0,
                tells: (now + SOONEST, SOONEST * 2),
                last: now,
            }
        });
        counted.untold += u64::from(!is_first);
        counted.asked = asked.cloned();
        counted.last = now;
        (counted.id, is_first)
    }

    /// Records how many came since the last record, at growing intervals. At the end, records all.
    pub(crate) fn tell(&self, log: &Log, is_end: bool) {
        let now = Instant::now();
        self.0.lock().retain(|kind, counted| {
            let is_due = counted.untold > 0 && (is_end || counted.tells.0 <= now);
            if is_due && log.refused_again(counted.of(kind)).is_ok() {
                counted.untold = 0;
                let waits = counted.tells.1;
                counted.tells = (now + waits, (waits * 2).min(LATEST));
            }
            counted.untold > 0 || now.duration_since(counted.last) < FORGOTTEN
        });
    }
}

impl KindCount {
    fn of<'a>(&'a self, kind: &'a RefusedKind) -> RepeatedRefusals<'a> {
        let asked = self.asked.as_ref();
        RepeatedRefusals {
            first: self.id,
            entry: kind.entry,
            address: kind.address,
            user: kind.user.as_ref(),
            asked: asked.map(|to| (to.host.as_str(), to.port)),
            reason: ReasonCode::named(kind.reason).unwrap_or(ReasonCode::CallerRefused),
            cause: &kind.cause,
            count: self.untold,
        }
    }
}

const OTHERS: &str = "further addresses and users, which are too many to be told apart";
/// How many kinds are counted separately.
const KINDS: usize = 256;
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(300);
/// How long after its latest caller a kind is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use gateway_audit::{Allowance, Durability, Settings};

    use super::*;

    #[test]
    fn any_number_of_addresses_is_counted_in_bounded_memory_and_each_id_has_a_record() {
        let refused = RefusedCallers::default();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit/log.jsonl");
        let settings = Settings {
            path: path.clone(),
            sync: Durability::Batch,
            rotate_bytes: 64 << 20,
            allowance: Allowance::default(),
        };
        let log = Log::open(&settings).unwrap();
        let why = CallerRefused::of(None, "the password is wrong");
        let (mut recorded, mut told) = (0, 0);
        let mut ids = std::collections::HashSet::new();
        for number in 0..20_000_u32 {
            let address = IpAddr::from((0x0a00_0000 + number % 10_000).to_be_bytes());
            let client = Some(SocketAddr::new(address, 1));
            let mut bytes = [0; 10];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            let id = ExchangeId::from_bytes(bytes);
            let (shown, is_first) = refused.count((Entry::Connect, client), &why, (id, None));
            if is_first {
                recorded += 1;
                ids.insert(shown);
            }
            assert!(ids.contains(&shown));
        }
        assert_eq!(recorded, KINDS + 1);
        // Callers that were recorded are not recorded again.
        refused.tell(&log, true);
        refused.tell(&log, true);
        let mut records = 0;
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            if record["kind"] == "refused_caller" {
                told += record["count"].as_u64().unwrap();
                records += 1;
            }
        }
        assert_eq!((records, told + recorded as u64), (recorded, 20_000));
    }
}
