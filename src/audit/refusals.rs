//! Hands the refusals that are written to a log to a thread of the same process, so that it need
//! not read the file.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::record::Record;

/// Receives the refusals that were written since [`crate::Log::refusals`].
pub struct Refusals {
    written: Receiver<Message>,
    missed: Arc<AtomicU64>,
}

/// The reason for which a thread that waits for refusals wakes.
pub enum NextRefusal {
    /// A refusal. Its place in the chain is not known.
    Record(Box<Record>),
    /// No refusal came in time.
    Late,
    /// The wait was ended.
    Stopped,
}

/// Ends the wait of the thread that takes the refusals.
pub struct RefusalStop(SyncSender<Message>);

enum Message {
    Record(Vec<u8>),
    Stop,
}

/// The sender of a log's refusals. Empty until it is opened.
#[derive(Default)]
pub(super) struct RefusalTap(OnceLock<(SyncSender<Message>, Arc<AtomicU64>)>);

impl RefusalStop {
    /// Ends the wait. Refusals that were written before are still received first.
    pub fn stop(self) {
        // Without a receiver, no thread waits.
        let _ = self.0.send(Message::Stop);
    }
}

impl Refusals {
    /// Waits for the next refusal, until a time or for ever.
    #[must_use]
    pub fn next(&self, until: Option<Instant>) -> NextRefusal {
        let written = match until {
            None => self.written.recv().map_err(RecvTimeoutError::from),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                self.written.recv_timeout(left)
            }
        };
        match written {
            Ok(Message::Record(record)) => match serde_json::from_slice(&record) {
                Ok(record) => NextRefusal::Record(record),
                // Our own record is always readable.
                Err(_) => NextRefusal::Late,
            },
            Err(RecvTimeoutError::Timeout) => NextRefusal::Late,
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => NextRefusal::Stopped,
        }
    }

    /// How many refusals were dropped since the last call, because the queue was full.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }
}

impl RefusalTap {
    /// Opens the tap. `None` on a second call.
    pub(super) fn open(&self) -> Option<(Refusals, RefusalStop)> {
        let (sender, written) = sync_channel(MOST_WAITING);
        let missed = Arc::new(AtomicU64::new(0));
        let stop = RefusalStop(sender.clone());
        self.0.set((sender, missed.clone())).ok()?;
        Some((Refusals { written, missed }, stop))
    }

    /// Sends a refusal. Never waits: counts the refusal if the queue is full.
    pub(super) fn put(&self, record: &[u8]) {
        if let Some((sender, missed)) = self.0.get()
            && sender.try_send(Message::Record(record.to_vec())).is_err()
        {
            missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

const MOST_WAITING: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_takes_bounded_memory_and_all_are_counted() {
        let tap = RefusalTap::default();
        tap.put(b"{}");
        let (refusals, stop) = tap.open().unwrap();
        assert!(tap.open().is_none());
        for n in 0..3 * MOST_WAITING {
            tap.put(format!(r#"{{"kind":"exchange","port":{}}}"#, n % 60_000).as_bytes());
        }
        let next = || match refusals.next(Some(Instant::now())) {
            NextRefusal::Record(record) => Some(record),
            NextRefusal::Late | NextRefusal::Stopped => None,
        };
        let taken: Vec<_> = std::iter::from_fn(next).collect();
        assert_eq!((taken.len(), taken[5].port), (MOST_WAITING, Some(5)));
        assert_eq!(refusals.missed(), 2 * MOST_WAITING as u64);
        assert_eq!(refusals.missed(), 0);
        stop.stop();
        assert!(matches!(refusals.next(None), NextRefusal::Stopped));
    }
}
