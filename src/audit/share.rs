//! Limits what one session may write: a burst, a rate and, on a nearly full disk, a fair share.
//!
//! On a nearly full disk, a session never gets more than it leaves for the others.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use super::error::Error;

/// How many bytes one session may write. The bytes written drain from the burst at the rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Bytes at once.
    pub burst: u64,
    /// Bytes per second, without a time limit.
    pub per_second: u64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            burst: 256 << 20,
            per_second: 256 << 10,
        }
    }
}

/// What one session has written, and how many of its exchanges were refused without a record.
#[derive(Debug, Default)]
pub struct Usage {
    written: Mutex<LeakyBucket>,
    suppressed: AtomicU64,
}

#[derive(Debug, Default)]
struct LeakyBucket {
    /// Bytes that have not drained yet.
    level: u64,
    drained: Option<Instant>,
    /// The shortage during which `since` was written.
    shortage: u64,
    since: u64,
}

impl Usage {
    fn written(&self) -> MutexGuard<'_, LeakyBucket> {
        self.written.lock()
    }

    /// Whether the session may write one more record.
    ///
    /// A record that crosses the limit still passes, so a burst can exceed it by one record for
    /// each of the session's exchanges in progress.
    pub(super) fn admit(
        &self,
        allowance: Allowance,
        disk: &FreeSpace,
        now: Instant,
    ) -> Result<(), Error> {
        let mut written = self.written();
        written.drain(allowance, now);
        if written.level >= allowance.burst {
            return Err(Error::OverRate);
        }
        let over = |written: &mut LeakyBucket| written.in_shortage(disk.shortage()) > disk.free();
        if over(&mut written) {
            // The known free space may be a second old.
            disk.look();
            if over(&mut written) {
                return Err(Error::OverShare);
            }
        }
        Ok(())
    }

    /// Charges the session for written bytes.
    pub(super) fn charge(&self, bytes: u64, disk: &FreeSpace) {
        let mut written = self.written();
        written.level = written.level.saturating_add(bytes);
        let shortage = disk.shortage();
        let since = written.in_shortage(shortage);
        written.since = if shortage == 0 { 0 } else { since + bytes };
    }

    /// Counts exchanges that were refused without a record.
    pub(super) fn suppress(&self, count: u64) {
        self.suppressed.fetch_add(count, Ordering::Relaxed);
    }

    /// How many exchanges were refused without a record since the last call.
    pub(super) fn take_suppressed(&self) -> u64 {
        self.suppressed.swap(0, Ordering::Relaxed)
    }
}

impl LeakyBucket {
    fn drain(&mut self, allowance: Allowance, now: Instant) {
        let passed = self.drained.map(|then| now.saturating_duration_since(then));
        let drained = passed.map_or(0, |passed| {
            passed
                .as_nanos()
                .saturating_mul(u128::from(allowance.per_second))
                / 1_000_000_000
        });
        // A time too short for one byte is left to the next call.
        if self.drained.is_none() || drained > 0 {
            self.drained = Some(now);
            self.level = self
                .level
                .saturating_sub(u64::try_from(drained).unwrap_or(u64::MAX));
        }
    }

    /// The bytes written since the current shortage began; 0 if there is none.
    fn in_shortage(&mut self, shortage: u64) -> u64 {
        if self.shortage != shortage {
            (self.shortage, self.since) = (shortage, 0);
        }
        self.since
    }
}

/// The free space on the log's disk, as last measured.
#[derive(Debug)]
pub(super) struct FreeSpace {
    /// The log's folder; `None` for a log in memory, whose room is unlimited.
    folder: Option<Arc<File>>,
    free: AtomicU64,
    /// How often a shortage began or ended: odd while there is one.
    changes: AtomicU64,
}

impl FreeSpace {
    pub(super) fn of(folder: Option<Arc<File>>) -> Self {
        let disk = Self {
            folder,
            free: AtomicU64::new(u64::MAX),
            changes: AtomicU64::new(0),
        };
        disk.look();
        disk
    }

    /// Measures the free space.
    ///
    /// If that fails, the last known room is kept; a write to a full disk then fails by itself.
    pub(super) fn look(&self) {
        let Some(found) = self
            .folder
            .as_deref()
            .and_then(|folder| rustix::fs::fstatvfs(folder).ok())
        else {
            return;
        };
        self.saw(
            found.f_bavail.saturating_mul(found.f_frsize),
            found.f_blocks.saturating_mul(found.f_frsize),
        );
    }

    fn saw(&self, free: u64, size: u64) {
        self.free.store(free, Ordering::Relaxed);
        let short = free < (size / SHORT_PART).min(SHORT_BYTES);
        let known = self.changes.load(Ordering::Relaxed);
        if short != (known % 2 == 1) {
            // If this fails, another thread saw the change too.
            let (now, order) = (known + 1, Ordering::Relaxed);
            let _ = self.changes.compare_exchange(known, now, order, order);
        }
    }

    fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// The number of the current shortage; 0 if there is none.
    fn shortage(&self) -> u64 {
        let changes = self.changes.load(Ordering::Relaxed);
        if changes % 2 == 1 { changes } else { 0 }
    }
}

/// The disk is short of room in its last sixteenth or its last gibibyte, whichever is less.
const SHORT_PART: u64 = 16;
const SHORT_BYTES: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ALLOWANCE: Allowance = Allowance {
        burst: 1000,
        per_second: 100,
    };

    #[test]
    fn a_session_writes_a_burst_and_then_its_rate() {
        let (account, disk, start) = (Usage::default(), FreeSpace::of(None), Instant::now());
        let write = |after: u64| {
            let now = start + Duration::from_millis(after);
            let mut count = 0;
            while account.admit(ALLOWANCE, &disk, now).is_ok() {
                account.charge(10, &disk);
                count += 1;
            }
            count
        };
        assert_eq!(write(0), 100);
        assert_eq!(write(5), 0);
        assert_eq!(
            write(1000),
            10,
            "a second's rate, and nothing is lost between looks"
        );
        assert_eq!((1..=100).map(|at| write(1000 + at)).sum::<u32>(), 1);
        assert_eq!(write(100_000), 100, "never more than the burst");
    }

    #[test]
    fn a_session_takes_no_more_of_the_last_room_than_it_leaves_to_the_others() {
        let plenty = Allowance {
            burst: u64::MAX,
            per_second: 1,
        };
        let (disk, now) = (FreeSpace::of(None), Instant::now());
        let (greedy, modest) = (Usage::default(), Usage::default());
        let mut free = 10_000;
        let size = 16_000;
        let fill = |account: &Usage, free: &mut u64| {
            let mut count = 0;
            while *free >= 10 && account.admit(plenty, &disk, now).is_ok() {
                account.charge(10, &disk);
                *free -= 10;
                disk.saw(*free, size);
                count += 1;
            }
            count
        };
        disk.saw(free, size);
        // Nine tenths are free for all. Of the last thousand bytes, a session gets no more than it
        // leaves.
        assert_eq!(fill(&greedy, &mut free), 900 + 51);
        assert_eq!(free, 490);
        assert_eq!(fill(&modest, &mut free), 25);
        assert!(greedy.admit(plenty, &disk, now).is_err());
        disk.saw(10_000, size);
        assert!(
            greedy.admit(plenty, &disk, now).is_ok(),
            "there is room again"
        );
        disk.saw(900, size);
        assert!(
            greedy.admit(plenty, &disk, now).is_ok(),
            "another shortage is shared anew"
        );
    }
}
