//! The logs in a folder: which are in use, what they take, and the removal of closed ones.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, unlinkat};

use super::error::Error;
use super::file::{give_back, siblings};
use super::private::{is_at, lock, opening, options, private_directory};

/// One log of a folder, with the files that it was rotated into.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredLog {
    /// The log's own file.
    pub path: PathBuf,
    /// All its files, oldest first; the last is its own.
    pub files: Vec<PathBuf>,
    /// What they take on the disk, in bytes.
    pub bytes: u64,
    /// When it was last written.
    pub written: SystemTime,
    /// Whether a process writes it now.
    pub live: bool,
}

/// What is kept of a folder's logs. Everything that is not limited is kept.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Keep {
    /// Logs that were written within this time.
    pub within: Option<Duration>,
    /// The newest logs that take this many bytes together.
    pub bytes: Option<u64>,
    /// This many of the newest logs.
    pub logs: Option<usize>,
}

/// What a removal did.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Pruned {
    /// The logs that were removed, or would be, the newest first.
    pub removed: Vec<StoredLog>,
    /// Bytes of the kept logs that a crash had left reserved, and that were given back.
    pub given_back: u64,
    /// Logs that could not be removed, with the reason.
    pub failed: Vec<(PathBuf, String)>,
}

/// Lists the logs of a folder, the newest first: regular files of this user named `*.jsonl`.
///
/// # Errors
/// [`Error::Exposed`] if others can reach the folder, [`Error::Open`] if it cannot be read.
pub fn stored(folder: &Path) -> Result<Vec<StoredLog>, Error> {
    let mut logs = Vec::new();
    if !folder.exists() {
        return Ok(logs);
    }
    private_directory(folder)?;
    for entry in fs::read_dir(folder).map_err(opening(folder))? {
        let path = entry.map_err(opening(folder))?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if !name.starts_with(b".") && name.ends_with(b".jsonl") {
            logs.extend(look(&path));
        }
    }
    logs.sort_by_key(|log| std::cmp::Reverse(log.written));
    Ok(logs)
}

/// Removes the closed logs of a folder that need not be kept, each as a whole. With `dry`, removes
/// nothing.
///
/// A log that is being written is never removed, and no link is followed.
///
/// # Errors
/// As [`stored`].
pub fn prune(folder: &Path, keep: Keep, dry: bool) -> Result<Pruned, Error> {
    let mut pruned = Pruned::default();
    let logs = stored(folder)?;
    if logs.is_empty() {
        return Ok(pruned);
    }
    let directory = private_directory(folder)?;
    let (mut bytes, now) = (0, SystemTime::now());
    for (place, log) in logs.into_iter().enumerate() {
        bytes += log.bytes;
        let age = now.duration_since(log.written).unwrap_or_default();
        let is_kept = keep.within.is_none_or(|within| age <= within)
            && keep.bytes.is_none_or(|most| bytes <= most)
            && keep.logs.is_none_or(|most| place < most);
        if log.live || dry && is_kept {
            continue;
        }
        if let Err(cause) = pruned.take(&directory, &log, is_kept, dry) {
            pruned.failed.push((log.path, cause.to_string()));
        }
    }
    Ok(pruned)
}

impl Pruned {
    /// Removes a closed log, or mends one that is kept.
    fn take(
        &mut self,
        directory: &File,
        log: &StoredLog,
        is_kept: bool,
        dry: bool,
    ) -> io::Result<()> {
        if is_kept {
            self.given_back += mend(directory, log)?;
        } else if dry || remove(directory, log)? {
            self.removed.push(log.clone());
        }
        Ok(())
    }
}

/// Describes a log. A file that cannot be opened, is no regular file, or belongs to somebody else
/// is none.
fn look(path: &Path) -> Option<StoredLog> {
    let (file, about) = own_file(path).ok()?;
    let live = lock(&file).is_err();
    let mut files = siblings(path).ok()?;
    let older: Vec<Metadata> = files.iter().filter_map(|file| regular(file)).collect();
    files.push(path.to_owned());
    let all = || older.iter().chain([&about]);
    Some(StoredLog {
        path: path.to_owned(),
        files,
        bytes: all().map(|about| about.blocks() * BLOCK).sum(),
        written: all().filter_map(|about| about.modified().ok()).max()?,
        live,
    })
}

fn own_file(path: &Path) -> io::Result<(File, Metadata)> {
    let file = options().open(path)?;
    let about = file.metadata()?;
    if about.is_file() && about.uid() == rustix::process::geteuid().as_raw() {
        Ok((file, about))
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

fn regular(path: &Path) -> Option<Metadata> {
    let about = fs::symlink_metadata(path).ok()?;
    about.is_file().then_some(about)
}

/// Takes the lock of a closed log; `None` if it is in use or gone by now.
fn close_off(log: &StoredLog) -> io::Result<Option<File>> {
    let (file, _) = own_file(&log.path)?;
    Ok((lock(&file).is_ok() && is_at(&file, &log.path)).then_some(file))
}

/// Removes a log, its oldest file first, so that what a crash leaves is still found as this log.
fn remove(directory: &File, log: &StoredLog) -> io::Result<bool> {
    let Some(_held) = close_off(log)? else {
        return Ok(false);
    };
    // What an earlier version locked.
    let _ = unlinkat(directory, lock_name(&log.path), AtFlags::empty());
    for file in &log.files {
        let name = file.file_name().unwrap_or_default();
        unlinkat(directory, name, AtFlags::empty())?;
    }
    Ok(true)
}

/// Gives back what a crash left reserved behind a log's end. Its age stays.
fn mend(directory: &File, log: &StoredLog) -> io::Result<u64> {
    let about = fs::symlink_metadata(&log.path)?;
    let reserved = (about.blocks() * BLOCK).saturating_sub(about.len() + SLACK);
    if reserved == 0 && fs::symlink_metadata(log.path.with_file_name(lock_name(&log.path))).is_err()
    {
        return Ok(0);
    }
    let Some(file) = close_off(log)? else {
        return Ok(0);
    };
    let _ = unlinkat(directory, lock_name(&log.path), AtFlags::empty());
    if reserved > 0 {
        give_back(&file)?;
        file.set_modified(about.modified()?)?;
    }
    let now = file.metadata()?.blocks();
    Ok((about.blocks().saturating_sub(now)) * BLOCK)
}

/// The name of the lock that earlier versions left beside a log.
fn lock_name(path: &Path) -> OsString {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or(OsStr::new("")));
    name.push(".lock");
    name
}

/// The unit of `st_blocks`.
const BLOCK: u64 = 512;
/// What a file system may keep beyond a file's length without a reservation.
const SLACK: u64 = 64 << 10;
