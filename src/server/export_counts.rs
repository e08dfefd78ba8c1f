//! Counts the outcomes of exporting records, for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The counts of one destination.
#[derive(Default)]
pub struct ExportCounts {
    /// The destination: its host and port.
    pub server: String,
    /// The form of the records: `otlp` or `ocsf`.
    pub format: &'static str,
    /// How many records the destination accepted.
    pub taken: AtomicU64,
    /// How many records were permanently refused.
    pub lost: AtomicU64,
    /// How many attempts failed.
    pub failures: AtomicU64,
    /// When records were last accepted, in seconds since 1970; 0 if never.
    pub sent_at: AtomicU64,
    next: AtomicU64,
}

impl ExportCounts {
    /// Creates the counts of a destination.
    #[must_use]
    pub fn new(server: String, format: &'static str) -> Self {
        Self {
            server,
            format,
            ..Self::default()
        }
    }

    /// Notes that the record of this number is the next to be sent.
    pub fn begin(&self, next: u64) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// Counts records that the server accepted.
    pub fn sent(&self, records: u64, last: u64) {
        self.taken.fetch_add(records, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        self.sent_at.store(now, Ordering::Relaxed);
        self.next.store(last + 1, Ordering::Relaxed);
    }

    /// Counts records that the server permanently refused.
    pub fn refused(&self, records: u64, last: u64) {
        self.lost.fetch_add(records, Ordering::Relaxed);
        self.next.store(last + 1, Ordering::Relaxed);
    }

    /// Counts an attempt that failed.
    pub fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many records are still to be sent, of a log whose next number is given.
    #[must_use]
    pub fn behind(&self, next: u64) -> u64 {
        next.saturating_sub(self.next.load(Ordering::Relaxed))
    }
}
