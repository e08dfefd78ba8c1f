//! Brings the log to the disk from a thread of its own, so that no exchange waits for a sync but by
//! choice.

use std::time::Duration;

use super::log::{Shared, Sync};

/// How far the log survives a loss of power.
#[derive(Clone, Copy, Default)]
pub(super) struct Lasting {
    /// The first record that no sync has kept.
    until: u64,
    /// The records that a failed sync was to keep: a later one that succeeds does not vouch for
    /// them.
    failed: (u64, u64),
}

impl Lasting {
    /// Whether the record lasts; `None` while nobody knows.
    pub(super) fn of(&self, seq: u64) -> Option<bool> {
        let failed = (self.failed.0..self.failed.1).contains(&seq);
        if failed {
            Some(false)
        } else {
            (seq < self.until).then_some(true)
        }
    }

    fn synced(&mut self, until: u64, well: bool) {
        if well {
            self.until = until;
        } else {
            let from = if self.failed.1 > self.until {
                self.failed.0
            } else {
                self.until
            };
            self.failed = (from, until);
        }
    }
}

/// Syncs whatever was written, until the log closes.
///
/// With [`Sync::Always`] one round takes all the records that were written during the round before
/// it.
pub(super) fn keep_synced(shared: &Shared) {
    let mut writer = shared.lock();
    loop {
        while !writer.dirty && !writer.closing && !writer.unsynced {
            shared.wake.wait(&mut writer);
        }
        if shared.sync == Sync::Batch || writer.unsynced {
            shared
                .wake
                .wait_while_for(&mut writer, |writer| !writer.closing, INTERVAL);
        }
        let closing = writer.closing;
        let until = writer.head().map_or(0, |head| head.seq() + 1);
        let turns = writer.turns;
        let files = writer.sink.durable();
        writer.dirty = false;
        drop(writer);
        let well = files.iter().all(|file| file.sync().is_ok());
        shared.disk.look();
        let moved = files.last().is_some_and(|file| file.is_moved());
        writer = shared.lock();
        writer.synced(well);
        // After a turn the question was about the file before.
        writer.moved |= moved && writer.turns == turns;
        shared.tell_room(&writer);
        shared
            .lasting
            .send_modify(|lasting| lasting.synced(until, well));
        if closing {
            return;
        }
    }
}

/// The longest time that a written record waits for its sync to begin.
const INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_that_succeeds_does_not_vouch_for_what_one_before_it_failed_to_keep() {
        let mut lasting = Lasting::default();
        lasting.synced(3, true);
        lasting.synced(5, false);
        lasting.synced(6, false);
        lasting.synced(9, true);
        let told: Vec<_> = (0..10).map(|seq| lasting.of(seq)).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(told, [yes, yes, yes, no, no, no, yes, yes, yes, None]);
    }
}
