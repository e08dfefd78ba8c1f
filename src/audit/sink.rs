//! The destination of sealed lines: a file, or the memory of a test.

use std::io::{self, Write};
use std::sync::Arc;

use super::error::Error;

/// Accepts sealed lines, in order, from one writer.
pub(super) trait Sink: Send {
    /// Appends all the bytes.
    fn append(&mut self, bytes: &[u8]) -> Result<(), ShortWrite>;

    /// The offset of the next byte.
    fn position(&self) -> u64;

    /// Ensures that this many further bytes will fit.
    fn reserve(&mut self, bytes: u64) -> io::Result<()>;

    /// How many further bytes are certain to fit now; 0 if only [`Sink::reserve`] can tell.
    fn room(&self) -> u64;

    /// Whether the next record belongs in a new file.
    fn is_due(&self) -> bool;

    /// Whether a file that somebody else took away is still away.
    fn is_away(&self) -> bool;

    /// Begins a new file for the record `seq`. If that fails, the old file stays in use.
    ///
    /// `moved` means that somebody else took the file away from its path.
    fn turn(&mut self, seq: u64, moved: bool) -> Result<(), Error>;

    /// Begins new files at this size from now on.
    fn rotate_at(&mut self, bytes: u64);

    /// The files and folders to sync, in order, to make everything appended so far durable.
    fn durable(&mut self) -> Vec<Arc<dyn SyncTarget>>;

    /// Gives back the space that was reserved and not used, and the lock. Nothing is appended
    /// afterwards.
    fn release(&self) {}
}

/// Something that another thread can sync to the disk.
pub(super) trait SyncTarget: Send + Sync {
    /// Returns once everything written before the call survives a power loss.
    fn sync(&self) -> io::Result<()>;

    /// Whether somebody took the file away from its path.
    fn is_moved(&self) -> bool;
}

/// A write that stopped partway.
pub(super) struct ShortWrite {
    /// How many bytes were written before the failure.
    pub(super) written: usize,
    pub(super) cause: io::Error,
}

/// Writes all the bytes. On failure, reports how many were written.
pub(super) fn write_counted(mut out: impl Write, bytes: &[u8]) -> Result<(), ShortWrite> {
    let mut written = 0;
    while written < bytes.len() {
        match out.write(&bytes[written..]) {
            Ok(0) => {
                return Err(ShortWrite {
                    written,
                    cause: io::ErrorKind::WriteZero.into(),
                });
            }
            Ok(taken) => written += taken,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(ShortWrite { written, cause }),
        }
    }
    Ok(())
}
