//! Remembers the addresses of names for their TTL, and longer while no name server answers
//! (RFC 8767).

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use tokio::time::Instant;

/// An address family. Each has a DNS query of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv6, by AAAA records.
    V6,
    /// IPv4, by A records.
    V4,
}

/// The answer of a name server for one family of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FamilyAnswer {
    /// The addresses; none if the name has none of this family.
    pub(super) addresses: Vec<IpAddr>,
    /// How long the addresses may be used. Zero means once.
    pub(super) ttl: Duration,
    /// Whether the name does not exist, in any family.
    pub(super) nonexistent: bool,
}

/// The remembered answer for one family of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CachedAnswer {
    /// The addresses to use. No query is needed.
    Addresses(Vec<IpAddr>),
    /// No server answered a moment ago, and there is no older answer.
    Silence,
    /// The servers must be queried.
    Nothing {
        /// Whether an older answer can be used if no server answers.
        stale: bool,
    },
}

#[derive(Default)]
struct CacheEntry {
    held: Option<CachedAddresses>,
    /// No server is queried before this time.
    quiet_until: Option<Instant>,
}

struct CachedAddresses {
    addresses: Vec<IpAddr>,
    fresh_until: Instant,
    stale_until: Instant,
}

/// The answers of one runtime thread. The least recently used name is dropped first.
pub(super) struct AnswerCache {
    names: LruCache<Box<str>, [CacheEntry; 2]>,
    stale: Duration,
}

impl AnswerCache {
    /// Returns an empty cache. Addresses are usable for `stale` beyond their TTL; an answer without
    /// addresses is not.
    pub(super) fn new(stale: Duration) -> Self {
        Self {
            names: LruCache::new(MOST_NAMES),
            stale,
        }
    }

    /// Returns the remembered answer for a name.
    pub(super) fn recall(&mut self, name: &str, family: Family, now: Instant) -> CachedAnswer {
        let Some(entries) = self.names.get(name) else {
            return CachedAnswer::Nothing { stale: false };
        };
        let entry = &entries[family as usize];
        let quiet = entry.quiet_until.is_some_and(|until| now < until);
        match &entry.held {
            Some(held) if now < held.fresh_until || quiet && now < held.stale_until => {
                CachedAnswer::Addresses(held.addresses.clone())
            }
            _ if quiet => CachedAnswer::Silence,
            held => CachedAnswer::Nothing {
                stale: held.as_ref().is_some_and(|held| now < held.stale_until),
            },
        }
    }

    /// Keeps an answer, in place of an earlier one.
    pub(super) fn keep(&mut self, name: &str, family: Family, answer: &FamilyAnswer, now: Instant) {
        let stale = if answer.addresses.is_empty() {
            Duration::ZERO
        } else {
            self.stale
        };
        let entries = self.entries(name);
        let fresh_until = now + answer.ttl;
        if answer.nonexistent {
            // A denial ends older answers of the other family, too, but not fresh ones: some
            // servers deny names that have no AAAA record (RFC 4074 §4.2).
            for held in entries.iter_mut().filter_map(|entry| entry.held.as_mut()) {
                held.stale_until = held.fresh_until;
            }
        }
        // An answer with a TTL of zero is for the moment alone (RFC 1035 §3.2.1).
        let held = (!answer.ttl.is_zero()).then(|| CachedAddresses {
            addresses: answer.addresses.clone(),
            fresh_until,
            stale_until: fresh_until + stale,
        });
        entries[family as usize] = CacheEntry {
            held,
            quiet_until: None,
        };
    }

    /// Notes that no server answered, and returns the older answer if it may still be used.
    ///
    /// For a while no server is queried for this family again (RFC 8767 §5, RFC 9520 §3.2): for
    /// `pause`, or longer if there is an older answer.
    pub(super) fn unanswered(
        &mut self,
        name: &str,
        family: Family,
        pause: Duration,
        now: Instant,
    ) -> Option<Vec<IpAddr>> {
        let entry = &mut self.entries(name)[family as usize];
        let stale = entry.held.as_ref().filter(|held| now < held.stale_until);
        let stale = stale.map(|held| held.addresses.clone());
        let pause = if stale.is_some() { STALE_PAUSE } else { pause };
        entry.quiet_until = Some(now + pause);
        stale
    }

    /// Notes that the answer for a family came too late to be used. Until then, only a fresh answer
    /// is used: the name servers do answer, so a stale one is not justified (RFC 8767 §4).
    pub(super) fn late(&mut self, name: &str, family: Family, until: Instant) {
        let entry = &mut self.entries(name)[family as usize];
        entry.quiet_until = Some(until);
        if let Some(held) = &mut entry.held {
            held.stale_until = held.fresh_until;
        }
    }

    fn entries(&mut self, name: &str) -> &mut [CacheEntry; 2] {
        self.names.get_or_insert_mut(name.into(), Default::default)
    }
}

