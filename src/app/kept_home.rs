//! The part of an agent's home that outlives a run in a project: folders of the gateway's own
//! state, mounted into the sandboxes of that project and of no other.
//!
//! Commands write to them, so outside nothing in them is run, or read except to find credentials.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::settings::profile::Profile;
use crate::write::write;
use crate::{Failure, Terminal, safe};
use gateway_config::state;
use gateway_files::private_folder;
use gateway_launch::home_files::HomeFile;
use gateway_launch::kept::{self, DropReason};
use gateway_launch::{KeptFolder, LaunchPlan, MountPlan, User, removal};

/// The kept folders of a project's home.
pub struct KeptHome {
    /// `PROJECT/home`, or a folder of its own for each further user that root runs commands as.
    folder: PathBuf,
    names: Vec<PathBuf>,
    /// The files of the user's own home that the launcher copies into the folders, for this run.
    copies: Vec<PathBuf>,
    /// The mark of this run, locked while it lives.
    held: Mutex<Option<File>>,
}

impl KeptHome {
    /// Returns the folders that a profile keeps in a project, if there is a place for them. A
    /// folder that the user shows from their own home is not kept as well.
    pub fn of(
        profile: Option<&Profile>,
        project: &Path,
        plan: &LaunchPlan,
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
        (!names.is_empty()).then_some(Self {
            folder: place(project, plan, "home")?,
            copies: copied(&names, &plan.mounts),
            names,
            held: Mutex::new(None),
        })
    }

    /// Returns the folder that holds the kept folders.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Creates the folders for this user, and returns them for the launcher. With `fresh`, their
    /// content is forgotten.
    ///
    /// # Errors
    /// Returns a [`Failure`] if they cannot be created, or would not be private.
    pub fn prepare(&self, user: User, fresh: bool) -> Result<Vec<KeptFolder>, Failure> {
        let failed = |why: String| {
            let place = self.folder.display();
            Failure::new(format!("the agent's home cannot be kept in `{place}`"))
                .because(why)
                .next("run it without: `--profile none`")
                .coded(gateway_launch::LAUNCHER_FAILED)
        };
        if fresh && self.folder.exists() {
            self.forget().map_err(|error| failed(error.to_string()))?;
        }
        private_folder(&self.folder).map_err(|error| failed(error.to_string()))?;
        let made = own_folders(&self.folder, &self.names, user);
        made.map_err(|error| failed(error.to_string()))
    }

    /// Searches what a killed run left for credentials, and marks the start of this run, which gets
    /// these files.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the folders can neither be searched nor forgotten.
    pub fn begin(
        &self,
        ours: &[String],
        files: &[HomeFile],
        terminal: Option<&Terminal>,
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            Failure::new("the agent's home cannot be looked through").because(error.to_string())
        };
        let _turn = self.turn().map_err(failed)?;
        let ours = self.issued(ours)?;
        let (living, dead): (Vec<_>, Vec<_>) = self.marks().partition(|mark| lives(mark));
        // While another run lives, the folders are in its use: it searches them at its end.
        if living.is_empty() && !dead.is_empty() {
            // The launcher may be replacing those copies with this run's right now.
            dead.iter()
                .for_each(|mark| self.remove_copies(mark, &self.copies));
            let seen = self.sweep(&ours, terminal).map_err(failed)?;
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
        // The launcher would not write a file where a command left a folder.
        let paths = files.iter().map(|file| &file.path);
        for path in paths.filter(|path| self.has_folder(path)) {
            removal::remove_file(&self.folder, path).map_err(failed)?;
        }
        *self.held.lock() = Some(self.new_mark(files).map_err(failed)?);
        Ok(())
    }

    fn has_folder(&self, path: &Path) -> bool {
        let about = std::fs::symlink_metadata(self.folder.join(path));
        about.is_ok_and(|about| about.is_dir())
    }

    /// Marks that this run may have changed the folders, and lists the files put into them.
    fn new_mark(&self, files: &[HomeFile]) -> io::Result<File> {
        let mut mark = File::create(self.mark())?;
        mark.try_lock()?;
        let files = files.iter().map(|file| &file.path);
        for copy in self.copies.iter().chain(files) {
            mark.write_all(copy.as_os_str().as_bytes())?;
            mark.write_all(b"\0")?;
        }
        Ok(mark)
    }

    /// Searches what this run left, unless another run still uses the folders.
    pub fn end(&self, ours: &[String], terminal: Option<&Terminal>) {
        if let Err(error) = self.try_end(ours, terminal) {
            tracing::error!(%error, "the agent's home was not looked through");
        }
    }

    fn try_end(&self, ours: &[String], terminal: Option<&Terminal>) -> io::Result<()> {
        let _turn = self.turn()?;
        let ours = self
            .issued(ours)
            .map_err(|error| io::Error::other(error.to_string()))?;
        drop(self.held.lock().take());
        if self.marks().any(|mark| lives(&mark)) {
            // The last run to end also searches for this one.
            return Ok(());
        }
        self.marks().for_each(|mark| self.remove_copies(&mark, &[]));
        self.sweep(&ours, terminal)?;
        self.marks()
            .for_each(|mark| drop(std::fs::remove_file(mark)));
        self.remove_forgotten();
        Ok(())
    }

