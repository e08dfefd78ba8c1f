//! Tells apart how long an exchange waits for its origin and how long the gateway itself takes.

use std::time::{Duration, Instant};

use super::metrics::Metrics;

/// When an exchange began, and how much of the time since was the origin's.
#[derive(Clone, Copy)]
pub(super) struct OriginTime {
    began: Instant,
    /// When the request's head was sent.
    sent: Instant,
    origin: Duration,
}

impl OriginTime {
    pub(super) fn begin() -> Self {
        let now = Instant::now();
        Self {
            began: now,
            sent: now,
            origin: Duration::ZERO,
        }
    }

    /// The request's head goes to the origin now.
    pub(super) fn sends(&mut self) {
        self.sent = Instant::now();
    }

    /// The origin's answer is there.
    pub(super) fn answered(&mut self) {
        self.origin += self.sent.elapsed();
    }

    /// A connection to the origin was asked for at this time, and is there now.
    pub(super) fn connected(&mut self, asked: Instant) {
        self.origin += asked.elapsed();
    }

    /// Counts both parts, for an exchange whose origin answered.
    pub(super) fn count(&self, metrics: &Metrics) {
        metrics.origin.observe(self.origin);
        metrics
            .own
            .observe(self.began.elapsed().saturating_sub(self.origin));
    }
}
