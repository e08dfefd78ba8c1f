//! Tracks this user's running sandboxes, so that none removes a placeholder that another's mounts
//! need.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gateway_names::hex;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};

use crate::syscall;

/// What one sandbox covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Where the record is stored.
    folder: OsString,
    name: String,
    projects: Vec<OsString>,
    /// The working directory, if it persists.
    pub working_directory: Option<OsString>,
    /// The second of the system's clock in which it began.
    pub began: i64,
    /// The descriptors of the open, locked projects. They are passed on with the record.
    locks: Vec<RawFd>,
    /// Whether git is guarded.
    pub guard_git: bool,
    /// Whether files that tools run on their own are guarded.
    pub guard_tools: bool,
    /// Files of the gateway that did not exist, and that the command may not make.
    #[serde(default)]
    pub absent: Vec<OsString>,
}

impl Record {
    /// Creates a record that is not stored yet.
    pub fn new(
        projects: &[PathBuf],
        working_directory: Option<&Path>,
        guard_git: bool,
        guard_tools: bool,
    ) -> Self {
        Self {
            folder: OsString::new(),
            name: String::new(),
            projects: projects.iter().map(Into::into).collect(),
            working_directory: working_directory.map(Into::into),
            began: rustix::time::clock_gettime(ClockId::Realtime).tv_sec,
            locks: Vec::new(),
            guard_git,
            guard_tools,
            absent: Vec::new(),
        }
    }

    /// The projects.
    pub fn projects(&self) -> Vec<PathBuf> {
        self.projects.iter().map(PathBuf::from).collect()
    }

    /// Locks the projects. All sandboxes in them share the lock, whoever owns the sandboxes.
    ///
    /// The next program that is started inherits the locks.
    ///
    /// # Errors
    /// `WouldBlock` if another process keeps an exclusive lock for longer than an ending takes.
    pub fn lock_projects(&mut self) -> io::Result<Vec<OwnedFd>> {
        let mut locks = Vec::new();
        for project in self.projects() {
            // A user who may not list a directory removes nothing in it either.
            let Ok(file) = File::open(&project) else {
                continue;
            };
            let until = Instant::now() + PATIENCE;
            while let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
                if error != Errno::WOULDBLOCK || Instant::now() > until {
                    return Err(error.into());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())?;
            self.locks.push(file.as_raw_fd());
            locks.push(file.into());
        }
        Ok(locks)
    }

    /// Takes over the inherited locks.
    pub fn adopt_locks(&self) -> Vec<OwnedFd> {
        let locks = self.locks.iter().filter(|number| **number > 2);
        locks
            .filter_map(|number| syscall::adopt(*number).ok())
            .collect()
    }

    /// Whether no other sandbox has a lock on the projects. None can start in them while `locks`
    /// are open, but where only the dead have locks: there one of another user's can.
    ///
    /// Waits for what this one's command has left: a lock in a message that nobody receives is gone
    /// some milliseconds after the last process.
    pub fn has_locks_alone(&self, locks: &[OwnedFd]) -> bool {
        let alone =
            |lock| rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if locks.len() != self.projects.len() {
            return false;
        }
        let until = Instant::now() + FOR_MESSAGES;
        while !locks.iter().all(alone) {
            if Instant::now() > until {
                return self.only_the_dead_have_locks();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// Whether no living process but this one's launcher has locked the projects. The command may
    /// have left its lock in a message to a program outside.
    fn only_the_dead_have_locks(&self) -> bool {
        let (locks, namespace) = ("/proc/locks", "/proc/self/ns/pid");
        // In a namespace of its own, the kernel shows only some locks.
        let shows_all = fs::read_link(namespace).is_ok_and(|one| one == Path::new(FIRST));
        let locks = fs::read_to_string(locks).unwrap_or_default();
        let own = rustix::process::getppid();
        let is_gone = |holder: &Pid| {
            let found = rustix::process::test_kill_process(*holder);
            Some(*holder) == own || found == Err(Errno::SRCH)
        };
        let projects = self.projects();
        shows_all
            && projects.iter().all(|project| {
                let holders = holders(&locks, project);
                !holders.is_empty() && holders.iter().all(is_gone)
            })
    }

    /// Stores the record where others look for it, and locks it for as long as the file is open
    /// anywhere.
    ///
    /// # Errors
    /// The error of creating or locking the file.
    pub fn enter(mut self, folder: &Path) -> io::Result<OwnedFd> {
        let _whole = lock_folder(folder)?;
        let mut bytes = [0_u8; 8];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        self.name = hex(&bytes);
        self.folder = folder.into();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(folder.join(&self.name))?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        file.write_all(&serde_json::to_vec(&self)?)?;
        Ok(file.into())
    }

    /// Reads the record that [`Record::enter`] wrote; `None` if the file is not one.
    pub fn read(file: impl AsFd) -> Option<Self> {
        let mut content = vec![0; RECORD_BYTES];
        let length = rustix::io::pread(file, &mut content[..], 0).ok()?;
        serde_json::from_slice(&content[..length]).ok()
    }

    /// Ends the record. Meanwhile it calls `last` with whether no other sandbox covers the same
    /// directories, and with the paths that ended ones handed over. `last` returns the paths to
    /// hand over to the others: what their command finds there was made by this one.
    ///
    /// No sandbox starts there before `last` returns.
    pub fn end<T>(&self, last: impl FnOnce(bool, Vec<PathBuf>) -> (T, Vec<PathBuf>)) -> T {
        let folder = Path::new(&self.folder);
        let Ok(_whole) = lock_folder(folder) else {
            return last(false, Vec::new()).0;
        };
        let own = folder.join(&self.name);
        let others = self.others(folder);
        let (done, made) = last(others.as_ref().is_ok_and(Vec::is_empty), handed(&own));
        for other in others.into_iter().flatten() {
            // If it fails, the other one takes what is there for the user's, and tells what
            // changes.
            let _ = hand(&other, &made);
        }
        forget(&own);
        done
    }

    /// Returns the records of running sandboxes that meet this one's directories, or may.
    fn others(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let mut others = Vec::new();
        for entry in fs::read_dir(folder)?.flatten() {
            let path = entry.path();
            if path.ends_with(&self.name) || path.ends_with(LOCK) || path.extension().is_some() {
                continue;
            }
            let Ok(mut file) = OpenOptions::new().read(true).write(true).open(&path) else {
                continue;
            };
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                forget(&path); // Its sandbox was killed.
                continue;
            }
            let mut content = Vec::new();
            file.read_to_end(&mut content)?;
            let other = serde_json::from_slice(&content);
            if other.is_err() || other.is_ok_and(|other: Self| self.meets(&other)) {
                others.push(path);
            }
        }
        Ok(others)
    }

    fn meets(&self, other: &Self) -> bool {
        let theirs = other.projects();
        let meets_any = |own: &PathBuf| {
            let mut theirs = theirs.iter();
            theirs.any(|its| own.starts_with(its) || its.starts_with(own))
        };
        self.projects().iter().any(meets_any)
    }
}

/// Returns the processes that took a lock on a folder, as `/proc/locks` tells them.
fn holders(locks: &str, folder: &Path) -> Vec<Pid> {
    let Ok(inode) = fs::metadata(folder).map(|found| found.ino().to_string()) else {
        return Vec::new();
    };
    let one = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, place, ..] = fields[..] else {
            return None;
        };
        let is_here = place.rsplit(':').next() == Some(&inode);
        Pid::from_raw(process.parse().ok().filter(|_| is_here)?)
    };
    locks.lines().filter_map(one).collect()
}

