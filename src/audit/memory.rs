//! A log in memory for the tests of this crate, which can read it and make its disk full or broken.

use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::error::Error;
use super::log::Log;
use super::record::Record;
use super::scan::Scan;
use super::share::{Allowance, FreeSpace};
use super::shared::Durability;
use super::sink::{ShortWrite, Sink, SyncTarget};

impl Log {
    /// Creates a log in memory, and a view through which a test reads it.
    pub(super) fn memory(sync: Durability) -> Result<(Self, Memory), Error> {
        let memory = Memory::default();
        let unbounded = Allowance {
            burst: u64::MAX,
            per_second: u64::MAX,
        };
        let log = Self::begin(
            (None, Box::new(memory.clone())),
            (Scan::default(), false),
            sync,
            (unbounded, FreeSpace::of(None)),
        )?;
        Ok((log, memory))
    }
}

/// Shows what a log in memory received, and limits how much more it accepts.
#[derive(Clone, Default)]
pub(super) struct Memory(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    bytes: Vec<u8>,
    room: Option<usize>,
    breaks: bool,
    syncs: u64,
    writes: u64,
}

impl Memory {
    /// Everything written so far, byte for byte.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.contents().bytes.clone()
    }

    /// The records written so far, without the lines that are not records.
    pub(super) fn records(&self) -> Vec<Record> {
        let bytes = self.bytes();
        bytes
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }

    /// Leaves room for this many further bytes; `None` means no limit.
    pub(super) fn leave_room(&self, bytes: Option<usize>) {
        let mut contents = self.contents();
        contents.room = bytes.map(|more| contents.bytes.len() + more);
    }

    /// Makes every sync fail, or succeed again.
    pub(super) fn break_sync(&self, breaks: bool) {
        self.contents().breaks = breaks;
    }

    /// How often the log was synced.
    pub(super) fn syncs(&self) -> u64 {
        self.contents().syncs
    }

    /// How often something was written.
    pub(super) fn writes(&self) -> u64 {
        self.contents().writes
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock()
    }
}

impl Sink for Memory {
    fn append(&mut self, bytes: &[u8]) -> Result<(), ShortWrite> {
        let mut contents = self.contents();
        contents.writes += 1;
        let room = contents.room.map_or(bytes.len(), |end| {
            end.saturating_sub(contents.bytes.len()).min(bytes.len())
        });
        contents.bytes.extend_from_slice(&bytes[..room]);
        if room < bytes.len() {
            return Err(ShortWrite {
                written: room,
                cause: io::ErrorKind::StorageFull.into(),
            });
        }
        Ok(())
    }

    fn position(&self) -> u64 {
        self.contents().bytes.len() as u64
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let contents = self.contents();
        match contents.room {
            Some(end) if contents.bytes.len() as u64 + bytes > end as u64 => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    fn room(&self) -> u64 {
        0
    }

    fn is_due(&self) -> bool {
        false
    }

    fn is_away(&self) -> bool {
        true
    }

    fn turn(&mut self, _seq: u64, _moved: bool) -> Result<(), Error> {
        Ok(())
    }

    fn rotate_at(&mut self, _bytes: u64) {}

    fn durable(&mut self) -> Vec<Arc<dyn SyncTarget>> {
        vec![Arc::new(self.clone())]
    }
}

impl SyncTarget for Memory {
    fn sync(&self) -> io::Result<()> {
        let mut contents = self.contents();
        contents.syncs += 1;
        if contents.breaks {
            Err(io::Error::other("broken for a test"))
        } else {
            Ok(())
        }
    }
    fn is_moved(&self) -> bool {
        false
    }
}
