//! Hands the refusals that are written to a log to a thread of the same process, which need not
//! read the file for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use super::record::Record;

/// The refusals that were written since they were asked for.
pub struct Refusals {
    records: Receiver<Vec<u8>>,
    missed: Arc<AtomicU64>,
}

/// Where a log puts its refusals, once somebody asked for them.
#[derive(Default)]
pub(super) struct RefusalTap(OnceLock<(SyncSender<Vec<u8>>, Arc<AtomicU64>)>);

impl Refusals {
    /// The next one, if there is one. Its place in the chain is not known.
    #[must_use]
    pub fn take(&self) -> Option<Record> {
        let mut records = self.records.try_iter();
        records.find_map(|record| serde_json::from_slice(&record).ok())
    }

    /// How many there were since the last call that nobody took in time.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }
}

impl RefusalTap {
    /// `None` if they were asked for before.
    pub(super) fn open(&self) -> Option<Refusals> {
        let (sender, records) = sync_channel(MOST_WAITING);
        let missed = Arc::new(AtomicU64::new(0));
        self.0.set((sender, missed.clone())).ok()?;
        Some(Refusals { records, missed })
    }

    /// Never waits: what nobody takes in time is counted.
    pub(super) fn put(&self, record: &[u8]) {
        if let Some((sender, missed)) = self.0.get()
            && sender.try_send(record.to_vec()).is_err()
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
        let refusals = tap.open().unwrap();
        assert!(tap.open().is_none());
        for n in 0..3 * MOST_WAITING {
            tap.put(format!(r#"{{"kind":"exchange","port":{}}}"#, n % 60_000).as_bytes());
        }
        let taken: Vec<Record> = std::iter::from_fn(|| refusals.take()).collect();
        assert_eq!((taken.len(), taken[5].port), (MOST_WAITING, Some(5)));
        assert_eq!(refusals.missed(), 2 * MOST_WAITING as u64);
        assert_eq!(refusals.missed(), 0);
    }
}
