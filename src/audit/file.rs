//! The log's file: its earlier content, its reserved space and its rotation.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::chain::MAX_LINE_BYTES;
use super::error::Error;
use super::private::{is_at, lock, lock_at, opening, options, private_directory, private_file};
use super::scan::{Scan, scan};
use super::sink::{ShortWrite, Sink, SyncTarget, write_counted};

/// The file that the log appends to. A lock on it keeps other processes out, and shows them that
/// the log is in use.
pub(super) struct LogFile {
    path: PathBuf,
    file: Arc<File>,
    directory: Arc<File>,
    retired: Vec<Arc<dyn SyncTarget>>,
    position: u64,
    first_seq: u64,
    rotate_bytes: u64,
    due_at: u64,
    reserved_to: u64,
    reserves: bool,
}

impl LogFile {
    /// Opens or creates the log, and finds the end of its chain. If the last value is true, the end
    /// is in an older file, and the current one is empty.
    ///
    /// # Errors
    /// [`Error::Exposed`] if other users can reach it, [`Error::Locked`] if another process uses
    /// it, [`Error::Foreign`] if the file is not a log, [`Error::Open`] otherwise.
    pub(super) fn open(path: &Path, rotate_bytes: u64) -> Result<(Self, (Scan, bool)), Error> {
        let directory = private_directory(folder_of(path))?;
        let (file, found, ended_elsewhere) = find_end(path)?;
        if found.head.is_none()
            && found.torn.is_some()
            && !is_torn_beginning(&file, found.len).map_err(opening(path))?
        {
            return Err(Error::Foreign {
                path: path.to_owned(),
            });
        }
        let log = Self {
            path: path.to_owned(),
            file: Arc::new(file),
            directory: Arc::new(directory),
            retired: Vec::new(),
            position: found.len,
            first_seq: found.first_seq.unwrap_or(0),
            rotate_bytes,
            due_at: rotate_bytes,
            reserved_to: 0,
            reserves: true,
        };
        Ok((log, (found, ended_elsewhere)))
    }

    /// The log's folder.
    pub(super) fn directory(&self) -> Arc<File> {
        Arc::clone(&self.directory)
    }

    fn current(&self) -> Arc<dyn SyncTarget> {
        Arc::new(OnDisk {
            file: Arc::clone(&self.file),
            path: self.path.clone(),
        })
    }

    /// Renames the full file after its first record and creates the next file; on failure, changes
    /// nothing.
    fn replace_full(&self) -> io::Result<File> {
        let older = with_suffix(&self.path, self.first_seq);
        if fs::symlink_metadata(&older).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::rename(&self.path, &older)?;
        let made = options().create_new(true).open(&self.path);
        // Another process may have locked the new file meanwhile. It lets go as soon as it has seen
        // the lock on the previous file.
        let made = made.and_then(|made| lock(&made).map(|()| made));
        if made.is_err() {
            fs::rename(older, &self.path)?;
        }
        made
    }

    /// Creates a new file after ours was taken away. Accepts an empty file that was put in its
    /// place.
    fn replace_moved(&self) -> Result<File, Error> {
        let made = lock_at(&self.path)?;
        if made.metadata().map_err(opening(&self.path))?.len() > 0 {
            return Err(Error::Foreign {
                path: self.path.clone(),
            });
        }
        Ok(made)
    }
}

/// Gives back the space after a file's end. Only for the holder of its lock.
pub(super) fn give_back(file: &File) -> io::Result<()> {
    // Truncating a file to its length frees only the space reserved after it.
    file.set_len(file.metadata()?.len())
}

impl Sink for LogFile {
    fn append(&mut self, bytes: &[u8]) -> Result<(), ShortWrite> {
        let done = write_counted(&*self.file, bytes);
        self.position += done
            .as_ref()
            .map_or_else(|short| short.written, |()| bytes.len()) as u64;
        done
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let needed = self.position + bytes;
        if !self.reserves || needed <= self.reserved_to {
            return Ok(());
        }
        let ahead = |more: u64| {
            fallocate(
                &*self.file,
                FallocateFlags::KEEP_SIZE,
                self.position,
                bytes + more,
            )
        };
        match ahead(RESERVE_BYTES) {
            Ok(()) => self.reserved_to = needed + RESERVE_BYTES,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.reserves = false,
            Err(_) => {
                ahead(0)?;
                self.reserved_to = needed;
            }
        }
        Ok(())
    }

    fn room(&self) -> u64 {
        if self.reserves {
            self.reserved_to.saturating_sub(self.position)
        } else {
            u64::MAX
        }
    }

    fn is_due(&self) -> bool {
        self.position >= self.due_at
    }

    fn rotate_at(&mut self, bytes: u64) {
        self.rotate_bytes = bytes;
        self.due_at = bytes;
    }

    fn is_away(&self) -> bool {
        self.current().is_moved()
    }

