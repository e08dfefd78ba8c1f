//! What git obeys in a repository's directory, and which repositories `.git` files name.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::settings;

/// A name in a repository's directory that git obeys.
pub struct Guarded {
    /// The name.
    pub name: &'static str,
    /// The content of a placeholder file, which has no effect; `None` for a directory.
    pub content: Option<&'static [u8]>,
    /// Whether it has a meaning in the directory of a linked worktree.
    pub in_linked: bool,
}

/// What git obeys. `commondir` and `worktrees` lead to other settings; `modules` contains those of
/// submodules.
pub const GUARDED: &[Guarded] = &[
    Guarded {
        name: "config",
        content: Some(b""),
        in_linked: false,
    },
    Guarded {
        name: "config.worktree",
        content: Some(b""),
        in_linked: true,
    },
    Guarded {
        // git appends this to the directory's own path, so it leads nowhere else.
        name: "commondir",
        content: Some(b"./\n"),
        in_linked: true,
    },
    Guarded {
        name: "hooks",
        content: None,
        in_linked: false,
    },
    Guarded {
        name: "modules",
        content: None,
        in_linked: true,
    },
    Guarded {
        name: "worktrees",
        content: None,
        in_linked: false,
    },
];

/// What git obeys later, and what stays as it is if it exists when the command starts: the state of
/// an operation in progress, whose steps may be programs, files that say how to read content, and
/// addresses.
pub const FIXED: &[&str] = &[
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    RESOLUTIONS,
    "branches",
    "remotes",
    "info/attributes",
    "info/grafts",
    "objects/info/alternates",
];

/// Names files of the working tree, which a commit reads and copies into the repository. Git
/// follows links there, and checks no path (rerere).
pub const RESOLUTIONS: &str = "MERGE_RR";

/// What git writes in a repository's directory, beside names in `_HEAD` and `_MSG`.
pub const WRITTEN: &[&str] = &[
    "HEAD",
    "index",
    "objects",
    "refs",
    "reftable",
    "logs",
    "packed-refs",
    "shallow",
    "COMMIT_EDITMSG",
];

/// The directory in a new `.git` that the command sees as `.git`.
pub const APART: &str = "gateway";

/// Returns the directory that a `.git` file names: that of a linked worktree or of a submodule.
pub fn directory_named_by(file: &Path) -> Option<PathBuf> {
    let content = line_of(file)?;
    let named = content.strip_prefix("gitdir:")?.trim();
    fs::canonicalize(file.parent()?.join(named)).ok()
}

/// Returns the repository outside `projects` that a project's `.git` file belongs to, if that
/// repository confirms it.
///
/// A command could have written the file, and anything else in places where a command could once
/// write. So the file counts only if it names a place where git itself would put it: the
/// `worktrees` or the `modules` of a repository that contains none of the projects.
pub fn outside(project: &Path, projects: &[&Path]) -> Option<PathBuf> {
    let file = project.join(".git");
    let directory = directory_named_by(&file)?;
    let given = match line_of(&directory.join("gitdir")) {
        Some(back) => {
            let common =
                fs::canonicalize(directory.join(line_of(&directory.join("commondir"))?.trim()))
                    .ok()?;
            let is_ours = fs::canonicalize(directory.join(back.trim())).ok()?
                == fs::canonicalize(&file).ok()?;
            let is_in_place = directory.parent()? == common.join("worktrees");
            (is_ours && is_in_place && is_repository(&common)).then_some(common)?
        }
        None => {
            let settings = settings::settings(&directory.join("config")).ok()?;
            let back = settings.iter().find(|setting| setting.key == "worktree")?;
            let is_ours = fs::canonicalize(directory.join(&back.value)).ok()? == project;
            let is_in_place = directory.ancestors().any(|above| {
                above.ends_with("modules")
                    && above != directory
                    && above.parent().is_some_and(is_repository)
            });
            (is_ours && is_in_place && is_repository(&directory)).then_some(directory.clone())?
        }
    };
    let is_apart =
        |project: &&Path| !directory.starts_with(project) && !project.starts_with(&given);
    projects.iter().all(is_apart).then_some(given)
}

/// Whether git treats a directory as a repository (`is_git_directory` in git's setup.c).
fn is_repository(directory: &Path) -> bool {
    has_head(directory)
        && ["objects", "refs"]
            .iter()
            .all(|name| directory.join(name).is_dir())
}

/// Whether [`super::guard()`] created this `.git` directory, and a killed launch left a new
/// repository in it.
pub fn is_set_apart(git: &Path) -> bool {
    git.join(APART).is_dir() && !has_head(git)
}

/// Whether a directory may be a repository's. A link to a reference that does not exist yet also
/// counts as a head.
pub fn has_head(git: &Path) -> bool {
    fs::symlink_metadata(git.join("HEAD")).is_ok()
}

/// Whether a path is a `.git`, or lies in a repository's directory under a name that git writes
/// itself in daily work, or that is guarded anyway.
pub fn is_gits_own(path: &Path) -> bool {
    let mut above = path.ancestors().skip(1);
    let Some(directory) = above.find(|one| is_repository(one) || is_linked(one)) else {
        return path.ends_with(".git");
    };
    let below = path.strip_prefix(directory).unwrap_or(path);
    let name = below
        .iter()
        .next()
        .and_then(OsStr::to_str)
        .unwrap_or_default();
    let is_guarded = GUARDED.iter().any(|guarded| guarded.name == name);
    let is_written = WRITTEN.contains(&name) || name.ends_with("_HEAD") || name.ends_with("_MSG");
    is_guarded || is_written || path.ends_with(".git")
}

/// Whether this is the directory of a linked worktree.
fn is_linked(directory: &Path) -> bool {
    has_head(directory) && directory.join("commondir").exists()
}

/// Whether a file of a repository's directory has only the content of a [`super::guard()`]
/// placeholder.
pub fn is_placeholder(path: &Path) -> bool {
    GUARDED
        .iter()
        .filter(|guarded| path.ends_with(guarded.name))
        .filter_map(|guarded| guarded.content)
        .any(|content| settings::read(path).is_ok_and(|found| found == content))
}

/// Returns the content of a small text file.
pub fn line_of(path: &Path) -> Option<String> {
    String::from_utf8(settings::read(path).ok()?).ok()
}
