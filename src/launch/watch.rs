//! Watches, from outside, hidden paths in a project.
//!
//! A project is the host's own directory, where only a mount can hide something. The mount is on
//! the file, not on its name. If a host program replaces the file, the name is no longer hidden.
//! Editors and log rotations do just that, and leave copies next to it. So a single file cannot be
//! hidden in a project at all.
//!
//! Only a directory can be hidden there, or a file of the gateway's own. It is watched. If its name
//! comes to mean another file, the command is killed.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::failure::{AtStep, Failure, Step};
use super::mount_plan::MountPlan;
use super::paths::by_name;

/// What a name refers to: the device and the inode.
type DeviceAndInode = (u64, u64);

/// The names that are hidden in projects, and what they referred to at the start.
#[derive(Debug)]
pub struct NameWatch {
    events: OwnedFd,
    names: Vec<(PathBuf, DeviceAndInode)>,
}

impl NameWatch {
    /// Starts to watch; `None` if nothing is hidden in a project.
    ///
    /// # Errors
    /// A [`Step::Hide`] failure: without watching, hiding is not good enough to start.
    pub fn begin(plan: &MountPlan) -> Result<Option<Self>, Failure> {
        let names: Vec<(PathBuf, DeviceAndInode)> = hidden_in_projects(plan)
            .filter_map(|path| Some((path.to_owned(), meaning(path)?)))
            .collect();
        if names.is_empty() {
            return Ok(None);
        }
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .at(Step::Hide, "inotify")?;
        let changes =
            WatchFlags::MOVE | WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        for (path, _) in &names {
            // Moving a directory above it away changes what the name refers to.
            for directory in path
                .ancestors()
                .skip(1)
                .filter(|above| above.parent().is_some())
            {
                match inotify::add_watch(&events, directory, changes) {
                    // A directory that this user may not read is one they may not change either.
                    Ok(_) | Err(rustix::io::Errno::ACCESS) => {}
                    Err(error) => {
                        return Err(Failure::of(
                            Step::Hide,
                            error,
                            directory.display().to_string(),
                        ));
                    }
                }
            }
        }
        Ok(Some(Self { events, names }))
    }

    /// Returns the descriptor to wait on.
    pub fn events(&self) -> &OwnedFd {
        &self.events
    }

    /// Checks, after an event, whether a name now refers to something else, or to nothing.
    pub fn uncovered(&self) -> Option<&Path> {
        let mut buffer = [0; 4096];
        while rustix::io::read(&self.events, &mut buffer[..]).is_ok_and(|bytes| bytes > 0) {}
        let changed = |(path, before): &&(PathBuf, DeviceAndInode)| meaning(path) != Some(*before);
        let (path, _) = self.names.iter().find(changed)?;
        Some(path)
    }
}

/// Refuses to hide a single file in a project, unless it is the gateway's own.
///
/// # Errors
/// A [`Step::Prepare`] failure that names the first.
pub fn refuse_files(plan: &MountPlan) -> Result<(), Failure> {
    let own = |path: &Path| {
        plan.own
            .iter()
            .any(|own| path == own || by_name(own).as_deref() == Some(path))
    };
    for path in hidden_in_projects(plan).filter(|path| !own(path)) {
        if !path.is_dir() {
            let why = format!(
                "`{}` cannot be hidden: it is a file in a project, and a program that saves it anew, or beside it, would \
                 show it. If a secret is kept in it, move it out of the project; else hide a directory that holds it",
                path.display()
            );
            return Err(Failure::new(Step::Prepare, why));
        }
    }
    Ok(())
}

fn hidden_in_projects(plan: &MountPlan) -> impl Iterator<Item = &Path> {
    let hidden = plan.hidden.iter().map(PathBuf::as_path);
    hidden.filter(|path| plan.in_project(path))
}

fn meaning(path: &Path) -> Option<DeviceAndInode> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}
