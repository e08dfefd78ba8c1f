//! Temporary permission for folders whose owner has none: the command can remove it as the owner,
//! and a later user of git would restore it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::Mode;

/// Permission that ends when this is dropped.
pub struct TemporaryMode {
    of: OwnedFd,
    mode: Mode,
}

impl TemporaryMode {
    /// Adds permission for an open folder. `None` if its owner has it, or this user cannot add it.
    pub fn on(folder: &OwnedFd, more: Mode) -> Option<Self> {
        let mode = Mode::from_raw_mode(rustix::fs::fstat(folder).ok()?.st_mode & 0o7777);
        let of = folder.try_clone().ok()?;
        // Only the owner may change the mode.
        let given = !mode.contains(more) && rustix::fs::chmod(path_of(&of), mode | more).is_ok();
        given.then(|| Self { of, mode })
    }
}

impl Drop for TemporaryMode {
    fn drop(&mut self) {
        let _ = rustix::fs::chmod(path_of(&self.of), self.mode);
    }
}

/// The kernel does not change a mode through such a descriptor directly.
fn path_of(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