    /// Waits until no other run searches the folders or begins.
    fn turn(&self) -> io::Result<File> {
        let turn = File::create(self.beside(".turn"))?;
        turn.lock()?;
        Ok(turn)
    }

    /// Stores the phantoms of this run. Returns them with the latest of earlier runs in this
    /// project: text that holds one is the agent's own.
    fn issued(&self, ours: &[String]) -> Result<Vec<String>, Failure> {
        let path = self.beside(".issued");
        let known = std::fs::read(&path).unwrap_or_default();
        let mut issued: Vec<String> = serde_json::from_slice(&known).unwrap_or_default();
        issued.retain(|one| !ours.contains(one));
        issued.splice(0..0, ours.iter().cloned());
        issued.truncate(MOST_ISSUED.max(ours.len()));
        write(
            &path,
            serde_json::json!(issued).to_string().as_bytes(),
            0o600,
        )?;
        Ok(issued)
    }

    /// Removes a run's copies of files in the user's own home, except `but`.
    fn remove_copies(&self, mark: &Path, but: &[PathBuf]) {
        let listed = std::fs::read(mark).unwrap_or_default();
        for copy in listed
            .split(|byte| *byte == 0)
            .filter(|copy| !copy.is_empty())
        {
            let copy = PathBuf::from(std::ffi::OsString::from_vec(copy.to_vec()));
            if !but.contains(&copy)
                && let Err(error) = removal::remove_file(&self.folder, &copy)
            {
                tracing::warn!(%error, "a copy is still there: {}", copy.display());
            }
        }
    }

    /// Returns whether the folders could be searched. If not, they are forgotten.
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
                DropReason::Credential => "holds what looks like a credential",
                DropReason::TooMuch => "is more than is kept",
            };
            let shown = safe(&path.display().to_string());
            note(format!("~/{shown}, which {why}"));
        }
        if let more @ 1.. = dropped.len().saturating_sub(SHOWN) {
            note(format!("{more} more files of the agent's home"));
        }
        Ok(true)
    }

    /// Sets the folders aside and removes their content, also for a sandbox that has them mounted.
    fn forget(&self) -> io::Result<()> {
        let aside = self.beside(&format!("{FORGOTTEN}{}", std::process::id()));
        match std::fs::rename(&self.folder, &aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.remove_forgotten();
        Ok(())
    }

    /// Removes the folders that were set aside, now or by earlier runs. If that is too much for
    /// now, a later run goes on; nothing reads them.
    fn remove_forgotten(&self) {
        for aside in self.siblings(FORGOTTEN) {
            if let Err(error) = removal::remove_tree(&aside) {
                tracing::info!(%error, "an agent's forgotten home is still there: {}", aside.display());
            }
        }
    }

    /// Returns a path next to the folder, for this folder alone.
    fn beside(&self, end: &str) -> PathBuf {
        self.folder.with_file_name(self.name() + end)
    }

    fn name(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Returns the file that marks that a gateway process has not searched the folders yet. That
    /// process locks it.
    fn mark(&self) -> PathBuf {
        self.beside(&format!("{MARK}{}", std::process::id()))
    }

    fn marks(&self) -> impl Iterator<Item = PathBuf> {
        self.siblings(MARK)
    }

    fn siblings(&self, middle: &str) -> impl Iterator<Item = PathBuf> + use<> {
        let folder = self.folder.parent().map(Path::to_owned).unwrap_or_default();
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let start = self.name() + middle;
        let is_one = move |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&start)
        };
        entries.map(|entry| entry.path()).filter(is_one)
    }
}

/// Returns the folder of one kind of kept data for a project: one for the user, and one for each
/// further user that root runs commands as.
pub fn place(project: &Path, plan: &LaunchPlan, kind: &str) -> Option<PathBuf> {
    let granted = state::granted_for(project, None)?;
    let uid = plan.user().uid;
    let name = if rustix::process::geteuid().as_raw() == uid {
        kind.to_owned()
    } else {
        format!("{kind}-{uid}")
    };
    Some(granted.parent()?.join(name))
}

/// Returns the user's own files that are shown inside kept folders, relative to the home.
fn copied(names: &[PathBuf], mounts: &MountPlan) -> Vec<PathBuf> {
    let home = mounts.home.path();
    let shown: Vec<PathBuf> = mounts.places_in_home().collect();
    let shown = shown.iter();
    let files = shown.filter(|path| path.is_file());
    let files = files.filter_map(|path| path.strip_prefix(home).ok());
    let is_kept = |file: &&Path| names.iter().any(|name| file.starts_with(name));
    files.filter(is_kept).map(Path::to_owned).collect()
}

/// Creates folders of these names that only the command's user can enter.
pub fn own_folders(folder: &Path, names: &[PathBuf], user: User) -> io::Result<Vec<KeptFolder>> {
    let make = |name: &PathBuf| {
        let (name, folder) = (name.clone(), folder.join(name));
        own_folder(&folder, user).map(|()| KeptFolder { name, folder })
    };
    names.iter().map(make).collect()
}

/// Creates a folder that only the command's user can enter, and its parents.
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
const FORGOTTEN: &str = ".forgotten-";
/// How many phantoms of former runs are remembered.
const MOST_ISSUED: usize = 64;
/// How many files are named.
const SHOWN: usize = 5;
