//! Searches projects for repositories, by open folders: a command may have made paths that are too
//! long to open by name, and another command may still write there.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::path::Arg;
use serde::{Deserialize, Serialize};

use super::tools::FolderRole;
use crate::exact;
use crate::folder::{Folder, FolderAccess, open_file, path_in};

/// How git finds a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

/// A repository as git finds it: by a `.git`, or the folder of a bare repository.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FoundRepository {
    /// Its path.
    #[serde(with = "exact::one")]
    pub path: PathBuf,
    /// How git finds it.
    pub kind: Kind,
    /// The device and the inode.
    pub file: (u64, u64),
}

impl FoundRepository {
    /// Returns the folder that git treats as the top of the working tree.
    pub fn top(&self) -> &Path {
        match self.kind {
            Kind::Bare => &self.path,
            _ => self.path.parent().unwrap_or(&self.path),
        }
    }
}

/// A search in progress.
pub struct Walk<V> {
    /// Gets the names that tools read.
    pub visitor: V,
    /// The repositories.
    pub entries: Vec<FoundRepository>,
    /// Folders that were not searched: a limit was reached, or they cannot be read.
    pub missed: BTreeSet<PathBuf>,
    left: usize,
}

/// Gets each name that a tool reads.
pub trait SearchVisitor {
    /// Handles a name that this tool reads, outside of a repository's own directory.
    fn name(&mut self, folder: &Folder, path: &Path, name: &CStr, tool: &'static str);
}

impl<V: SearchVisitor> Walk<V> {
    /// Searches these folders.
    pub fn over(roots: &[PathBuf], visitor: V) -> Self {
        let mut walk = Self {
            visitor,
            entries: Vec::new(),
            missed: BTreeSet::new(),
            left: ENTRIES,
        };
        for root in roots {
            match Folder::open(root, root, FolderAccess::Read) {
                Ok(folder) => walk.folder(&folder, root, FolderRole::Project, 0),
                Err(_) => _ = walk.missed.insert(root.clone()),
            }
        }
        walk
    }

    fn folder(&mut self, folder: &Folder, path: &Path, within: FolderRole, depth: usize) {
        let Ok(entries) = folder.entries(self.left, |_| true) else {
            self.missed.insert(path.to_owned());
            return;
        };
        self.left -= entries.len();
        if self.left == 0 || depth > DEEPEST || self.entries.len() > MOST_REPOSITORIES {
            self.missed.insert(path.to_owned());
            return;
        }
        let has = |wanted: &CStr| entries.iter().any(|(name, _)| name.as_c_str() == wanted);
        // A bare repository that also has a `.git` is found by that, unless git refuses it.
        let is_bare = is_bare(has);
        if is_bare && !is_off(path) {
            self.note(folder, path, c".", Kind::Bare);
        }
        for (name, kind) in &entries {
            if name.as_c_str() == GIT {
                self.note(folder, path, name, (*kind).into());
                continue;
            }
            if let Some(tool) = within.reader(name) {
                self.visitor.name(folder, path, name, tool);
            }
            if kind.is_dir() {
                let inner = path_in(path, name);
                match folder.child(name.as_c_str(), FolderAccess::Read) {
                    Ok(child) => self.folder(&child, &inner, within.inner(name), depth + 1),
                    Err(_) => _ = self.missed.insert(inner),
                }
            }
        }
    }

    fn note(&mut self, folder: &Folder, path: &Path, name: &CStr, kind: Kind) {
        if kind == Kind::File && is_mark(folder, name) {
            return;
        }
        if let Ok(found) = folder.look(name) {
            let path = match kind {
                Kind::Bare => path.to_owned(),
                _ => path.join(OsStr::from_bytes(name.to_bytes())),
            };
            let file = (found.st_dev, found.st_ino);
            self.entries.push(FoundRepository { path, kind, file });
        }
    }
}

/// Whether a file is one of those that stand for a repository which was put off, and nothing else.
pub fn is_mark(folder: impl AsFd, name: impl Arg) -> bool {
    let mut text = Vec::new();
    let most = (MARK.len() + LONGEST) as u64;
    let read = open_file(folder, name).map(|file| file.take(most).read_to_end(&mut text));
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-".contains(byte);
    let named = text.strip_prefix(MARK);
    let named = named.and_then(|rest| rest.strip_suffix(b"\n"));
    read.is_ok_and(|read| read.is_ok()) && named.is_some_and(|named| named.iter().all(is_plain))
}

/// Whether a repository was put off: it is none unless a person goes into it.
fn is_off(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.starts_with(&[b".git", OFF].concat())
}

/// Whether git takes a folder with such names for a repository.
pub fn is_bare(has: impl Fn(&CStr) -> bool) -> bool {
    has(c"HEAD") && (has(c"objects") && has(c"refs") || has(c"commondir"))
}

/// Whether a name in a repository's `objects` is a folder with objects only.
pub fn is_of_objects(folder: &Path, name: &CStr) -> bool {
    let name = name.to_bytes();
    folder.ends_with("objects") && name.len() == 2 && name.iter().all(u8::is_ascii_hexdigit)
}

const GIT: &CStr = c".git";
/// Nothing is ever below this device, so git fails with these words.
pub const MARK: &[u8] = b"gitdir: /dev/null/put away by gateway, see ";
/// What stands between the name of what was put off and letters that nobody foresees.
pub const OFF: &[u8] = b".off-";
/// How much of a name is kept when it is extended.
pub const LONGEST: usize = 200;
/// How many entries are looked at, how deep, and how many repositories are noted.
const ENTRIES: usize = 2_000_000;
const DEEPEST: usize = 128;
const MOST_REPOSITORIES: usize = 10_000;
