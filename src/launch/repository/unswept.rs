//! What is told of a sandbox is a file of the state until its projects were swept. Its processes
//! lock it: one without a lock is of processes that were killed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::aside::unforeseen;
use super::{Announced, Inspection, Left, lock};
use crate::mount_plan::MountPlan;

/// A file that tells the gateway process of a sandbox. It is empty until [`Self::tell`] fills it.
#[derive(Debug)]
pub struct Announcement {
    file: File,
    path: PathBuf,
}

impl Announcement {
    /// Makes it in the folder of the state.
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
        // Nobody takes it for an abandoned one before it is locked.
        let held = File::open(&folder)?;
        flock(&held, FlockOperation::LockShared)?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path)?;
        flock(&file, FlockOperation::LockShared)?;
        Ok(Self { file, path })
    }

    /// What the gateway process inherits.
    ///
    /// # Errors
    /// The error of duplicating the descriptor.
    pub fn inherited(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// Tells what the projects hold when the command begins.
    ///
    /// # Errors
    /// The error of writing it.
    pub fn tell(mut self, plan: &MountPlan, locks: &[OwnedFd]) -> io::Result<()> {
        let announced = Announced {
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

/// Sweeps the projects of sandboxes whose processes were killed before they had. Another sandbox
/// that starts waits for it.
///
/// # Errors
/// A failure if the folder cannot be read, or another program keeps a lock on a project.
pub fn recover(state: &Path) -> Result<Vec<Left>, io::Error> {
    let folder = state.join(UNSWEPT);
    let held = match File::open(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        held => held?,
    };
    flock(&held, FlockOperation::LockExclusive)?;
    let mut all = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let file = File::open(&path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        match serde_json::from_slice::<Announced>(&fs::read(&path)?) {
            Ok(announced) => all.push(swept(announced)?),
            // Its command did not run.
            Err(_) => fs::remove_file(&path)?,
        }
    }
    Ok(all)
}

fn swept(announced: Announced) -> io::Result<Left> {
    let locks = lock(&announced.projects).map_err(io::Error::other)?;
    let inspection = Inspection {
        announced,
        locks,
        settings: Vec::new(),
        watch: None,
    };
    Ok(inspection.end())
}

/// The folder of the state.
const UNSWEPT: &str = "unswept";
