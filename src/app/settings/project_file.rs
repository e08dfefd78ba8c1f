//! The project's own file, `./gateway.toml`: its path, and whether it may be in force.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::project::project_folders;
use crate::terminal::text::as_argument;
use crate::{Failure, Terminal, safe};
use gateway_config::{Config, ConfigError, state};
use gateway_files::{self as files, Choice, Consent};
use gateway_names::join;

/// The name of a project's file.
pub const NAME: &str = "gateway.toml";

/// A project's file, and the exact text that a person allowed.
#[derive(Debug)]
pub struct AllowedFile {
    pub(crate) path: PathBuf,
    text: String,
}

impl AllowedFile {
    /// Reads its configuration.
    ///
    /// # Errors
    /// Returns every mistake of the text.
    pub fn configuration(&self) -> Result<Config, ConfigError> {
        Config::of_project(&self.text, &self.path)
    }
}

/// The standing of a project's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileStanding {
    /// A person allowed exactly this text.
    Allowed(String),
    /// No person has decided about it.
    Undecided,
    /// A person wants it ignored.
    Denied,
    /// It differs from the text that a person allowed.
    Changed,
}

/// Returns the file of the project that a folder is in: the folder's own, else the nearest above.
pub fn find(folder: &Path) -> Option<PathBuf> {
    places(folder).find(|path| is_there(path) || is_gone(path))
}

/// Whether a file that a person allowed is gone.
pub fn is_gone(path: &Path) -> bool {
    let consent = Consent::of(path).ok().flatten();
    !is_there(path) && consent.is_some_and(|one| one.choice == Choice::Allowed)
}

/// Returns the paths of project files for a folder, the nearest first.
fn places(folder: &Path) -> impl Iterator<Item = PathBuf> {
    project_folders(folder).map(|folder| folder.join(NAME))
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Returns the project file for a folder, if a person allowed its present text. An ignored file is
/// skipped for the next above.
///
/// # Errors
/// Returns a [`Failure`] if the file is gone or differs from the allowed text, or if an undecided
/// file is nearer: a command may have done that to escape the restrictions.
pub fn in_force(folder: &Path) -> Result<Option<AllowedFile>, Failure> {
    let mut undecided: Option<PathBuf> = None;
    for path in places(folder) {
        match standing(&path)? {
            FileStanding::Allowed(text) => match undecided {
                None => return Ok(Some(AllowedFile { path, text })),
                Some(nearer) => return Err(shadowed(&nearer, &path)),
            },
            FileStanding::Changed => return Err(changed(&path)),
            FileStanding::Undecided if is_there(&path) => undecided = undecided.or(Some(path)),
            FileStanding::Undecided | FileStanding::Denied => {}
        }
    }
    Ok(None)
}

/// Returns the file that [`in_force`] returned to the process that started this one. It reads only
/// the decision: the command of an older sandbox may change the file in between.
///
/// # Errors
/// Returns a [`Failure`] if the decision cannot be read.
pub fn decided(folder: &Path) -> Result<Option<AllowedFile>, Failure> {
    for path in places(folder) {
        let consent = Consent::of(&path)?;
        if let Some(consent) = consent.filter(|one| one.choice == Choice::Allowed) {
            let text = consent.text;
            return Ok(Some(AllowedFile { path, text }));
        }
    }
    Ok(None)
}

fn shadowed(nearer: &Path, allowed: &Path) -> Failure {
    let (nearer, allowed) = (nearer.display(), allowed.display());
    Failure::usage(format!("nobody decided about `{nearer}`"))
        .because(format!("it would take the place of `{allowed}`, which you allowed"))
        .next("decide: `gateway project allow` or `gateway project deny`; or start with `--no-project`")
}

/// Reports that a folder is in a project whose file no person has decided about.
///
/// # Errors
/// As [`standing`].
pub fn tell_of_undecided(folder: &Path, terminal: &Terminal) -> Result<(), Failure> {
    let Some(path) = find(folder) else {
        return Ok(());
    };
    if standing(&path)? == FileStanding::Undecided {
        let path = safe(&path.display().to_string());
        let next = "`gateway project allow` shows it and asks";
        terminal.warning("careful", &format!("{path} is not in force: {next}"));
    }
    Ok(())
}

/// Reports which files a named file replaces.
pub fn tell_of_left_out(folder: &Path, terminal: &Terminal) {
    let user = state::user_file().filter(|path| is_there(path));
    let project = in_force(folder).ok().flatten().map(|file| file.path);
    let files = user.into_iter().chain(project);
    let files = join(files.map(|path| safe(&path.display().to_string())), " and ");
    if !files.is_empty() {
        terminal.entry("file", &format!("--config stands alone, without {files}"));
    }
}

/// Returns the files that no command in a folder of a project may change or create: those of both,
/// and all allowed ones.
pub fn guarded(project: &Path, folder: &Path) -> Vec<PathBuf> {
    let own = [project, folder].map(|one| one.join(NAME));
    let mut files = files::allowed_files().unwrap_or_default();
    files.extend(own);
    files.dedup();
    files
}

/// Returns the standing of a file.
///
/// # Errors
/// Returns a [`Failure`] if the decision about it cannot be read.
pub fn standing(path: &Path) -> Result<FileStanding, Failure> {
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
/// Returns a [`Failure`] that says why the file is refused.
pub fn read(path: &Path) -> Result<String, Failure> {
    let refused =
        |why: String| Failure::usage(format!("`{}` is refused", path.display())).because(why);
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
    let is_projects = path.file_name().is_some_and(|name| name == NAME);
    files::shown(path, if is_projects { 1 } else { LARGEST_MIB })
        .map_err(|unfit| refused(unfit.to_string()).next(unfit.remedy(path)))
}

/// Reads a file in force again. The text that is checked is the text that is used.
///
/// # Errors
/// Returns a [`Failure`] unless exactly this text was allowed.
pub fn again(path: &Path) -> Result<AllowedFile, Failure> {
    let path = path.to_owned();
    match standing(&path)? {
        FileStanding::Allowed(text) => Ok(AllowedFile { path, text }),
        _ => Err(changed(&path)),
    }
}

/// Returns the failure that a file differs from what a person allowed.
fn changed(path: &Path) -> Failure {
    if !is_there(path) {
        let shown = path.display();
        return Failure::usage(format!("`{shown}`, which you allowed, is gone"))
            .because("what it restricts would not hold without it")
            .next(format!(
                "put it back, or forget it: `gateway project forget {}`; `--no-project` runs \
                 without it",
                as_argument(path)
            ));
    }
    Failure::usage(format!("`{}` is not what you allowed", path.display()))
        .because("it was changed since then, and what it restricts would not hold without it")
        .next("see what changed: `gateway project allow`; `--no-project` runs without it")
}

/// As large as a policy file may be.
const LARGEST_MIB: u64 = 16;
