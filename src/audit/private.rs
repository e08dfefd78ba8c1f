//! Opens files that belong to the gateway's user alone, and locks them.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

use super::error::Error;

/// Opens a folder that only the gateway's user can enter. Creates it if it is missing.
pub(super) fn private_directory(path: &Path) -> Result<File, Error> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(opening(path))?;
    let directory = File::open(path).map_err(opening(path))?;
    let found = directory.metadata().map_err(opening(path))?;
    let why = if !found.is_dir() {
        "it is no directory"
    } else if !is_ours(&found) {
        "its directory belongs to another user"
    } else if found.mode() & 0o077 != 0 {
        "its directory is open to other users (chmod 700 it)"
    } else {
        return Ok(directory);
    };
    Err(exposed(path, why))
}

/// Opens a file that only the gateway's user can read or write. Creates it if it is missing.
pub(super) fn private_file(path: &Path) -> Result<File, Error> {
    let file = options().create(true).open(path).map_err(opening(path))?;
    let found = file.metadata().map_err(opening(path))?;
    let why = if !found.is_file() {
        "it is no regular file"
    } else if !is_ours(&found) {
        "it belongs to another user"
    } else if found.mode() & 0o077 != 0 {
        "it is open to other users (chmod 600 it)"
    } else if found.nlink() > 1 {
        "it has a second name"
    } else {
        return Ok(file);
    };
    Err(exposed(path, why))
}

fn exposed(path: &Path, why: &'static str) -> Error {
    let path = path.to_owned();
    Error::Exposed { path, why }
}

pub(super) fn is_ours(about: &Metadata) -> bool {
    about.uid() == rustix::process::geteuid().as_raw()
}

/// Options to read and append. They never follow a symbolic link, and never wait for the other end
/// of a pipe.
pub(super) fn options() -> OpenOptions {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    options
        .read(true)
        .append(true)
        .mode(0o600)
        .custom_flags(flags.bits() as i32);
    options
}

/// Opens a log's file and takes its lock. The file is still the one at `path` then.
///
/// # Errors
/// [`Error::Locked`] if another process uses it, else as [`private_file`].
pub(super) fn lock_at(path: &Path) -> Result<File, Error> {
    // `gateway log prune` briefly holds the lock of each log that it checks.
    for _ in 0..TRIES {
        let file = private_file(path)?;
        match lock(&file) {
            Ok(()) if is_at(&file, path).unwrap_or(false) => return Ok(file),
            Ok(()) => {}
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(PAUSE);
            }
            Err(cause) => return Err(opening(path)(cause)),
        }
    }
    Err(Error::Locked {
        path: path.to_owned(),
    })
}

/// Takes the lock of a file, or fails at once.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if another process has it.
pub(super) fn lock(file: &File) -> io::Result<()> {
    file.try_lock().map_err(|refused| match refused {
        TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        TryLockError::Error(cause) => cause,
    })
}

/// Whether the path names this very file.
///
/// # Errors
/// The I/O error if that cannot be known.
pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(cause),
    }
}

pub(super) fn opening(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    |source| Error::Open {
        path,
        source: source.into(),
    }
}

/// How often the lock is tried for, and how long apart.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(10);
