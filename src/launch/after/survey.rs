//! What the projects contain at one moment: git repositories, and files that tools outside run on
//! their own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

/// What was found.
#[derive(Debug, Default)]
pub struct Survey {
    /// Repositories: the paths of `.git` entries, and of directories that git treats as a bare
    /// repository.
    pub repositories: BTreeMap<PathBuf, Repository>,
    /// The directories of repositories, also of those in others.
    pub directories: BTreeMap<PathBuf, Mark>,
    /// Names in the directories of repositories that git may obey, whatever is in them.
    pub obeyed: BTreeSet<PathBuf>,
    /// Files that git or a tool runs or obeys on its own.
    pub files: BTreeMap<PathBuf, (Mark, Reader)>,
    /// Names of which a repository's directory consists, in any folder, before the command ran.
    pub parts: BTreeMap<PathBuf, Mark>,
    /// Links in the directories of repositories, and others that lead out of the projects.
    pub links: BTreeMap<PathBuf, Mark>,
    /// The texts of those in the directories of repositories, before the command ran.
    pub texts: BTreeMap<PathBuf, PathBuf>,
    /// Links within a project with a name that a tool reads, and what they lead to. What that holds
    /// is searched as what they name.
    pub followed: BTreeMap<PathBuf, (Mark, PathBuf)>,
    /// Paths in the projects that git's settings name and that do not exist, each with whether a
    /// folder counts there, too. Filled in by [`super::Inspection`].
    pub absent: BTreeMap<PathBuf, bool>,
    /// The missing `.git` in whose place the command is shown a directory of its own. Filled in by
    /// [`super::Inspection`].
    pub apart: Option<PathBuf>,
    /// The missing `.git` entries in whose place the command can make nothing. Filled in by
    /// [`super::Inspection`].
    pub barred: BTreeSet<PathBuf>,
    /// Directories that were not searched, because a limit was reached or they are unreadable.
    pub missed: BTreeSet<PathBuf>,
    /// Directories of whose entries not all are noted, because their paths take too much memory.
    /// Repositories were looked for there.
    pub crowded: BTreeSet<PathBuf>,
    /// What another sandbox made.
    pub forgotten: BTreeSet<PathBuf>,
}

/// Who reads a file without being given its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reader {
    /// Git.
    Git,
    /// This tool.
    Tool(&'static str),
    /// Perhaps a tool: the name of the file, or of a folder around it, begins with a dot.
    Unknown,
}

/// One repository, as git finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repository {
    /// How git finds it.
    pub kind: Kind,
    mark: Mark,
}

/// How git finds a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By a directory `.git`.
    Directory,
    /// By a file `.git` that names the directory.
    File,
    /// By a link `.git`.
    Link,
    /// By its own contents.
    Bare,
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Link,
            _ => Self::File,
        }
    }
}

/// What distinguishes a changed file from an unchanged one. The workload cannot set `changed`, the
/// inode's last change time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl From<Stat> for Mark {
    fn from(found: Stat) -> Self {
        Self {
            device: found.st_dev,
            inode: found.st_ino,
            size: found.st_size,
            modified: (found.st_mtime, found.st_mtime_nsec),
            changed: (found.st_ctime, found.st_ctime_nsec),
        }
    }
}

impl Mark {
    /// Whether it marks the same object, changed or not.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl Repository {
    /// What is found with this mark.
    pub fn new(kind: Kind, mark: Mark) -> Self {
        Self { kind, mark }
    }

    /// Whether this is still the same as `other`. Directories must be the same object; files and
    /// links must be unchanged.
    pub fn is_still(&self, other: &Self) -> bool {
        let same_object = self.mark.is_same(&other.mark);
        let holds_content = matches!(self.kind, Kind::File | Kind::Link);
        self.kind == other.kind && same_object && (!holds_content || self.mark == other.mark)
    }
}

impl Survey {
    /// Forgets a path: it was not the user's.
    pub fn forget(&mut self, path: &Path) {
        self.repositories.remove(path);
        self.obeyed.remove(path);
        self.files.remove(path);
        self.links.remove(path);
        self.followed.remove(path);
        self.parts.remove(path);
        self.texts.remove(path);
        self.forgotten.insert(path.to_owned());
    }

    /// Files that named tools run or obey.
    pub fn files_of_tools(&self) -> impl Iterator<Item = &PathBuf> {
        let of_tool =
            |(_, (_, reader)): &(&PathBuf, &(Mark, Reader))| matches!(reader, Reader::Tool(_));
        self.files.iter().filter(of_tool).map(|(path, _)| path)
    }

    /// Whether no repository is known at this path, since it or a directory above it was not
    /// searched.
    pub fn misses(&self, path: &Path) -> bool {
        !self.missed.is_empty() && has_any(path, |above| self.missed.contains(above))
    }

    /// Whether something may have been at this path and is not known.
    pub fn is_unsure_of(&self, path: &Path) -> bool {
        let is_crowded = |above: &Path| self.crowded.contains(above);
        self.misses(path) || !self.crowded.is_empty() && has_any(path, is_crowded)
    }

    /// The same for a path in the directory of a repository, which what surrounds that does not
    /// crowd.
    pub fn is_unsure_of_git(&self, path: &Path) -> bool {
        let is_crowded = |above: &Path| self.crowded.contains(above) && self.is_of_git(above);
        self.misses(path) || !self.crowded.is_empty() && has_any(path, is_crowded)
    }

    /// Whether something may be in this directory and is not known.
    pub fn is_unsure_within(&self, path: &Path) -> bool {
        let mut crowded = self.crowded.range(path.to_owned()..);
        crowded.next().is_some_and(|one| one.starts_with(path))
    }

    /// Returns the directories that were not searched in whole.
    pub fn unsearched(&self) -> impl Iterator<Item = &PathBuf> {
        self.missed.iter().chain(&self.crowded)
    }

    /// Whether the path is in the directory of a repository.
    pub fn is_of_git(&self, path: &Path) -> bool {
        has_any(path, |above| self.directories.contains_key(above))
    }
}

/// Whether this holds for a path or for any directory above it.
pub fn has_any(path: &Path, is_it: impl Fn(&Path) -> bool) -> bool {
    path.ancestors().any(is_it)
}
