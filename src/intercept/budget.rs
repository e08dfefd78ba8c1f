//! A token bucket: how often a session may request work that costs the gateway processor time.

use std::time::{Duration, Instant};

/// A bucket of up to `burst` tokens that gains `per_second` tokens per second.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    burst: f64,
    per_second: f64,
    left: f64,
    counted: Instant,
}

impl Budget {
    /// Creates a full bucket.
    pub(crate) fn new(burst: u32, per_second: u32, now: Instant) -> Self {
        let burst = f64::from(burst.max(1));
        Self {
            burst,
            per_second: f64::from(per_second.max(1)),
            left: burst,
            counted: now,
        }
    }

    fn refill(&mut self, now: Instant) {
        // `saturating`: instants from two threads may arrive here in either order.
        let passed = now.saturating_duration_since(self.counted);
        self.counted = self.counted.max(now);
        self.left = (self.left + passed.as_secs_f64() * self.per_second).min(self.burst);
    }

    /// Takes this many tokens at once, or all that are left. Returns whether there were enough.
    pub(crate) fn take_many(&mut self, tokens: u32, now: Instant) -> bool {
        if tokens == 0 {
            return true;
        }
        self.refill(now);
        let enough = self.left >= f64::from(tokens);
        self.left = (self.left - f64::from(tokens)).max(0.0);
        enough
    }

    /// Takes one token, or returns how long to wait for it.
    pub(crate) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        self.refill(now);
        if self.left >= 1.0 {
            self.left -= 1.0;
            Ok(())
        } else {
            Err(Duration::from_secs_f64((1.0 - self.left) / self.per_second))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_bounded_and_refills_at_its_rate() {
        let start = Instant::now();
        let mut budget = Budget::new(3, 10, start);
        assert_eq!((0..9).filter(|_| budget.take(start).is_ok()).count(), 3);
        let wait = budget.take(start).unwrap_err();
        assert!(
            wait > Duration::from_millis(99) && wait < Duration::from_millis(101),
            "{wait:?}"
        );
        assert!(budget.take(start + Duration::from_millis(101)).is_ok());
        assert_eq!(
            (0..99)
                .filter(|_| budget.take(start + Duration::from_secs(3600)).is_ok())
                .count(),
            3
        );
    }
}
