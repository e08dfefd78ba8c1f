//! Counts what this process refused, for the user who ran the command. Programs show a TLS alert or
//! an unresolved name as some other error.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use gateway_names::{ExchangeId, ReasonCode};
use parking_lot::Mutex;

/// How many kinds of refusals are counted separately. Further ones are counted together.
const MOST: usize = 256;

/// Refusals by host and reason.
pub struct RefusalCounts {
    kinds: Mutex<BTreeMap<(String, ReasonCode), RefusalCount>>,
    /// In the order of [`ReasonCode::ALL`].
    reasons: [AtomicU64; ReasonCode::ALL.len()],
}

impl Default for RefusalCounts {
    fn default() -> Self {
        Self {
            kinds: Mutex::default(),
            reasons: [const { AtomicU64::new(0) }; ReasonCode::ALL.len()],
        }
    }
}

/// How often something was refused, and the first exchange of that kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusalCount {
    /// The number of refusals.
    pub count: u64,
    /// The first exchange, for `gateway why`.
    pub first: ExchangeId,
    /// Whether allowing the host would allow it.
    pub is_grantable: bool,
}

impl RefusalCounts {
    /// Counts a refusal of a connection or a name.
    pub fn count(&self, host: &str, reason: ReasonCode, id: ExchangeId) {
        // A name like `_https._tcp.example.com` is asked for, but never connected to.
        let is_host = !host.is_empty() && !host.starts_with('_');
        let is_grantable =
            is_host && matches!(reason, ReasonCode::DnsName | ReasonCode::HostNotPermitted);
        self.count_of(host, reason, id, is_grantable);
    }

    /// Counts a refusal; `host` has a port unless it is the default port.
    pub fn count_of(&self, host: &str, reason: ReasonCode, id: ExchangeId, is_grantable: bool) {
        self.reasons[reason as usize].fetch_add(1, Ordering::Relaxed);
        let mut all = self.kinds.lock();
        let mut kind = (host.to_owned(), reason);
        if all.len() >= MOST && !all.contains_key(&kind) {
            kind.0 = "…".to_owned();
        }
        let counted = all.entry(kind).or_insert(RefusalCount {
            count: 0,
            first: id,
            is_grantable,
        });
        counted.count += 1;
    }

    /// Returns how often each reason led to a refusal, if it ever did.
    pub fn reasons(&self) -> impl Iterator<Item = (ReasonCode, u64)> {
        let counts = self
            .reasons
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        let all = ReasonCode::ALL.into_iter().zip(counts);
        all.filter(|(_, count)| *count > 0)
    }

    /// Returns every refusal, by host and reason. Refused names are left out if a connection to the
    /// same host was refused later.
    #[must_use]
    pub fn all(&self) -> Vec<(String, ReasonCode, RefusalCount)> {
        let all = self.kinds.lock();
        let is_told = |host: &str| {
            let mut kinds = all.keys();
            let is_of = |known: &str| known == host || known.starts_with(&format!("{host}:"));
            kinds.any(|(known, reason)| is_of(known) && *reason != ReasonCode::DnsName)
        };
        all.iter()
            .filter(|((host, reason), _)| *reason != ReasonCode::DnsName || !is_told(host))
            .map(|((host, reason), counted)| (host.clone(), *reason, *counted))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_hosts_is_counted_in_bounded_memory() {
        let counts = RefusalCounts::default();
        let id = ExchangeId::from_bytes([1; 10]);
        for host in 0..10_000 {
            counts.count(&format!("h{host}.test"), ReasonCode::DnsName, id);
        }
        let all = counts.all();
        assert!(all.len() <= MOST + 1);
        // A host that is already known is still counted separately.
        counts.count("h0.test", ReasonCode::DnsName, id);
        let first = |(host, ..): &(String, ReasonCode, RefusalCount)| host == "h0.test";
        assert_eq!(
            counts.all().iter().find(|one| first(one)).unwrap().2.count,
            2
        );
        assert_eq!(
            all.iter().map(|(.., counted)| counted.count).sum::<u64>(),
            10_000
        );
    }
}
