//! Leave to use folders whose owner has none: the command can take it away in the owner's name, and
//! whoever runs git later gives it back.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, CWD, Mode, OFlags, ResolveFlags};

/// Leave that ends when this is dropped.
pub struct Leave {
    of: OwnedFd,
    mode: Mode,
}

impl Leave {
    /// Gives leave to enter a folder and those around it, as far as this user can.
    pub fn to_enter(folder: &Path) -> Vec<Self> {
        let way: Vec<&Path> = folder.ancestors().collect();
        let lacks = |one: &Path| rustix::fs::access(one, Access::EXEC_OK).is_err();
        let closed = way.into_iter().rev().filter(|one| lacks(one));
        closed
            .filter_map(|one| Self::give(one, Mode::XUSR))
            .collect()
    }

    /// Gives leave to list a folder.
    pub fn to_list(folder: &Path) -> Option<Self> {
        Self::give(folder, Mode::RUSR | Mode::XUSR)
    }

    fn give(folder: &Path, more: Mode) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let no_link = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let folder = rustix::fs::openat2(CWD, folder, flags, Mode::empty(), no_link).ok()?;
        Self::on(&folder, more)
    }

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
