//! The lifetime of a session, and the lease of a replica, by two clocks: neither setting the wall
//! clock nor a sleep of the machine prolongs them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// A moment, by the boot clock and by the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time since the machine started. It includes sleep, and it cannot be set.
    pub since_boot: Duration,
    /// The time by the wall clock, which can be set forward and back.
    pub wall: SystemTime,
}

impl Moment {
    /// Returns the present moment.
    pub fn now() -> Self {
        Self {
            since_boot: Self::since_boot(),
            wall: SystemTime::now(),
        }
    }

    /// Returns the time since boot alone.
    pub fn since_boot() -> Duration {
        Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
    }

    /// Whether this much time has passed since another moment, by either clock.
    pub fn is_later_than(&self, other: Self, by: Duration) -> bool {
        Lifetime::new(other, by).is_over(*self)
    }
}

/// A span of time from a certain moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    begins: Moment,
    lasts: Duration,
}

impl Lifetime {
    /// Returns the span that begins at a moment.
    pub fn new(begins: Moment, lasts: Duration) -> Self {
        Self { begins, lasts }
    }

    /// Returns the span that begins at a moment and ends at a time of the wall clock.
    pub fn until(begins: Moment, ends: SystemTime) -> Self {
        let lasts = ends.duration_since(begins.wall).unwrap_or_default();
        Self { begins, lasts }
    }

    /// Returns a span of the same length that begins at another moment.
    #[must_use]
    pub fn again(&self, begins: Moment) -> Self {
        Self { begins, ..*self }
    }

    /// Returns a span of another length that begins at another moment.
    #[must_use]
    pub fn lasting(&self, begins: Moment, lasts: Duration) -> Self {
        Self { begins, lasts }
    }

    /// Returns when the span ends by the wall clock.
    pub fn ends(&self) -> SystemTime {
        self.begins.wall + self.lasts
    }

    /// Returns how much of the span remains.
    pub fn remaining(&self, now: Moment) -> Duration {
        self.lasts.saturating_sub(self.passed(now))
    }

    /// Whether the span is over.
    pub fn is_over(&self, now: Moment) -> bool {
        self.passed(now) >= self.lasts
    }

    /// Whether half of the span has passed.
    pub fn is_half_over(&self, now: Moment) -> bool {
        self.passed(now) >= self.lasts / 2
    }

    /// Returns the larger of the wall-clock and monotonic elapsed times.
    fn passed(&self, now: Moment) -> Duration {
        let begins = self.begins;
        let by_wall = now.wall.duration_since(begins.wall).unwrap_or_default();
        by_wall.max(now.since_boot.saturating_sub(begins.since_boot))
    }
}

/// The lease of a replica of a fleet: it knows what was decided for a while after each beat that
/// the store answered. Without a fleet, there is none.
#[derive(Debug)]
pub struct Freshness {
    stale_after: Duration,
    /// When the last beat that was answered had been sent, in milliseconds by both clocks.
    since_boot: AtomicU64,
    wall: AtomicU64,
    is_closed: AtomicBool,
    /// Whether the store cannot be trusted, whatever it answers.
    is_distrusted: AtomicBool,
}

