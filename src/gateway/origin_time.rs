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
    pub(super) fn begin(began: Instant) -> Self {
        Self {
            began,
            sent: began,
            origin: Duration::ZERO,
        }
    }

    /// The request's head goes to the origin.
    pub(super) fn sends(&mut self, at: Instant) {
        self.sent = at;
    }

    /// The origin's answer is there.
    pub(super) fn answered(&mut self, at: Instant) {
        self.origin += at - self.sent;
    }

    /// A connection to the origin was asked for, and is there.
    pub(super) fn connected(&mut self, asked: Instant, at: Instant) {
        self.origin += at - asked;
    }

    /// Counts both parts, for an exchange whose origin answered.
    pub(super) fn count(&self, metrics: &Metrics) {
        metrics.origin.observe(self.origin);
        metrics
            .own
            .observe(self.began.elapsed().saturating_sub(self.origin));
    }
}
