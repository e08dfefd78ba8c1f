//! What every handle of a log shares, and the thread that brings it to the disk.
//!
//! The thread is there so that no exchange waits for a sync but by choice.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use serde::Deserialize;
use tokio::sync::watch;

use super::error::Error;
use super::lasting::Lasting;
use super::share::{Allowance, FreeSpace};
use super::writer::Writer;

/// When records reach the disk itself. A crash of the process loses none in either case.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// In the background, one second after the first record that waits for it.
    #[default]
    Batch,
    /// Before each answer, many answers to one sync.
    Always,
}

pub(super) struct Shared {
    pub(super) writer: Mutex<Writer>,
    /// Bytes that are promised to exchanges under way.
    pub(super) promised: AtomicU64,
    /// What may be promised in all without a look at the writer, whose lock is held while it
    /// writes.
    pub(super) room: AtomicU64,
    pub(super) wake: Condvar,
    pub(super) lasting: watch::Sender<Lasting>,
    pub(super) sync: Durability,
    pub(super) allowance: Allowance,
    pub(super) disk: FreeSpace,
}

impl Shared {
    /// Takes the lock; a thread that panicked under it left a chain that is whole, or torn and
    /// known to be.
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

    /// To be called before the lock goes, after whatever changed the writer.
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

/// Syncs whatever was written, until the log closes.
///
/// With [`Durability::Always`] one round takes all the records that were written during the round
/// before it.
pub(super) fn keep_synced(shared: &Shared) {
    let mut writer = shared.lock();
    loop {
        while !writer.dirty && !writer.closing && !writer.unsynced {
            shared.wake.wait(&mut writer);
        }
        if shared.sync == Durability::Batch || writer.unsynced {
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
