//! A log in memory that tests read, and whose disk they can fill or break.

use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::record::Record;
use super::sink::{Durable, Short, Sink};

/// Shows what a log in memory took, and sets how much more it takes.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Disk>>);

#[derive(Default)]
struct Disk {
    bytes: Vec<u8>,
    room: Option<usize>,
    breaks: bool,
    syncs: u64,
}

impl Memory {
    /// Everything written so far, byte for byte.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.disk().bytes.clone()
    }

    /// The records written so far; what is no record is left out.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let bytes = self.bytes();
        bytes
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }

    /// Leaves room for so many further bytes, or for any number.
    #[cfg(test)]
    pub(super) fn leave_room(&self, bytes: Option<usize>) {
        let mut disk = self.disk();
        disk.room = bytes.map(|more| disk.bytes.len() + more);
    }

    /// Makes every sync fail, or succeed again.
    #[cfg(test)]
    pub(super) fn break_sync(&self, breaks: bool) {
        self.disk().breaks = breaks;
    }

    /// How often the log was synced.
    #[cfg(test)]
    pub(super) fn syncs(&self) -> u64 {
        self.disk().syncs
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock()
    }
}

impl Sink for Memory {
    fn append(&mut self, bytes: &[u8]) -> Result<(), Short> {
        let mut disk = self.disk();
        let room = disk.room.map_or(bytes.len(), |end| {
            end.saturating_sub(disk.bytes.len()).min(bytes.len())
        });
        disk.bytes.extend_from_slice(&bytes[..room]);
        if room < bytes.len() {
            return Err(Short {
                written: room,
                cause: io::ErrorKind::StorageFull.into(),
            });
        }
        Ok(())
    }

    fn position(&self) -> u64 {
        self.disk().bytes.len() as u64
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let disk = self.disk();
        match disk.room {
            Some(end) if disk.bytes.len() as u64 + bytes > end as u64 => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    fn durable(&mut self) -> Vec<Arc<dyn Durable>> {
        vec![Arc::new(self.clone())]
    }
}

impl Durable for Memory {
    fn sync(&self) -> io::Result<()> {
        let mut disk = self.disk();
        disk.syncs += 1;
        if disk.breaks {
            Err(io::Error::other("broken for a test"))
        } else {
            Ok(())
        }
    }
}