/// Removes a record. One that stays is removed by the next one that looks.
fn forget(record: &Path) {
    let _ = fs::remove_file(record);
    let _ = fs::remove_file(record.with_extension(HANDED));
}

/// Returns what ended sandboxes handed over to the one of this record.
fn handed(record: &Path) -> Vec<PathBuf> {
    let content = fs::read(record.with_extension(HANDED)).unwrap_or_default();
    let names: Vec<OsString> = serde_json::from_slice(&content).unwrap_or_default();
    names.into_iter().map(PathBuf::from).collect()
}

fn hand(record: &Path, made: &[PathBuf]) -> io::Result<()> {
    let all = handed(record);
    let all: Vec<OsString> = all.iter().chain(made).map(Into::into).collect();
    fs::write(record.with_extension(HANDED), serde_json::to_vec(&all)?)
}

fn lock_folder(folder: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(folder.join(LOCK))?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

const LOCK: &str = "lock";
/// The ending of the name of what was handed over.
const HANDED: &str = "handed";
/// How long a start waits for an ending.
const PATIENCE: Duration = Duration::from_secs(10);
/// The name of the first namespace of processes, in which all have numbers.
const FIRST: &str = "pid:[4026531836]";
/// How long an ending waits for the locks of others, if no record is theirs.
const FOR_MESSAGES: Duration = Duration::from_secs(3);
const RECORD_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(project: &str) -> Record {
        Record::new(&[project.into()], None, true, false)
    }

    #[test]
    fn the_holders_of_a_lock_are_found_by_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let inode = fs::metadata(folder.path()).unwrap().ino();
        let locks = format!(
            "1: FLOCK  ADVISORY  READ 12 fe:00:{inode} 0 EOF\n2: FLOCK  ADVISORY  READ 13 fe:00:1{inode} 0 EOF\n\
             3: POSIX  ADVISORY  READ 14 fe:00:{inode} 0 EOF\n4: -> FLOCK  ADVISORY  WRITE 15 fe:00:{inode} 0 EOF\n\
             5: FLOCK  ADVISORY  READ 16 fe:00:{inode} 0 EOF\n"
        );
        let found = holders(&locks, folder.path());
        let found: Vec<_> = found.into_iter().map(Pid::as_raw_nonzero).collect();
        assert_eq!(
            found.iter().map(|one| one.get()).collect::<Vec<_>>(),
            [12, 16]
        );
    }

    #[test]
    fn a_sandbox_is_alone_when_no_other_is_about_the_same_directories() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let own = record("/srv/app").enter(at).unwrap();
        let own = Record::read(&own).unwrap();
        let elsewhere = record("/srv/other").enter(at).unwrap();
        let above = record("/srv").enter(at).unwrap();
        let alone = || {
            let whole = own.clone();
            whole.others(folder.path()).unwrap().is_empty()
        };
        assert!(!alone());
        drop(above); // As if it had been killed: its record stays, unlocked.
        assert!(alone());
        let within = record("/srv/app/sub").enter(at).unwrap();
        assert!(!alone());
        drop((within, elsewhere));
        assert!(own.end(|alone, _| (alone, Vec::new())));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
