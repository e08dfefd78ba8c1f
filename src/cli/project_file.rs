//! The project's own file, `./gateway.toml`: where it is, and whether it may be in force.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::consent::{self, Choice, Consent};
use super::failure::Failure;
use super::project::project_folders;
use crate::config::{Config, ConfigError};
use crate::files;

/// The name of a project's file.
pub(super) const NAME: &str = "gateway.toml";

/// How a project's file stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileStanding {
    /// A person allowed this very text.
    Allowed(String),
    /// Nobody decided about it.
    Undecided,
    /// A person wants it ignored.
    Denied,
    /// It is not what a person allowed.
    Changed,
}

/// Returns the file of the project that a folder is in: the folder's own, else the nearest above.
pub(super) fn find(folder: &Path) -> Option<PathBuf> {
    let mut files = project_folders(folder).map(|folder| folder.join(NAME));
    files.find(|file| file.symlink_metadata().is_ok())
}

/// Returns the file of the project that a folder is in, if a person allowed what it says now.
///
/// # Errors
/// Returns a [`Failure`] if the file is not the one that was allowed.
pub(super) fn in_force(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    let Some(path) = find(folder) else {
        return Ok(None);
    };
    match standing(&path)? {
        FileStanding::Allowed(_) => Ok(Some(path)),
        FileStanding::Changed => Err(changed(&path)),
        FileStanding::Undecided | FileStanding::Denied => Ok(None),
    }
}

/// Returns the file of the project that a folder is in, if nobody decided about it.
///
/// # Errors
/// As [`standing`].
pub(super) fn undecided(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    let Some(path) = find(folder) else {
        return Ok(None);
    };
    let is_undecided = standing(&path)? == FileStanding::Undecided;
    Ok(is_undecided.then_some(path))
}

/// Whether a person allowed what this file says now.
pub(super) fn is_in_force(path: &Path) -> bool {
    standing(path).is_ok_and(|standing| matches!(standing, FileStanding::Allowed(_)))
}

/// Returns the files that no command in a folder may change or make: its own, and all that were
/// allowed.
pub(super) fn guarded(folder: &Path) -> Vec<PathBuf> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mut files = consent::allowed_files();
    files.push(folder.join(NAME));
    files
}

/// Returns how a file stands.
///
/// # Errors
/// Returns a [`Failure`] if what was decided about it cannot be read.
pub(super) fn standing(path: &Path) -> Result<FileStanding, Failure> {
    let consent = Consent::of(path)?;
    Ok(match consent {
        None => FileStanding::Undecided,
        Some(consent) if consent.choice == Choice::Denied => FileStanding::Denied,
        Some(consent) => match read(path) {
            Ok(text) if consent.allows(&text) => FileStanding::Allowed(text),
            _ => FileStanding::Changed,
        },
    })
}

/// Reads a project's file, if only this user and root could have written it, under this name.
///
/// # Errors
/// Returns a [`Failure`] that says why it is refused.
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    let refused = |why: String| {
        Failure::usage(format!("`{}` is refused", path.display())).because(why)
    };
    let about = path
        .symlink_metadata()
        .map_err(|error| refused(error.to_string()))?;
    if about.is_symlink() {
        let why = "it is a link, in whose place a command could put a file";
        return Err(refused(why.to_owned()).next("put the file itself there"));
    }
    if about.is_file() && about.nlink() > 1 {
        let why = "it has another name too, under which a command could change it";
        return Err(refused(why.to_owned()).next("copy it, and move the copy to its place"));
    }
    files::read(path, LARGEST_MIB).map_err(|unfit| refused(unfit.to_string()).next(unfit.remedy(path)))
}

/// Reads the configuration of a file that a person allowed. The text that is judged is the text
/// that is read.
///
/// # Errors
/// Returns a [`Failure`] unless exactly this text was allowed; else what is wrong with it.
pub(super) fn configuration(path: &Path) -> Result<Result<Config, ConfigError>, Failure> {
    match standing(path)? {
        FileStanding::Allowed(text) => Ok(Config::of_project(&text, path)),
        _ => Err(changed(path)),
    }
}

/// Says that a file is not what a person allowed.
pub(super) fn changed(path: &Path) -> Failure {
    Failure::usage(format!("`{}` is not what you allowed", path.display()))
        .because("it was changed since then, and what it restricts would not hold without it")
        .next("see what changed: `gateway project allow`; `--no-project` runs without it")
}

/// As large as a configuration may be.
const LARGEST_MIB: u64 = 1;
