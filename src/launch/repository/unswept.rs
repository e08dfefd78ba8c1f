//! The description of a sandbox: a file of the state until the sandbox's projects were swept. Its
//! processes lock it, so a file without a lock belongs to processes that were killed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::aside::unforeseen;
use super::{PATIENCE, RepositoryCheck, SandboxDescription, SweepFindings, lock_within};
use crate::mount_plan::MountPlan;

/// A file that describes a sandbox to the gateway process. Empty until [`Self::tell`] fills it.
#[derive(Debug)]
pub struct Announcement {
    file: File,
    path: PathBuf,
}

impl Announcement {
    /// Creates the file in the state's folder.
    ///
    /// # Errors
    /// The error of creating or locking it.
    pub fn new(state: &Path) -> io::Result<Self> {
        let folder = state.join(UNSWEPT);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        let path = folder.join(unforeseen()?);
        // Otherwise the file could be mistaken for an abandoned one before it is locked.
        let held = File::open(&folder)?;
        flock(&held, FlockOperation::LockShared)?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path)?;
        flock(&file, FlockOperation::LockShared)?;
        Ok(Self { file, path })
    }

    /// Writes the description of the sandbox, as the command begins.
    ///
    /// # Errors
    /// The error of writing it.
    pub fn tell(mut self, plan: &MountPlan, locks: &[OwnedFd]) -> io::Result<()> {
        let announced = SandboxDescription {
            file: self.path,
            projects: plan.projects.clone(),
            locks: locks.iter().map(AsRawFd::as_raw_fd).collect(),
            guard_git: plan.guard_git,
            guard_tools: plan.guard_tools,
            repositories: plan.repositories.clone(),
        };
        self.file.write_all(&serde_json::to_vec(&announced)?)
    }
}

impl AsFd for Announcement {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Sweeps the projects of sandboxes whose processes were killed before they did. Another sandbox
/// that starts waits for that. Projects apart from `projects`, in which a command is about to run,
/// are left for the next start while another program keeps a lock there.
///
/// # Errors
/// A failure if a record cannot be read, or another program keeps a lock on one of `projects`.
pub fn recover(state: &Path, projects: &[PathBuf]) -> io::Result<Vec<SweepFindings>> {
    let folder = state.join(UNSWEPT);
    let Some(held) = there(File::open(&folder))? else {
        return Ok(Vec::new());
    };
    flock(&held, FlockOperation::LockExclusive)?;
    let mut all = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        // A sandbox that ends removes its own file.
        let Some(file) = there(File::open(&path))? else {
            continue;
        };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let Some(told) = there(fs::read(&path))? else {
            continue;
        };
        match serde_json::from_slice(&told) {
            Ok(announced) => all.extend(swept(announced, projects)?),
            // The command did not run before the description was complete.
            Err(error) if error.is_eof() => fs::remove_file(&path)?,
            Err(_) => return Err(unreadable(&path)),
        }
    }
    Ok(all)
}

fn there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// The error for a description that cannot be read, as after an upgrade.
fn unreadable(path: &Path) -> io::Error {
    let path = path.display();
    io::Error::other(format!(
        "`{path}` has another form: look for `.git` in the projects that it names, then remove it"
    ))
}

/// Sweeps, unless that has to wait and the projects are others.
fn swept(announced: SandboxDescription, projects: &[PathBuf]) -> io::Result<Option<SweepFindings>> {
    let is_near = |one: &PathBuf| {
        let mut near = projects.iter();
        near.any(|here| here.starts_with(one) || one.starts_with(here))
    };
    let patience = if announced.projects.iter().any(is_near) {
        PATIENCE
    } else {
        Duration::ZERO
    };
    let locks = match lock_within(&announced.projects, patience) {
        Err(_) if patience.is_zero() => return Ok(None),
        locks => locks?,
    };
    let check = RepositoryCheck {
        announced,
        locks,
        settings: Vec::new(),
        watch: None,
    };
    Ok(Some(check.end()))
}

/// The folder of descriptions, in the state.
const UNSWEPT: &str = "unswept";