impl Freshness {
    /// Returns the lease of this process, which is one replica. From then on, nothing is lent
    /// without it.
    pub fn of_process(stale_after: Duration) -> &'static Self {
        LEASE.get_or_init(|| Self::new(stale_after))
    }

    /// Returns a lease that has not begun, of a store that is not trusted yet.
    fn new(stale_after: Duration) -> Self {
        Self {
            stale_after,
            since_boot: AtomicU64::new(0),
            wall: AtomicU64::new(0),
            is_closed: AtomicBool::new(true),
            is_distrusted: AtomicBool::new(true),
        }
    }

    /// Begins the lease anew, from when the beat was sent.
    pub fn renew(&self, sent: Moment) {
        let since = sent.wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.since_boot
            .store(millis(sent.since_boot), Ordering::Relaxed);
        self.wall.store(millis(since), Ordering::Relaxed);
        self.is_closed.store(false, Ordering::Release);
    }

    /// Ends the lease, until it is renewed.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Sets whether the store can be trusted. If not, no renewal begins the lease.
    pub fn trust(&self, trusted: bool) {
        self.is_distrusted.store(!trusted, Ordering::Release);
    }

    /// Whether the lease is over, by the later of the two clocks: a machine that slept, or whose
    /// clock was set forward, is not fresh.
    fn is_stale(&self) -> bool {
        self.left().is_zero()
    }

    /// How much of the lease is left.
    #[must_use]
    pub fn left(&self) -> Duration {
        let [closed, distrusted] = [&self.is_closed, &self.is_distrusted];
        if closed.load(Ordering::Acquire) || distrusted.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let passed = |now: Duration, at: &AtomicU64| {
            now.saturating_sub(Duration::from_millis(at.load(Ordering::Relaxed)))
        };
        let by_boot = passed(Moment::since_boot(), &self.since_boot);
        let by_wall = passed(now.unwrap_or_default(), &self.wall);
        self.stale_after.saturating_sub(by_boot.max(by_wall))
    }
}

/// Whether this process is a replica of a fleet, and may lack decisions of the others.
#[must_use]
pub fn is_stale() -> bool {
    LEASE.get().is_some_and(Freshness::is_stale)
}

static LEASE: OnceLock<Freshness> = OnceLock::new();

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn at(since_boot: Duration, wall: Duration) -> Moment {
        let wall = SystemTime::UNIX_EPOCH + 20_000 * DAY + wall;
        Moment { since_boot, wall }
    }

    #[test]
    fn a_lifetime_ends_when_either_clock_says_so() {
        let life = Lifetime::new(at(DAY, DAY), DAY);
        let over = |booted, wall| life.is_over(at(booted, wall));
        assert!(!over(DAY, DAY));
        assert!(!over(2 * DAY - Duration::from_secs(1), DAY));
        // The machine slept, or the wall clock was set forward.
        assert!(over(2 * DAY, DAY));
        assert!(over(DAY, 2 * DAY));
        // The wall clock was set back.
        assert!(over(2 * DAY, Duration::ZERO));
        assert!(!over(DAY + DAY / 2, Duration::ZERO));
        assert!(life.is_half_over(at(DAY + DAY / 2, Duration::ZERO)));
        assert!(!life.is_half_over(at(DAY + DAY / 3, DAY)));
    }

    #[test]
    fn a_year_of_renewals_half_way_leaves_no_moment_without_life() {
        let hour = DAY / 24;
        let mut life = Lifetime::new(at(DAY, DAY), DAY);
        let mut renewals = 0;
        for passed in 0..365 * 24 {
            let now = at(DAY + passed * hour, DAY + passed * hour);
            assert!(!life.is_over(now), "{passed}");
            if life.is_half_over(now) {
                life = life.again(now);
                renewals += 1;
            }
        }
        assert_eq!(renewals, 2 * 365 - 1);
    }

    #[test]
    fn a_lease_ends_by_the_clock_that_went_further() {
        let lease = Freshness::new(Duration::from_secs(5));
        let now = Moment::now();
        lease.renew(now);
        assert!(lease.is_stale());
        lease.trust(true);
        assert!(!lease.is_stale() && lease.left() <= Duration::from_secs(5));
        let slept = Moment {
            since_boot: now.since_boot.saturating_sub(Duration::from_secs(6)),
            ..now
        };
        let set_forward = Moment {
            wall: now.wall - Duration::from_secs(6),
            ..now
        };
        for old in [slept, set_forward] {
            lease.renew(old);
            assert!(lease.is_stale());
        }
        lease.renew(now);
        lease.close();
        assert!(lease.is_stale());
    }
}
