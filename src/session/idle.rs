//! The time since a session was last used, and the limit after which an idle session ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::lifetime::Moment;

/// The last use of a session, by a clock that runs on while the machine sleeps.
pub(super) struct IdleClock {
    /// In seconds since the machine started.
    used: AtomicU64,
    /// The limit in seconds; 0 for a session that may be idle for ever.
    most: AtomicU64,
}

impl IdleClock {
    /// Returns the clock of a session that is used now and may be idle for ever.
    pub(super) fn new(now: Moment) -> Self {
        Self {
            used: AtomicU64::new(now.since_boot.as_secs()),
            most: AtomicU64::new(0),
        }
    }

    /// Sets the limit after which an idle session ends.
    pub(super) fn limit(&self, most: Option<Duration>) {
        let most = most.map_or(0, |most| most.as_secs().max(1));
        self.most.store(most, Ordering::Relaxed);
    }

    /// Returns the limit after which an idle session ends, if there is one.
    pub(super) fn most(&self) -> Option<Duration> {
        let most = self.most.load(Ordering::Relaxed);
        (most > 0).then(|| Duration::from_secs(most))
    }

    /// Notes that the session is used.
    pub(super) fn note(&self, since_boot: Duration) {
        self.used.store(since_boot.as_secs(), Ordering::Relaxed);
    }

    /// Whether the session has been idle for longer than the limit.
    pub(super) fn is_over(&self, now: Moment) -> bool {
        let used = Duration::from_secs(self.used.load(Ordering::Relaxed));
        self.most()
            .is_some_and(|most| now.since_boot.saturating_sub(used) >= most)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_session_is_idle_from_its_last_use_on_and_only_if_that_is_limited() {
        let at = |seconds| Moment {
            since_boot: Duration::from_secs(seconds),
            wall: SystemTime::UNIX_EPOCH,
        };
        let clock = IdleClock::new(at(100));
        assert!(!clock.is_over(at(1_000_000)));
        clock.limit(Some(Duration::from_secs(60)));
        assert_eq!(
            (clock.is_over(at(159)), clock.is_over(at(160))),
            (false, true)
        );
        clock.note(Duration::from_secs(150));
        assert_eq!(
            (clock.is_over(at(209)), clock.is_over(at(210))),
            (false, true)
        );
        clock.limit(None);
        assert!(!clock.is_over(at(1_000_000)));
    }
}
