//! The logs in a folder: which are in use, their sizes, and the removal of closed ones.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, unlinkat};

use super::error::Error;
use super::file::{give_back, siblings_of};
use super::private::{is_at, is_ours, lock, opening, options, private_directory};

/// One log of a folder, with the files that it was rotated into.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredLog {
    /// The log's own file.
    pub path: PathBuf,
    /// All files of the log, oldest first; the last is `path`.
    pub files: Vec<PathBuf>,
    /// The bytes that the files take on the disk.
    pub bytes: u64,
    /// When it was last written.
    pub written: SystemTime,
    /// Whether a process writes it now.
    pub live: bool,
}

/// The limits within which a folder's logs are kept. Without a limit, all are kept.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Retention {
    /// Logs that were written within this time.
    pub within: Option<Duration>,
    /// The newest logs that take this many bytes together.
    pub bytes: Option<u64>,
    /// This many of the newest logs.
    pub logs: Option<usize>,
}

/// The outcome of a removal.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PruneReport {
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
    stored_but(folder, |_| false)
}

/// Lists the logs except those whose path is `left_out`.
fn stored_but(folder: &Path, left_out: impl Fn(&Path) -> bool) -> Result<Vec<StoredLog>, Error> {
    let mut logs = Vec::new();
    if !folder.exists() {
        return Ok(logs);
    }
    private_directory(folder)?;
    let entries = fs::read_dir(folder).map_err(opening(folder))?;
    let names = entries.map(|entry| Ok(entry?.file_name()));
    let names: BTreeSet<OsString> = names.collect::<io::Result<_>>().map_err(opening(folder))?;
    for name in &names {
        let text = name.as_encoded_bytes();
        let path = folder.join(name);
        if !text.starts_with(b".") && text.ends_with(b".jsonl") && !left_out(&path) {
            logs.extend(look(&path, &names));
        }
    }
    logs.sort_by_key(|log| std::cmp::Reverse(log.written));
    Ok(logs)
}

/// Removes the closed logs of a folder that need not be kept, each as a whole. With `dry`, removes
/// nothing.
///
/// Never removes a log that is being written, nor one that a person named: only logs with a name
/// that a session chose. No link is followed.
///
/// # Errors
/// As [`stored`].
pub fn prune(folder: &Path, keep: Retention, dry: bool) -> Result<PruneReport, Error> {
    let mut pruned = PruneReport::default();
    let (mut bytes, now) = (0, SystemTime::now());
    let logs = stored_but(folder, |path| keep.keeps_as_it_is(path, now))?;
    if logs.is_empty() {
        return Ok(pruned);
    }
    let directory = private_directory(folder)?;
    let (own, named): (Vec<_>, Vec<_>) =
        logs.into_iter().partition(|log| is_of_a_session(&log.path));
    let named = named.into_iter().map(|log| (0, log));
    for (place, log) in own.into_iter().enumerate().chain(named) {
        bytes += log.bytes;
        let age = now.duration_since(log.written).unwrap_or_default();
        let is_kept = !is_of_a_session(&log.path)
            || keep.within.is_none_or(|within| age <= within)
                && keep.bytes.is_none_or(|most| bytes <= most)
                && keep.logs.is_none_or(|most| place < most);
        if log.live || dry && is_kept {
            continue;
        }
        let done = if is_kept {
            mend(&log).map(|bytes| pruned.given_back += bytes)
        } else {
            let gone = if dry {
                Ok(true)
            } else {
                remove(&directory, &log)
            };
            gone.map(|is_gone| pruned.removed.extend(is_gone.then(|| log.clone())))
        };
        if let Err(cause) = done {
            pruned.failed.push((log.path, cause.to_string()));
        }
    }
    Ok(pruned)
}

impl Retention {
    /// Whether a log needs neither removal nor repair. Does not open it: there are many logs, and
    /// each `exec` checks all.
    fn keeps_as_it_is(self, path: &Path, now: SystemTime) -> bool {
        let is_recent = |about: &Metadata| {
            let written = about.modified().ok();
            let age = written.and_then(|written| now.duration_since(written).ok());
            self.within
                .is_none_or(|within| age.is_some_and(|age| age <= within))
        };
        self.bytes.is_none()
            && self.logs.is_none()
            && regular(path).is_some_and(|about| is_recent(&about) && reserved(&about) == 0)
    }
}

/// Whether a log has the name that a session gives its own: `20261122T213329-4711.jsonl`.
fn is_of_a_session(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let parts = name
        .strip_suffix(".jsonl")
        .and_then(|name| name.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    parts.is_some_and(|(time, process)| {
        let time = time.split_once('T');
        is_number(process) && time.is_some_and(|(day, time)| is_number(day) && is_number(time))
    })
}

/// Describes a log. `None` for a file that cannot be opened, is not regular, or belongs to another
/// user.
fn look(path: &Path, names: &BTreeSet<OsString>) -> Option<StoredLog> {
    let (file, about) = own_file(path).ok()?;
    let mut files = siblings_of(path, names);
    // An empty file next to full ones is a log during its rotation.
    let turns = about.len() == 0 && !files.is_empty();
    let live = turns || lock(&file).is_err();
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

/// Whether a process of this user writes the log now.
pub fn is_live(path: &Path) -> bool {
    let is_held = |(file, _): (File, Metadata)| lock(&file).is_err();
    own_file(path).is_ok_and(is_held)
}

fn own_file(path: &Path) -> io::Result<(File, Metadata)> {
    let file = options().open(path)?;
    let about = file.metadata()?;
    if about.is_file() && is_ours(&about) {
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
    let is_closed = lock(&file).is_ok() && is_at(&file, &log.path)?;
    Ok(is_closed.then_some(file))
}

/// Removes a log, its oldest file first, so that files that a crash leaves still belong to it.
fn remove(directory: &File, log: &StoredLog) -> io::Result<bool> {
    let Some(_held) = close_off(log)? else {
        return Ok(false);
    };
    for file in &log.files {
        let name = file.file_name().unwrap_or_default();
        unlinkat(directory, name, AtFlags::empty())?;
    }
    Ok(true)
}

/// Frees the space that a crash left reserved after a log's end. Keeps its modification time.
fn mend(log: &StoredLog) -> io::Result<u64> {
    let about = fs::symlink_metadata(&log.path)?;
    if reserved(&about) == 0 {
        return Ok(0);
    }
    let Some(file) = close_off(log)? else {
        return Ok(0);
    };
    give_back(&file)?;
    file.set_modified(about.modified()?)?;
    let now = file.metadata()?.blocks();
    Ok((about.blocks().saturating_sub(now)) * BLOCK)
}

/// How many bytes are reserved after the end of a file.
fn reserved(about: &Metadata) -> u64 {
    (about.blocks() * BLOCK).saturating_sub(about.len() + SLACK)
}

/// The unit of `st_blocks`.
const BLOCK: u64 = 512;
/// The bytes that a file system may keep beyond a file's length without a reservation.
const SLACK: u64 = 64 << 10;
