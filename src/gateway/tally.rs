//! What was refused in this process's life: for the person who ran the command, and cannot see a
//! TLS alert or a name that does not exist for what it is.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::names::{ExchangeId, ReasonCode};

/// Kinds of refusals that are kept apart; all further ones are counted together.
const MOST: usize = 256;

/// Refusals by host and reason.
#[derive(Default)]
pub struct Tally(Mutex<BTreeMap<(String, ReasonCode), Counted>>);

/// How often something was refused, and an exchange to ask about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// How often.
    pub count: u64,
    /// The first of them, for `gateway why`.
    pub first: ExchangeId,
}

impl Tally {
    /// Counts a refusal.
    pub fn count(&self, host: &str, reason: ReasonCode, id: ExchangeId) {
        let mut all = self.0.lock();
        let mut kind = (host.to_owned(), reason);
        if all.len() >= MOST && !all.contains_key(&kind) {
            kind.0 = "…".to_owned();
        }
        let counted = all.entry(kind).or_insert(Counted {
            count: 0,
            first: id,
        });
        counted.count += 1;
    }

    /// Everything that was refused, by host and reason.
    #[must_use]
    pub fn all(&self) -> Vec<(String, ReasonCode, Counted)> {
        let all = self.0.lock();
        all.iter()
            .map(|((host, reason), counted)| (host.clone(), *reason, *counted))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_hosts_is_counted_in_bounded_memory() {
        let tally = Tally::default();
        let id = ExchangeId::from_bytes([1; 10]);
        for host in 0..10_000 {
            tally.count(&format!("h{host}.test"), ReasonCode::DnsName, id);
        }
        let all = tally.all();
        assert!(all.len() <= MOST + 1);
        // What is known already is counted as itself.
        tally.count("h0.test", ReasonCode::DnsName, id);
        let first = |(host, ..): &(String, ReasonCode, Counted)| host == "h0.test";
        assert_eq!(
            tally.all().iter().find(|one| first(one)).unwrap().2.count,
            2
        );
        assert_eq!(
            all.iter().map(|(.., counted)| counted.count).sum::<u64>(),
            10_000
        );
    }
}
