//! Where the command might make a repository that git outside would find while the command runs.
//!
//! These are the working directory, and the folders of submodules: `git status` looks into each
//! folder that the index names as one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::index::submodules;
use super::repository::{directory_named_by, is_set_apart};
use super::settings::read_within;
use crate::after::survey::{Kind, Survey};
use crate::paths::lexical;

/// Returns the paths of the missing `.git` entries in existing folders of submodules.
pub fn absent_submodules(projects: &[PathBuf], survey: &Survey) -> BTreeSet<PathBuf> {
    let trees = work_trees(projects, survey);
    let submodules = trees.iter().flat_map(WorkTree::submodules);
    let is_absent = |git: &PathBuf| is_below(git, projects) && is_free(git) && has_real_folder(git);
    submodules.filter(is_absent).take(MOST_BARRED).collect()
}

/// Returns where `git init` in the working directory would create a repository. Returns `None` if a
/// project's repository already contains the working directory.
pub fn place_of_a_new_one(
    projects: &[PathBuf],
    directory: &Path,
    survey: &Survey,
) -> Option<PathBuf> {
    let project = projects.iter().find(|one| directory.starts_with(one))?;
    let covered = directory
        .ancestors()
        .take_while(|above| above.starts_with(project))
        .any(|above| {
            let own = above.join(".git");
            (survey.repositories.contains_key(&own) && !is_set_apart(&own))
                || survey.repositories.contains_key(above)
        });
    (!covered && directory.is_dir()).then(|| directory.join(".git"))
}

/// A working tree, and the directory with its index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkTree {
    top: PathBuf,
    /// The directory with its index.
    pub git: PathBuf,
}

/// Returns the working trees of the projects' repositories, and of those above.
pub fn work_trees(projects: &[PathBuf], survey: &Survey) -> Vec<WorkTree> {
    let above = projects.iter().flat_map(|one| one.ancestors().skip(1));
    let above = above.map(|folder| folder.join(".git"));
    let own = survey.repositories.iter();
    let own = own.filter(|(_, found)| matches!(found.kind, Kind::Directory | Kind::File));
    let all: BTreeSet<PathBuf> = own.map(|(path, _)| path.clone()).chain(above).collect();
    all.iter().filter_map(|git| WorkTree::of(git)).collect()
}

impl WorkTree {
    /// Returns the one of this `.git` entry.
    fn of(git: &Path) -> Option<Self> {
        let top = git.parent()?.to_owned();
        let git = match git.is_dir() {
            true => git.to_owned(),
            false => directory_named_by(git)?,
        };
        Some(Self { top, git })
    }

    /// Returns the paths of the `.git` entries that its submodules have or would have.
    pub fn submodules(&self) -> BTreeSet<PathBuf> {
        let names = self.indexes().into_iter().flat_map(|index| {
            let content = read_within(&index, INDEX_BYTES).unwrap_or_default();
            submodules(&content)
        });
        names
            .map(|name| lexical(&self.top.join(name)).join(".git"))
            .collect()
    }

    /// Returns the files of its index, which may be split in two.
    pub fn indexes(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.git).into_iter().flatten().flatten();
        let is_index = |name: &[u8]| name == b"index" || name.starts_with(b"sharedindex.");
        let names = entries.map(|entry| entry.file_name());
        names
            .filter(|name| is_index(name.as_encoded_bytes()))
            .map(|name| self.git.join(name))
            .collect()
    }
}

/// Whether a path lies in a project.
pub fn is_in(path: &Path, projects: &[PathBuf]) -> bool {
    projects.iter().any(|project| path.starts_with(project))
}

/// Whether a path lies in a folder of a project.
fn is_below(git: &Path, projects: &[PathBuf]) -> bool {
    let folder = git.parent().unwrap_or(git);
    is_in(git, projects) && projects.iter().all(|project| project != folder)
}

/// Whether there is no such `.git`, or only a bar.
fn is_free(git: &Path) -> bool {
    fs::symlink_metadata(git).is_err() || is_bar(git)
}

/// Whether this is what [`super::guard()`] put in the place of a missing `.git`: a socket on which
/// nobody answers. Git takes the submodule for one that is not checked out, which it would not for
/// a folder, and nothing waits for a socket.
pub fn is_bar(git: &Path) -> bool {
    fs::symlink_metadata(git).is_ok_and(|found| found.file_type().is_socket())
}

/// Whether the folder of a `.git` exists, under this very name.
fn has_real_folder(git: &Path) -> bool {
    let Some(folder) = git.parent() else {
        return false;
    };
    folder.is_dir() && fs::canonicalize(folder).is_ok_and(|real| real == folder)
}

/// The most submodules that are barred; each takes mounts.
const MOST_BARRED: usize = 1000;
/// The largest index that is read.
const INDEX_BYTES: u64 = 256 << 20;
