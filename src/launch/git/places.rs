//! Where the command might make a repository that git outside would find while the command runs.
//!
//! These are the working directory, and the folders of submodules: `git status` looks into each
//! folder that the index names as one.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::index::{HASHES, Index, SHA1_BYTES, SHA256_BYTES};
use super::repository::{directory_named_by, is_set_apart, line_of};
use super::settings::{read, read_within, settings};
use crate::after::survey::{Kind, Mark, Survey};
use crate::leave::Leave;
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
    /// Those that no git wrote so, but that somebody may be about to write.
    pub unfinished: Vec<PathBuf>,
    /// The files that git reads, each as it was just before it was read.
    files: Vec<(PathBuf, Option<Mark>)>,
    at: Option<Instant>,
}

impl ReadIndex {
    /// Whether nobody has written the files for a while, if they are current.
    pub fn is_settled(&self) -> bool {
        self.at.is_some_and(|at| at.elapsed() >= SETTLED)
    }

    /// Whether the files seem to be as they were when they were read.
    pub fn is_current(&self) -> bool {
        let mut files = self.files.iter();
        !self.files.is_empty() && files.all(|(file, was)| mark(file) == *was)
    }
}

fn mark(path: &Path) -> Option<Mark> {
    rustix::fs::lstat(path).ok().map(Mark::from)
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

    /// Whether checkouts outside of the projects use its directory: that of a repository which is
    /// itself outside, or of another worktree.
    pub fn is_shared(&self, projects: &[PathBuf], survey: &Survey) -> bool {
        let is_outside = |one: &PathBuf| survey.directories.contains_key(one);
        let mut around = projects.iter().filter(|one| self.git.starts_with(one));
        let of_worktree = self
            .git
            .parent()
            .is_some_and(|one| one.ends_with("worktrees"));
        let is_ours = self.top.iter().any(|top| is_in(top, projects));
        !is_ours && (of_worktree || around.any(is_outside))
    }

    fn submodules(&self) -> BTreeSet<PathBuf> {
        self.read().submodules
    }

    /// Reads its index.
    pub fn read(&self) -> ReadIndex {
        self.read_as(&[self.hash_bytes()], &mut { INDEX_BYTES })
    }

    /// Returns the forged files of the index of a repository that the command made, with its
    /// settings. So many bytes are `left` for all of them: one that is larger counts as forged.
    pub fn forged_of_new(&self, left: &mut u64) -> Vec<PathBuf> {
        let read = self.read_as(hashes_of_new(&read(&self.git.join("config"))), left);
        [read.forged, read.unfinished].concat()
    }

    /// Reads what git would with hashes of one of these lengths: the index, and the file with the
    /// rest of it.
    fn read_as(&self, hashes: &[usize], left: &mut u64) -> ReadIndex {
        let _leave = Leave::to_enter(&self.git);
        let mut read = ReadIndex {
            at: Some(Instant::now()),
            ..ReadIndex::default()
        };
        for name in self.read_file("index", hashes, left, &mut read) {
            self.read_file(&name, hashes, left, &mut read);
        }
        read
    }

    /// Reads one file, and returns the names of those with the rest.
    fn read_file(
        &self,
        name: &str,
        hashes: &[usize],
        left: &mut u64,
        read: &mut ReadIndex,
    ) -> BTreeSet<String> {
        let file = self.git.join(name);
        read.files.push((file.clone(), mark(&file)));
        let content = match content(&file, *left) {
            Ok(content) => content,
            Err(_) => {
                read.forged.push(file);
                return BTreeSet::new();
            }
        };
        *left -= content.len() as u64;
        let found = hashes.iter().map(|length| Index::read(&content, *length));
        let found: Vec<Index> = found.collect();
        let submodules = found.iter().flat_map(|index| &index.submodules);
        read.submodules
            .extend(submodules.filter_map(|name| self.submodule(name)));
        if found.iter().any(|index| index.leads_astray) {
            read.forged.push(file);
        } else if found.iter().any(|index| index.is_forged) {
            read.unfinished.push(file);
        }
        found.into_iter().flat_map(|index| index.shared).collect()
    }

    /// Returns the path of the `.git` entry of a submodule.
    fn submodule(&self, name: &Path) -> Option<PathBuf> {
        let folder = self.top.as_ref()?.join(name);
        Some(lexical(&folder).join(".git"))
    }

    /// The length of its hashes. The command cannot write the settings.
    fn hash_bytes(&self) -> usize {
        let config = settings(&common(&self.git).join("config")).unwrap_or_default();
        let mut formats = config.iter().filter(|one| {
            (one.section.as_str(), one.key.as_str()) == ("extensions", "objectformat")
        });
        let last = formats.next_back();
        let is_sha256 = last.is_some_and(|one| one.value.eq_ignore_ascii_case("sha256"));
        if is_sha256 { SHA256_BYTES } else { SHA1_BYTES }
    }
}

/// Reads a file of an index, also through a link. One that git cannot read either says nothing.
///
/// # Errors
/// If it is no file, too large, or unreadable only until somebody gives leave.
fn content(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let content = fs::canonicalize(file).and_then(|real| read_within(&real, most));
    content.or_else(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(Vec::new()),
        ErrorKind::PermissionDenied if !is_own(file) => Ok(Vec::new()),
        _ => Err(error),
    })
}

/// Whether this user can take and give the leave to read a file.
fn is_own(file: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::metadata(file).is_ok_and(|found| found.uid() == user)
}

/// Returns which hashes git may take for those of a repository with these settings, which the
/// command wrote. Both, if no git wrote them so.
fn hashes_of_new(config: &io::Result<Vec<u8>>) -> &'static [usize] {
    let text = match config {
        Ok(text) => String::from_utf8_lossy(text).to_ascii_lowercase(),
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(_) => return HASHES,
    };
    let says = |value| {
        says_once(&text, "[extensions]", "objectformat", value)
            && says_once(&text, "[core]", "repositoryformatversion", "1")
    };
    match text.contains("objectformat") {
        false => &[SHA1_BYTES],
        true if says("sha256") => &[SHA256_BYTES],
        true if says("sha1") => &[SHA1_BYTES],
        true => HASHES,
    }
}

/// Whether settings say this in the form that git writes, and nothing else of the kind.
fn says_once(text: &str, section: &str, key: &str, value: &str) -> bool {
    let line = format!("{key} = {value}");
    let before = text.lines().map(str::trim).take_while(|one| *one != line);
    let header = before.filter(|one| one.starts_with('[')).last();
    let has = text.lines().any(|one| one.trim() == line);
    has && header == Some(section) && text.matches(key).count() == 1 && !text.contains('\\')
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
/// The largest index that is read, with all its files.
pub const INDEX_BYTES: u64 = 256 << 20;
/// How long an index that no git wrote so is left to whoever may be writing it.
const SETTLED: Duration = Duration::from_secs(1);
