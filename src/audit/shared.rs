//! The state that all handles of a log share, and the thread that syncs it to the disk.
//!
//! Because of this thread, an exchange waits for a sync only if configured to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use tokio::sync::watch;

use super::share::{Allowance, FreeSpace};
use super::sync_state::SyncState;
use super::writer::Writer;

/// When records reach the disk. With either choice, a crash of the process loses none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Durability {
    /// In the background, one second after the first unsynced record.
    #[default]
    Batch,
    /// Before each answer; one sync covers many answers.
    Always,
}

/// The log's promises about records, which may change while it is open.
pub(super) struct WriteSettings {
    pub(super) sync: Durability,
    pub(super) allowance: Allowance,
}

pub(super) struct LogState {
    pub(super) writer: Mutex<Writer>,
    /// Bytes promised to exchanges in progress.
    pub(super) promised: AtomicU64,
    /// How much may be promised in total without locking the writer, whose lock is held during
    /// writes.
    pub(super) room: AtomicU64,
    pub(super) wake: Condvar,
    /// Held while files are synced.
    pub(super) syncing: Mutex<()>,
    pub(super) lasting: watch::Sender<SyncState>,
    pub(super) promise: RwLock<WriteSettings>,
    pub(super) disk: FreeSpace,
    /// Each exchange that has no record yet holds a clone.
    pub(super) unrecorded: Arc<()>,
}

impl LogState {
    /// Takes the lock. If a thread panicked while holding it, the chain is either whole or known to
    /// be torn.
    pub(super) fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }

    /// Changes the writer, then publishes the change to other threads.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Writer) -> T) -> T {
        let mut writer = self.lock();
        let was_dirty = writer.dirty;
        let done = change(&mut writer);
        self.tell_room(&writer);
        if writer.dirty && !was_dirty {
            self.wake.notify_one();
        }
        done
    }

    /// Publishes the room, before the lock is released.
    fn tell_room(&self, writer: &Writer) {
        self.room.store(writer.room(), Ordering::SeqCst);
    }
}

/// Syncs what was written, until the log closes.
///
/// With [`Durability::Always`], each round covers all records written during the round before.
pub(super) fn keep_synced(shared: &LogState) {
    let mut writer = shared.lock();
    loop {
        while !writer.dirty && !writer.closing && !writer.unsynced {
            shared.wake.wait(&mut writer);
        }
        if shared.promise.read().sync == Durability::Batch || writer.unsynced {
            shared
                .wake
                .wait_while_for(&mut writer, |writer| !writer.closing, INTERVAL);
        }
        if writer.closing {
            return;
        }
        let until = writer.next_seq();
        let turns = writer.turns;
        let files = writer.sink.durable();
        writer.dirty = false;
        let turn = shared.syncing.lock();
        drop(writer);
        let well = files.iter().all(|file| file.sync().is_ok());
        drop(turn);
        shared.disk.look();
        let moved = files.last().is_some_and(|file| file.is_moved());
        writer = shared.lock();
        if writer.closing {
            return;
        }
        writer.synced(well);
        // After a rotation, `moved` is about the previous file.
        writer.moved |= moved && writer.turns == turns;
        shared.tell_room(&writer);
        shared
            .lasting
            .send_modify(|lasting| lasting.synced(until, well));
    }
}

/// The longest time a written record waits for its sync to begin.
const INTERVAL: Duration = Duration::from_secs(1);
