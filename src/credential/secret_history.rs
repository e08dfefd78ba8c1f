//! Remembers the secrets of one credential.
//!
//! An origin that was shown a secret may still repeat it after the secret was replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::secret::Secret;

/// The secrets from a store, the latest last.
#[derive(Default)]
pub(super) struct SecretHistory(Mutex<Vec<SecretVersion>>);

struct SecretVersion {
    secret: Arc<Secret>,
    /// The end of its lease. For a replaced secret, no earlier than its replacement.
    ends: Option<Instant>,
    /// Whether it is in the search of every session that is searched for the credential.
    told: Arc<AtomicBool>,
}

impl SecretHistory {
    /// Remembers a secret from the store.
    pub(super) fn add(&self, secret: &Arc<Secret>, ends: Option<Instant>) {
        self.add_at(secret, ends, Instant::now());
    }

    /// Returns the secrets that are still searched for.
    pub(super) fn all(&self) -> Vec<Arc<Secret>> {
        self.all_at(Instant::now())
    }

    /// Whether this secret came from the store and is still searched for.
    pub(super) fn has(&self, secret: &Arc<Secret>) -> bool {
        let given = self.0.lock();
        given.iter().any(|one| Arc::ptr_eq(&one.secret, secret))
    }

    fn add_at(&self, secret: &Arc<Secret>, ends: Option<Instant>, now: Instant) {
        let mut given = self.0.lock();
        let mut known = given.iter_mut();
        if let Some(known) = known.find(|one| Arc::ptr_eq(&one.secret, secret)) {
            // Its lease may have been renewed. A secret without an end still has none.
            known.ends = known
                .ends
                .map(|before| ends.map_or(before, |ends| ends.max(before)));
            return;
        }
        if let Some(last) = given.last_mut() {
            last.ends = Some(last.ends.map_or(now, |ends| ends.max(now)));
        }
        given.push(SecretVersion {
            secret: secret.clone(),
            ends,
            told: Arc::default(),
        });
        prune(&mut given, now);
        CHANGES.fetch_add(1, Ordering::Release);
    }

    /// Counts the secrets that were added to any history.
    pub(super) fn changes() -> u64 {
        CHANGES.load(Ordering::Acquire)
    }

    fn all_at(&self, now: Instant) -> Vec<Arc<Secret>> {
        let mut given = self.0.lock();
        prune(&mut given, now);
        given.iter().map(|one| one.secret.clone()).collect()
    }

    /// Returns the flag whether every session's search has a secret. A secret that was dropped gets
    /// a flag of its own.
    pub(super) fn told(&self, secret: &Arc<Secret>) -> Arc<AtomicBool> {
        let given = self.0.lock();
        let known = given.iter().find(|one| Arc::ptr_eq(&one.secret, secret));
        known.map(|one| one.told.clone()).unwrap_or_default()
    }

    /// Whether any secret came from the store.
    pub(super) fn is_some(&self) -> bool {
        let given = self.0.lock();
        !given.is_empty()
    }
}

static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Drops old secrets: those that ended long ago and are not among the latest, and the oldest beyond
/// the byte limit. The latest secret always stays.
fn prune(given: &mut Vec<SecretVersion>, now: Instant) {
    let mut bytes = 0;
    let is_kept = |(late, one): (usize, &SecretVersion)| {
        bytes += one.secret.expose().len();
        let lately = one.ends.is_none_or(|ends| now < ends + LOOKED_FOR);
        late == 0 || bytes <= MOST_BYTES && (late < MOST_LATEST || lately)
    };
    let mut kept: Vec<bool> = given.iter().rev().enumerate().map(is_kept).collect();
    given.retain(|_| kept.pop().unwrap_or(true));
}

/// The number of the latest secrets that are searched for, no matter how old they are.
const MOST_LATEST: usize = 4;
/// How long a secret is searched for after its end.
const LOOKED_FOR: Duration = Duration::from_secs(10 * 60);
/// The limit for one credential's searched secrets, in bytes. Their forms take about a hundred
/// times as much memory.
const MOST_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    fn secret(number: usize, length: usize) -> Arc<Secret> {
        let text = format!("{number:0length$}").into_bytes();
        Arc::new(Secret::new(Zeroizing::new(text), false).unwrap())
    }

    fn all(given: &SecretHistory, now: Instant) -> Vec<usize> {
        let text = |secret: Arc<Secret>| String::from_utf8(secret.expose().to_vec()).unwrap();
        let number = |secret| text(secret).trim_start_matches('0').parse().unwrap();
        given.all_at(now).into_iter().map(number).collect()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_secret_is_looked_for_until_ten_minutes_after_its_end() {
        let (given, now) = (SecretHistory::default(), Instant::now());
        assert!(!given.is_some());
        for number in 1..=6 {
            given.add_at(&secret(number, 20), Some(now + seconds(60)), now);
        }
        assert_eq!(all(&given, now + seconds(659)), [1, 2, 3, 4, 5, 6]);
        assert_eq!(all(&given, now + seconds(661)), [3, 4, 5, 6]);
        assert!(given.is_some());
    }

    #[test]
    fn a_secret_whose_lease_was_renewed_is_looked_for_until_its_new_end() {
        let (given, now) = (SecretHistory::default(), Instant::now());
        let renewed = secret(1, 20);
        given.add_at(&renewed, Some(now + seconds(60)), now);
        for number in 2..=6 {
            given.add_at(&secret(number, 20), Some(now + seconds(60)), now);
        }
        given.add_at(&renewed, Some(now + seconds(3600)), now);
        assert_eq!(all(&given, now + seconds(4199)), [1, 3, 4, 5, 6]);
        assert_eq!(all(&given, now + seconds(4201)), [3, 4, 5, 6]);
    }

    #[test]
    fn what_never_ends_is_looked_for_and_the_same_secret_is_noted_once() {
        let (given, now) = (SecretHistory::default(), Instant::now());
        let fixed = secret(1, 20);
        given.add_at(&fixed, None, now);
        given.add_at(&fixed, None, now);
        assert_eq!(all(&given, now + seconds(86_400)), [1]);
    }

    #[test]
    fn the_oldest_of_too_much_is_dropped_and_the_latest_never() {
        let (given, now) = (SecretHistory::default(), Instant::now());
        let ends = Some(now + seconds(3600));
        for number in 1..=6 {
            given.add_at(&secret(number, 16 << 10), ends, now);
        }
        assert_eq!(all(&given, now), [3, 4, 5, 6]);
        for number in 1..=200 {
            given.add_at(&secret(number, 520), ends, now);
        }
        assert_eq!(all(&given, now).len(), (64 << 10) / 520);
    }
}
