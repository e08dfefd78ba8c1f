//! Where sealed lines go: what the writer asks of a file, and of the memory that tests read.

use std::io::{self, Write};
use std::sync::Arc;

use super::error::Error;

/// Takes sealed lines, in order, from one writer.
pub(super) trait Sink: Send {
    /// Appends all the bytes.
    fn append(&mut self, bytes: &[u8]) -> Result<(), Short>;

    /// Where the next byte will stand.
    fn position(&self) -> u64;

    /// Makes sure that so many further bytes find room.
    fn reserve(&mut self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// How many further bytes surely find room as things are; nothing where that is known only by
    /// [`Sink::reserve`].
    fn room(&self) -> u64 {
        0
    }

    /// Whether the next record belongs in a new file.
    fn is_due(&self) -> bool {
        false
    }

    /// Begins a new file for the record `seq`; where that fails, the old one goes on.
    ///
    /// `moved` says that the file was taken away from its path by somebody else.
    fn turn(&mut self, _seq: u64, _moved: bool) -> Result<(), Error> {
        Ok(())
    }

    /// What must be synced for everything appended so far to last, in order.
    fn durable(&mut self) -> Vec<Arc<dyn Durable>>;
}

/// A thing that can be brought to the disk from another thread.
pub(super) trait Durable: Send + Sync {
    /// Returns once what was written before the call survives a loss of power.
    fn sync(&self) -> io::Result<()>;

    /// Whether somebody took the file away from its path.
    fn is_moved(&self) -> bool {
        false
    }
}

/// A write that did not take everything.
pub(super) struct Short {
    /// How many bytes went in before it failed.
    pub(super) written: usize,
    pub(super) cause: io::Error,
}

/// Writes all the bytes, and counts where it fails.
pub(super) fn write_counted(mut out: impl Write, bytes: &[u8]) -> Result<(), Short> {
    let mut written = 0;
    while written < bytes.len() {
        match out.write(&bytes[written..]) {
            Ok(0) => {
                return Err(Short {
                    written,
                    cause: io::ErrorKind::WriteZero.into(),
                });
            }
            Ok(taken) => written += taken,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(Short { written, cause }),
        }
    }
    Ok(())
}
