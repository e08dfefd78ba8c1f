//! Where the command might make a repository that git outside would find while the command runs.
//!
//! These are the working directory, and the folders of submodules: `git status` looks into each
//! folder that the index names as one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::index::{Index, SHA1_BYTES, SHA256_BYTES};
use super::repository::{directory_named_by, is_set_apart, line_of};
use super::settings::{read_within, settings};
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

/// A directory with an index, and its working tree if that is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkTree {
    top: Option<PathBuf>,
    /// The directory with its index.
    pub git: PathBuf,
}

/// What the files of an index say.
#[derive(Debug, Default)]
pub struct ReadIndex {
    /// The paths of the `.git` entries that its submodules have or would have.
    pub submodules: BTreeSet<PathBuf>,
    /// The files with which git would write where it must not.
    pub forged: Vec<PathBuf>,
}

/// Returns the working trees of the projects' repositories, and of those above.
fn work_trees(projects: &[PathBuf], survey: &Survey) -> Vec<WorkTree> {
    let above = projects.iter().flat_map(|one| one.ancestors().skip(1));
    let above = above.map(|folder| folder.join(".git"));
    let own = survey.repositories.iter();
    let own = own.filter(|(_, found)| matches!(found.kind, Kind::Directory | Kind::File));
    let all: BTreeSet<PathBuf> = own.map(|(path, _)| path.clone()).chain(above).collect();
    all.iter().filter_map(|git| WorkTree::of(git)).collect()
}

/// Returns every directory with an index that the command may write: beside those of working trees,
/// those of modules and of worktrees elsewhere, and of the repository to which a worktree belongs.
pub fn all_with_index(projects: &[PathBuf], survey: &Survey) -> BTreeSet<WorkTree> {
    let trees = work_trees(projects, survey);
    let known: BTreeSet<&PathBuf> = trees.iter().map(|tree| &tree.git).collect();
    let common = trees.iter().map(|tree| common(&tree.git));
    let others = survey.directories.keys().cloned().chain(common);
    let others: Vec<PathBuf> = others.filter(|git| !known.contains(git)).collect();
    let others = others.into_iter().map(WorkTree::in_directory);
    others.chain(trees.iter().cloned()).collect()
}

/// Returns the directory that a linked worktree shares with others, else this one.
fn common(git: &Path) -> PathBuf {
    let named = line_of(&git.join("commondir"));
    named.map_or_else(|| git.to_owned(), |named| lexical(&git.join(named.trim())))
}

impl WorkTree {
    /// Returns the one of this `.git` entry.
    fn of(git: &Path) -> Option<Self> {
        let top = git.parent()?.to_owned();
        let git = match git.is_dir() {
            true => git.to_owned(),
            false => directory_named_by(git)?,
        };
        let top = Some(top);
        Some(Self { top, git })
    }

    /// Returns the one in this directory, whose working tree is not known.
    pub fn in_directory(git: PathBuf) -> Self {
        Self { top: None, git }
    }

    fn submodules(&self) -> BTreeSet<PathBuf> {
        self.read().submodules
    }

    /// Reads its index.
    pub fn read(&self) -> ReadIndex {
        let mut read = ReadIndex::default();
        let hash_bytes = self.hash_bytes();
        for file in self.indexes() {
            let content = read_within(&file, INDEX_BYTES).unwrap_or_default();
            let index = Index::read(&content, hash_bytes);
            let top = self.top.iter();
            let submodules = top.flat_map(|top| index.submodules.iter().map(|name| top.join(name)));
            read.submodules
                .extend(submodules.map(|folder| lexical(&folder).join(".git")));
            if index.is_forged {
                read.forged.push(file);
            }
        }
        read
    }

    /// The length of its hashes. The command cannot write the settings.
    fn hash_bytes(&self) -> usize {
        let config = settings(&common(&self.git).join("config")).unwrap_or_default();
        let is_sha256 = config.iter().any(|one| {
            (one.section.as_str(), one.key.as_str()) == ("extensions", "objectformat")
                && one.value.eq_ignore_ascii_case("sha256")
        });
        if is_sha256 { SHA256_BYTES } else { SHA1_BYTES }
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
