//! Tells apart how long an exchange waits for its origin and how long the gateway itself takes.

use std::time::{Duration, Instant};

use super::metrics::Metrics;

/// When an exchange began, and how much of the time since then the origin took.
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

    /// Notes that the request's head is sent to the origin.
    pub(super) fn sends(&mut self, at: Instant) {
        self.sent = at;
    }

    /// Notes that the origin's response arrived.
    pub(super) fn answered(&mut self, at: Instant) {
        self.origin += at - self.sent;
    }

    /// Notes when a connection to the origin was requested, and when it was ready.
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
