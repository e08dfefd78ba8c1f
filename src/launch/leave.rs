//! Leave to use folders whose owner has none: the command can take it away in the owner's name, and
//! whoever runs git later gives it back.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::Mode;

/// Leave that ends when this is dropped.
pub struct Leave {
    of: OwnedFd,
    mode: Mode,
}

impl Leave {
    /// Gives leave for an open folder. `None` if its owner has it, or this user cannot give it.
    pub fn on(folder: &OwnedFd, more: Mode) -> Option<Self> {
        let mode = Mode::from_raw_mode(rustix::fs::fstat(folder).ok()?.st_mode & 0o7777);
        let of = folder.try_clone().ok()?;
        // Only the owner may do so.
        let given = !mode.contains(more) && rustix::fs::chmod(path_of(&of), mode | more).is_ok();
        given.then(|| Self { of, mode })
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let _ = rustix::fs::chmod(path_of(&self.of), self.mode);
    }
}

/// The kernel changes no mode by such a descriptor itself.
fn path_of(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
