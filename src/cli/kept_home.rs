//! What an agent keeps of its home between two runs in a project: folders of the gateway's own
//! state, mounted into the sandboxes of that project and of no other.
//!
//! A command writes them, so nothing in them is run or read outside but to look for credentials.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::failure::Failure;
use super::profile::Profile;
use super::terminal::{Terminal, safe};
use crate::config::state;
use crate::files::private_folder;
use crate::launch::kept::{self, Dropped};
use crate::launch::{Kept, User};

/// The kept folders of a project's home.
pub(super) struct KeptHome {
    /// `PROJECT/home`, and for each further user that root runs commands as, one of its own.
    folder: PathBuf,
    names: Vec<PathBuf>,
    /// The mark of this run, locked while it lives.
    held: OnceLock<File>,
}

impl KeptHome {
    /// Returns what a profile keeps in a project, if there is a place for it. A folder that the
    /// user shows from their own home is not kept beside it.
    pub fn of(
        profile: Option<&Profile>,
        project: &Path,
        user: User,
        shown: &[String],
    ) -> Option<Self> {
        let mut names = profile.map(|profile| profile.keep.clone())?;
        let is_shown = |name: &PathBuf| {
            let mut shown = shown
                .iter()
                .map(|one| one.strip_prefix("~/").unwrap_or(one));
            shown.any(|one| name.starts_with(one))
        };
        names.retain(|name| !is_shown(name));
        let granted = state::granted_for(project, None)?;
        let own = rustix::process::geteuid().as_raw() == user.uid;
        let name = if own {
            "home".to_owned()
        } else {
            format!("home-{}", user.uid)
        };
        (!names.is_empty()).then_some(Self {
            folder: granted.parent()?.join(name),
            names,
            held: OnceLock::new(),
        })
    }

    /// Makes the folders, for this user, and returns them for the launcher. With `fresh`, what was
    /// in them is forgotten.
    ///
    /// # Errors
    /// Returns a [`Failure`] if they cannot be made, or would not be private.
    pub fn prepare(&self, user: User, fresh: bool) -> Result<Vec<Kept>, Failure> {
        let failed = |why: String| {
            let place = self.folder.display();
            Failure::new(format!("the agent's home cannot be kept in `{place}`"))
                .because(why)
                .next("run it without: `--profile none`")
                .coded(crate::launch::LAUNCHER_FAILED)
        };
        if fresh && self.folder.exists() {
            self.forget().map_err(|error| failed(error.to_string()))?;
        }
        private_folder(&self.folder).map_err(|error| failed(error.to_string()))?;
        let make = |name: &PathBuf| {
            let folder = self.folder.join(name);
            own_folder(&folder, user).map_err(|error| failed(error.to_string()))?;
            Ok(Kept {
                name: name.clone(),
                folder,
            })
        };
        self.names.iter().map(make).collect()
    }

    /// Looks through what a run that was killed left, and notes that this one begins.
    ///
    /// # Errors
    /// Returns a [`Failure`] if what was left can neither be looked through nor forgotten.
    pub fn begin(&self, ours: &[String], terminal: Option<&Terminal>) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            Failure::new("the agent's home cannot be looked through").because(error.to_string())
        };
        let (living, dead): (Vec<_>, Vec<_>) = self.marks().partition(|mark| lives(mark));
        // While another run lives, the folders are its own: it looks through them at its end.
        if living.is_empty() && !dead.is_empty() {
            let seen = self.sweep(ours, terminal).map_err(failed)?;
            if !seen {
                return Err(Failure::new("the agent's home could not be looked through")
                    .because("the last run was killed, and left more than can be looked at")
                    .next("run the command again: what was kept is forgotten"));
            }
        }
        if living.is_empty() {
            for mark in dead {
                std::fs::remove_file(mark).map_err(failed)?;
            }
        }
        let mark = File::create(self.mark()).map_err(failed)?;
        mark.try_lock().map_err(|error| failed(error.into()))?;
        drop(self.held.set(mark));
        Ok(())
    }

    /// Looks through what this run left, unless another one still uses it.
    pub fn end(&self, ours: &[String], terminal: Option<&Terminal>) {
        let own = self.mark();
        if self.marks().any(|mark| mark != own && lives(&mark)) {
            // The last one that ends looks for this one, too.
            return;
        }
        match self.sweep(ours, terminal) {
            Ok(_) => self
                .marks()
                .for_each(|mark| drop(std::fs::remove_file(mark))),
            Err(error) => tracing::error!(%error, "the agent's home was not looked through"),
        }
    }

    /// Returns whether the folders could be looked through. If not, they are forgotten.
    fn sweep(&self, ours: &[String], terminal: Option<&Terminal>) -> io::Result<bool> {
        let note = |text: String| {
            if let Some(terminal) = terminal {
                terminal.entry("not kept", &text);
            }
        };
        let Ok(dropped) = kept::sweep(&self.folder, ours) else {
            note("the agent's whole home, which could not be looked through".to_owned());
            return self.forget().map(|()| false);
        };
        for (path, why) in dropped.iter().take(SHOWN) {
            let why = match why {
                Dropped::Credential => "holds what looks like a credential",
                Dropped::TooMuch => "is more than is kept",
            };
            note(format!(
                "~/{}, which {why}",
                safe(&path.display().to_string())
            ));
        }
        if let more @ 1.. = dropped.len().saturating_sub(SHOWN) {
            note(format!("{more} more files of the agent's home"));
        }
        Ok(true)
    }

    /// Puts the folders aside, and removes what is in them, also for a sandbox in which they are
    /// mounted.
    fn forget(&self) -> io::Result<()> {
        let aside =
            self.folder
                .with_file_name(format!("{}.forgotten-{}", self.name(), std::process::id()));
        match std::fs::rename(&self.folder, &aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The command may have made folders that are hard to remove; nobody reads them any more.
        if let Err(error) = std::fs::remove_dir_all(&aside)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "an agent's forgotten home is still there: {}", aside.display());
        }
        Ok(())
    }

    fn name(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The file that shows that a gateway process has not looked through the folders yet, which
    /// locks it.
    fn mark(&self) -> PathBuf {
        let name = format!("{}{MARK}{}", self.name(), std::process::id());
        self.folder.with_file_name(name)
    }

    fn marks(&self) -> impl Iterator<Item = PathBuf> {
        let folder = self.folder.parent().map(Path::to_owned).unwrap_or_default();
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let start = format!("{}{MARK}", self.name());
        let is_mark = move |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&start)
        };
        entries.map(|entry| entry.path()).filter(is_mark)
    }
}

/// Makes a folder that only the command's user enters, and its parents.
fn own_folder(folder: &Path, user: User) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)?;
    let parent = folder.parent().unwrap_or(folder);
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NOFOLLOW;
    let opened = rustix::fs::open(folder, flags, rustix::fs::Mode::empty())?;
    if rustix::process::geteuid().as_raw() != user.uid {
        std::os::unix::fs::fchown(&opened, Some(user.uid), Some(user.gid))?;
    }
    std::fs::set_permissions(parent, std::fs::Permissions::from_mode(0o700))
}

/// Whether the process that left the mark still holds it.
fn lives(mark: &Path) -> bool {
    let opened = File::open(mark).map(|mark| mark.try_lock());
    matches!(opened, Ok(Err(TryLockError::WouldBlock)))
}

const MARK: &str = ".in-use-";
/// How many files are named.
const SHOWN: usize = 5;
