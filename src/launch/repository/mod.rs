//! Git repositories of the projects. The files that the user's own git reads and obeys outside are
//! read-only to the command, by mounts; new ones are put away while the command runs, and once it
//! has ended.
//!
//! [`Announcement`] begins in the process that the user started; [`RepositoryCheck`] continues in
//! the gateway process, because that outlives a launcher that is killed. If neither could sweep the
//! projects, the next sandbox does: [`recover`].

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

mod aside;
mod check;
mod found;
mod git;
mod guard;
mod outside;
mod record;
mod renewal;
mod sweep;
mod tools;
mod unswept;
mod walk;
mod watch;

pub use check::Found;
pub use found::find;
pub use outside::outside;
pub use record::Repositories;
pub use renewal::Renewal;
pub use sweep::{SweepFindings, sweep_home};
pub use unswept::{Announcement, recover};

use super::failure::{AtStep, Step};
use super::{exact, syscall};
use check::Checker;
use watch::RepositoryWatch;

/// The description of a sandbox for the gateway process.
#[derive(Debug, Serialize, Deserialize)]
struct SandboxDescription {
    /// The file with this description, which is removed once the projects were swept.
    #[serde(with = "exact::one")]
    file: PathBuf,
    #[serde(with = "exact::list")]
    projects: Vec<PathBuf>,
    /// Descriptors of the open, locked projects, which the gateway process inherits.
    locks: Vec<RawFd>,
    guard_git: bool,
    guard_tools: bool,
    repositories: Repositories,
}

/// Locks the projects for as long as this sandbox and its end last: all sandboxes share the locks,
/// and the last one removes the placeholders.
///
/// # Errors
/// A failure if another program keeps an exclusive lock on a project.
pub fn lock(projects: &[PathBuf]) -> Result<Vec<OwnedFd>, super::Error> {
    let locks = lock_within(projects, PATIENCE);
    Ok(locks.at(Step::Prepare, "a project is locked by another program")?)
}

fn lock_within(projects: &[PathBuf], patience: Duration) -> io::Result<Vec<OwnedFd>> {
    let locks = projects.iter().filter_map(|project| {
        // If this user may not list a directory, the command makes nothing in it, either.
        let file = File::open(project).ok()?;
        Some(lock_shared(&file, patience).map(|()| OwnedFd::from(file)))
    });
    locks.collect()
}

fn lock_shared(file: &File, patience: Duration) -> io::Result<()> {
    let until = Instant::now() + patience;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) {
            // The other sandbox is ending, which takes only a moment.
            Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::WOULDBLOCK) => return Err(Errno::WOULDBLOCK.into()),
            // A file system without locks: placeholders stay there.
            _ => return Ok(rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?),
        }
    }
}

/// The check of the projects' repositories, while the command runs and at its end.
#[derive(Debug)]
pub struct RepositoryCheck {
    announced: SandboxDescription,
    locks: Vec<OwnedFd>,
    /// The settings of the repositories at the start.
    settings: Vec<(PathBuf, Option<Vec<u8>>)>,
    watch: Option<RepositoryWatch>,
}

impl RepositoryCheck {
    /// Reads the file of [`Announcement::tell`]; `None` if the file is another one.
    pub fn adopt(file: impl AsFd) -> Option<Self> {
        let size = usize::try_from(rustix::fs::fstat(&file).ok()?.st_size).ok()?;
        let mut content = vec![0; size];
        let length = rustix::io::pread(file, &mut content[..], 0).ok()?;
        let announced: SandboxDescription = serde_json::from_slice(&content[..length]).ok()?;
        let locks = announced.locks.iter().filter(|number| **number > 2);
        let locks = locks
            .filter_map(|number| syscall::adopt(*number).ok())
            .collect();
        let directories = announced.repositories.directories.keys();
        let settings = directories.map(|one| one.join("config"));
        let settings = settings
            .map(|one| (one.clone(), fs::read(one).ok()))
            .collect();
        Some(Self {
            announced,
            locks,
            settings,
            watch: None,
        })
    }

    /// Begins the watch. The command may not run before that. `end` ends the command.
    ///
    /// # Errors
    /// The error of starting the watch.
    pub fn begin(&mut self, end: impl Fn() + Send + 'static) -> io::Result<()> {
        if self.announced.guard_git {
            let known = &self.announced.repositories;
            let is_top =
                |project: &&PathBuf| !known.entries.iter().any(|one| one.top() == *project);
            let tops = self.announced.projects.iter().filter(is_top).cloned();
            let directories = known.directories.iter();
            let directories = directories
                .map(|(one, top)| (one.clone(), top.into()))
                .collect();
            let watch =
                RepositoryWatch::begin(self.checker(), directories, tops.collect(), Box::new(end))?;
            self.watch = Some(watch);
        }
        Ok(())
    }

    /// Sweeps the projects when no process of the sandbox is left, and removes the placeholders if
    /// this was the last sandbox there.
    pub fn end(mut self) -> SweepFindings {
        let watched = self.watch.take().and_then(RepositoryWatch::end);
        let (checker, was_ended) = watched.unwrap_or_else(|| (self.checker(), false));
        let told = &self.announced;
        let mut left = checker.sweep(told.guard_git, told.guard_tools);
        left.was_ended = was_ended;
        for (file, before) in self.settings.iter().filter(|_| told.guard_git) {
            if fs::read(file).ok() != *before && !guard::is_ours(file) {
                left.found.insert(file.clone(), Found::Settings);
            }
        }
        if self.is_alone() {
            told.repositories.remove_placeholders(&told.projects);
        }
        let _ = fs::remove_file(&told.file);
        left
    }

    fn checker(&self) -> Checker {
        let told = &self.announced;
        Checker::of(told.projects.clone(), &told.repositories)
    }

    /// Whether no other sandbox has a lock on the projects. None starts there until the locks are
    /// released.
    fn is_alone(&self) -> bool {
        let lock = |lock| rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        let until = Instant::now() + FOR_MESSAGES;
        while !self.locks.iter().all(lock) {
            // A lock in a message that was not received is gone some milliseconds after its sender.
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

/// How long a start waits for the end of another sandbox.
const PATIENCE: Duration = Duration::from_secs(5);
const FOR_MESSAGES: Duration = Duration::from_millis(100);