    fn turn(&mut self, seq: u64, moved: bool) -> Result<(), Error> {
        // After a failure, wait for another `rotate_bytes` instead of retrying at each record.
        self.due_at = self.position + self.rotate_bytes;
        let made = if moved {
            self.replace_moved()?
        } else {
            self.replace_full().map_err(opening(&self.path))?
        };
        self.release();
        self.retired.push(self.current());
        self.retired
            .push(Arc::new(Directory(Arc::clone(&self.directory))));
        self.file = Arc::new(made);
        (self.position, self.first_seq, self.due_at, self.reserved_to) =
            (0, seq, self.rotate_bytes, 0);
        Ok(())
    }

    fn durable(&mut self) -> Vec<Arc<dyn SyncTarget>> {
        let current = self.current();
        self.retired.drain(..).chain([current]).collect()
    }

    fn release(&self) {
        // If the space cannot be given back (`chattr +a`), `gateway log prune` does it later.
        let _ = give_back(&self.file);
        // Closing the file is not enough: a child that was forked but has not yet called exec would
        // keep the lock.
        let _ = self.file.unlock();
    }
}

struct OnDisk {
    file: Arc<File>,
    path: PathBuf,
}

impl SyncTarget for OnDisk {
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn is_moved(&self) -> bool {
        is_at(&self.file, &self.path).is_ok_and(|is_there| !is_there)
    }
}

/// A directory. Its entries must survive a power loss as well as the files they name.
struct Directory(Arc<File>);

impl SyncTarget for Directory {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn is_moved(&self) -> bool {
        false
    }
}

/// Opens the file and finds the end of its chain.
///
/// An empty file continues the newest full one; the last value is then true.
fn find_end(path: &Path) -> Result<(File, Scan, bool), Error> {
    let file = lock_at(path)?;
    let found = scan(&file).map_err(opening(path))?;
    let older = match found.len {
        0 => siblings(path).map_err(opening(path))?.pop(),
        _ => None,
    };
    let Some(older) = older else {
        return Ok((file, found, false));
    };
    let full = private_file(&older)?;
    // If that is locked, its writer is rotating.
    lock(&full).map_err(|_| Error::Locked {
        path: path.to_owned(),
    })?;
    let before = scan(&full).map_err(opening(&older))?;
    if before.torn.is_some() {
        // The power failed during rotation. The older file is not finished yet.
        fs::rename(&older, path).map_err(opening(path))?;
        return Ok((full, before, false));
    }
    let _ = full.unlock();
    let found = Scan {
        len: 0,
        first_seq: before.head.map(|head| head.seq + 1),
        ..before
    };
    Ok((file, found, true))
}

fn with_suffix(path: &Path, first_seq: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{first_seq:020}"));
    PathBuf::from(name)
}

/// Lists the files of the log at `path` in chain order: the full ones first, then the current one.
///
/// # Errors
/// [`Error::Open`] if the directory cannot be read, or there is no file.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = siblings(path).map_err(opening(path))?;
    match fs::symlink_metadata(path) {
        Ok(_) => files.push(path.to_owned()),
        Err(source) if files.is_empty() => return Err(opening(path)(source)),
        Err(_) => {}
    }
    Ok(files)
}

/// The full files of this log, sorted by the number of their first record.
pub(super) fn siblings(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder_of(path))?;
    let names = entries.map(|entry| Ok(entry?.file_name()));
    Ok(siblings_of(path, &names.collect::<io::Result<_>>()?))
}

/// The full files of this log among the names of its folder.
pub(super) fn siblings_of(path: &Path, names: &BTreeSet<OsString>) -> Vec<PathBuf> {
    let name = path.file_name().unwrap_or_default();
    let number = |other: &OsString| {
        let rest = other
            .as_encoded_bytes()
            .strip_prefix(name.as_encoded_bytes());
        let number = rest.and_then(|rest| rest.strip_prefix(b"."));
        number.is_some_and(|number| number.len() == 20 && number.iter().all(u8::is_ascii_digit))
    };
    let begins = |other: &&OsString| {
        let other = other.as_encoded_bytes();
        other.starts_with(name.as_encoded_bytes())
    };
    let names = names.range(name.to_owned()..).take_while(begins);
    let found = names.filter(|other| number(other));
    found.map(|other| path.with_file_name(other)).collect()
}

pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Whether a file without records may hold a first record that was cut short: at most one line,
/// without its end.
fn is_torn_beginning(file: &File, len: u64) -> io::Result<bool> {
    use std::os::unix::fs::FileExt;
    let mut content =
        vec![0; usize::try_from(len).map_or(MAX_LINE_BYTES, |len| len.min(MAX_LINE_BYTES))];
    file.read_exact_at(&mut content, 0)?;
    let expected = b"{\"v\":1,\"seq\":0";
    let mut ours = content.iter().zip(expected);
    let ours = ours.all(|(found, expected)| found == expected);
    Ok(len < MAX_LINE_BYTES as u64
        && (content.iter().all(|&byte| byte == 0) || ours && !content.contains(&b'\n')))
}

/// Space reserved beyond the request, so that the next records need not reserve any.
const RESERVE_BYTES: u64 = 1 << 20;