/// How long an older answer is used before the servers are queried again (RFC 8767 §5).
const STALE_PAUSE: Duration = Duration::from_secs(30);
/// How many names are remembered.
const MOST_NAMES: NonZeroUsize = NonZeroUsize::new(4096).expect("4096 is not zero");

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "a.test";
    const DAY: Duration = Duration::from_secs(86_400);
    const SECOND: Duration = Duration::from_secs(1);

    fn addresses(text: &str) -> Vec<IpAddr> {
        text.split_whitespace()
            .map(|address| address.parse().unwrap())
            .collect()
    }

    fn answer(text: &str, seconds: u64) -> FamilyAnswer {
        FamilyAnswer {
            addresses: addresses(text),
            ttl: Duration::from_secs(seconds),
            nonexistent: false,
        }
    }

    fn denial() -> FamilyAnswer {
        FamilyAnswer {
            nonexistent: true,
            ..answer("", 5)
        }
    }

    const NOTHING: CachedAnswer = CachedAnswer::Nothing { stale: false };
    const STALE: CachedAnswer = CachedAnswer::Nothing { stale: true };

    #[test]
    fn an_old_answer_is_used_only_once_no_server_answered_and_for_half_a_minute_at_a_time() {
        let mut answers = AnswerCache::new(DAY);
        let start = Instant::now();
        answers.keep(NAME, Family::V4, &answer("192.0.2.1", 60), start);
        let mut recall = |at: Duration| answers.recall(NAME, Family::V4, start + at);
        assert_eq!(
            recall(59 * SECOND),
            CachedAnswer::Addresses(addresses("192.0.2.1"))
        );
        assert_eq!(recall(60 * SECOND), STALE);
        let at = start + 61 * SECOND;
        let used = answers.unanswered(NAME, Family::V4, SECOND, at);
        assert_eq!(used, Some(addresses("192.0.2.1")));
        let recalled = answers.recall(NAME, Family::V4, at + 29 * SECOND);
        assert_eq!(recalled, CachedAnswer::Addresses(addresses("192.0.2.1")));
        assert_eq!(answers.recall(NAME, Family::V4, at + 30 * SECOND), STALE);
        let late = start + DAY + 60 * SECOND;
        assert_eq!(answers.recall(NAME, Family::V4, late), NOTHING);
        assert_eq!(answers.unanswered(NAME, Family::V4, SECOND, late), None);
    }

    #[test]
    fn silence_is_remembered_for_a_moment_and_for_its_family_alone() {
        let mut answers = AnswerCache::new(DAY);
        let now = Instant::now();
        assert_eq!(answers.unanswered(NAME, Family::V6, SECOND, now), None);
        assert_eq!(answers.recall(NAME, Family::V6, now), CachedAnswer::Silence);
        assert_eq!(answers.recall(NAME, Family::V4, now), NOTHING);
        assert_eq!(answers.recall(NAME, Family::V6, now + SECOND), NOTHING);
    }

    #[test]
    fn beside_servers_that_answer_late_no_old_answer_is_used() {
        let mut answers = AnswerCache::new(DAY);
        let start = Instant::now();
        answers.keep(NAME, Family::V6, &answer("2001:db8::1", 60), start);
        let at = start + 61 * SECOND;
        answers.late(NAME, Family::V6, at + 10 * SECOND);
        assert_eq!(answers.recall(NAME, Family::V6, at), CachedAnswer::Silence);
        let after = answers.recall(NAME, Family::V6, at + 10 * SECOND);
        assert_eq!(after, NOTHING);
    }

    #[test]
    fn a_denial_ends_old_answers_of_both_families_and_no_fresh_one() {
        let mut answers = AnswerCache::new(DAY);
        let start = Instant::now();
        answers.keep(NAME, Family::V4, &answer("192.0.2.1", 60), start);
        answers.keep(NAME, Family::V6, &denial(), start);
        let fresh = answers.recall(NAME, Family::V4, start + 59 * SECOND);
        assert_eq!(fresh, CachedAnswer::Addresses(addresses("192.0.2.1")));
        assert_eq!(
            answers.recall(NAME, Family::V6, start),
            CachedAnswer::Addresses(Vec::new())
        );
        let later = start + 60 * SECOND;
        assert_eq!(answers.recall(NAME, Family::V4, later), NOTHING);
        assert_eq!(answers.unanswered(NAME, Family::V4, SECOND, later), None);
    }

    #[test]
    fn an_answer_for_the_moment_is_not_kept_and_none_is_kept_beyond_its_time_if_told_so() {
        let now = Instant::now();
        let mut answers = AnswerCache::new(DAY);
        answers.keep(NAME, Family::V4, &answer("192.0.2.1", 0), now);
        assert_eq!(answers.recall(NAME, Family::V4, now), NOTHING);
        let mut answers = AnswerCache::new(Duration::ZERO);
        answers.keep(NAME, Family::V4, &answer("192.0.2.1", 60), now);
        assert_eq!(answers.recall(NAME, Family::V4, now + 60 * SECOND), NOTHING);
    }

    #[test]
    fn names_beyond_the_bound_drop_the_oldest() {
        let mut answers = AnswerCache::new(DAY);
        let now = Instant::now();
        for at in 0..=MOST_NAMES.get() {
            let name = format!("h{at}.test");
            answers.keep(&name, Family::V4, &answer("192.0.2.1", 60), now);
        }
        assert_eq!(answers.names.len(), MOST_NAMES.get());
        assert_eq!(answers.recall("h0.test", Family::V4, now), NOTHING);
    }
}
