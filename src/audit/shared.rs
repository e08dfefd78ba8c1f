//! The state that all handles of a log share, and the thread that syncs it to the disk.
//!
//! Because of this thread, an exchange waits for a sync only if configured to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use serde::Deserialize;
use tokio::sync::watch;

use super::error::Error;
use super::lasting::Lasting;
use super::share::{Allowance, FreeSpace};
use super::writer::Writer;

/// When records reach the disk. With either choice, a crash of the process loses none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// In the background, one second after the first unsynced record.
    #[default]
    Batch,
    /// Before each answer; one sync covers many answers.
    Always,
}

/// What the log promises about records, which may change while it is open.
pub(super) struct Promise {
    pub(super) sync: Durability,
    pub(super) allowance: Allowance,
}

pub(super) struct Shared {
    pub(super) writer: Mutex<Writer>,
    /// Bytes promised to exchanges in progress.
    pub(super) promised: AtomicU64,
    /// How much may be promised in total without locking the writer, whose lock is held during
    /// writes.
    pub(super) room: AtomicU64,
    pub(super) wake: Condvar,
    pub(super) lasting: watch::Sender<Lasting>,
    pub(super) promise: RwLock<Promise>,
    pub(super) disk: FreeSpace,
}

impl Shared {
    /// Takes the lock. If a thread panicked while holding it, the chain is either whole or known to
    /// be torn.
    pub(super) fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }

    pub(super) fn append(&self, record: &[u8]) -> Result<u64, Error> {
        let mut writer = self.lock();
        let done = writer.append(record);
        self.tell_room(&writer);
        let seq = done?;
        self.mark(&mut writer);
        Ok(seq)
    }

    pub(super) fn append_own(&self, kind: &'static str) -> Result<u64, Error> {
        let mut writer = self.lock();
        let done = writer.append_own(kind);
        self.tell_room(&writer);
        let seq = done?;
        self.mark(&mut writer);
        Ok(seq)
    }

    /// Publishes the room. Call it after every change to the writer, before the lock is released.
    pub(super) fn tell_room(&self, writer: &Writer) {
        self.room.store(writer.room(), Ordering::SeqCst);
    }

    fn mark(&self, writer: &mut Writer) {
        if !writer.dirty {
            writer.dirty = true;
            self.wake.notify_one();
        }
    }
}

/// Syncs what was written, until the log closes.
///
/// With [`Durability::Always`], each round covers all records written during the round before.
pub(super) fn keep_synced(shared: &Shared) {
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
        // After a turn, the answer is about the previous file.
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

/// The longest time a written record waits for its sync to begin.
const INTERVAL: Duration = Duration::from_secs(1);
