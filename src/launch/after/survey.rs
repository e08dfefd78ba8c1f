//! What the projects contain at one moment: git repositories, and files that tools outside run on
//! their own.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::tools;
use crate::git;
use crate::paths::lexical;

/// What was found.
#[derive(Debug, Default)]
pub struct Survey {
    /// Repositories: the paths of `.git` entries, and of directories that git treats as a bare
    /// repository.
    pub repositories: BTreeMap<PathBuf, Repository>,
    /// Files that a tool runs on its own, with the tool's name.
    pub files: BTreeMap<PathBuf, (Mark, &'static str)>,
    /// Links in the directories of repositories, and others that lead out of the projects.
    pub links: BTreeMap<PathBuf, Mark>,
    /// Paths in the projects that git's settings name and that do not exist, each with whether a
    /// folder counts there, too. Filled in by [`super::Inspection`].
    pub absent: BTreeMap<PathBuf, bool>,
    /// The missing `.git` in whose place the command is shown a directory of its own. Filled in by
    /// [`super::Inspection`].
    pub apart: Option<PathBuf>,
    /// The missing `.git` entries in whose place the command can make nothing. Filled in by
    /// [`super::Inspection`].
    pub barred: BTreeSet<PathBuf>,
    /// The first directory that was not searched, because the limit was reached or it is
    /// unreadable.
    pub missed: Option<PathBuf>,
    left: usize,
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

/// What distinguishes a changed file from an unchanged one. The workload cannot set `changed`, the
/// inode's last change time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Metadata> for Mark {
    fn from(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

impl Repository {
    /// Whether this is still the same as `other`. Directories must be the same object; files and
    /// links must be unchanged.
    pub fn is_still(&self, other: &Self) -> bool {
        let same_object =
            (self.mark.device, self.mark.inode) == (other.mark.device, other.mark.inode);
        let holds_content = matches!(self.kind, Kind::File | Kind::Link);
        self.kind == other.kind && same_object && (!holds_content || self.mark == other.mark)
    }
}

impl Survey {
    /// Searches these directories. Links are not followed.
    pub fn of<'a>(roots: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        let mut survey = Self {
            left: ENTRIES,
            ..Self::default()
        };
        for root in roots {
            survey.tree(root);
        }
        survey
    }

    fn tree(&mut self, root: &Path) {
        let mut stack = vec![(root.to_owned(), None, 0)];
        while let Some((directory, tool, depth)) = stack.pop() {
            if self.left == 0 || depth > DEPTH {
                self.skipped(&directory);
                self.miss(&directory);
                continue;
            }
            let Some(entries) = self.entries(&directory) else {
                continue;
            };
            if is_bare(&entries) {
                self.repository(&directory, Kind::Bare);
            }
            for (name, kind) in entries {
                let path = || directory.join(&name);
                if name.eq_ignore_ascii_case(".git") {
                    self.repository(&path(), kind.into());
                } else if kind == Entry::Directory {
                    if SKIPPED.iter().any(|skipped| name == *skipped) {
                        self.skipped(&path());
                    } else {
                        stack.push((path(), tool.or_else(|| tools::folder(&name)), depth + 1));
                    }
                } else {
                    if kind == Entry::Link && leads_out(&path(), root) {
                        self.link(path());
                    }
                    if let Some(tool) = tool.or_else(|| tools::file(&name)) {
                        self.file(path(), tool);
                    }
                }
            }
        }
    }

    fn entries(&mut self, directory: &Path) -> Option<Vec<(OsString, Entry)>> {
        let Ok(entries) = fs::read_dir(directory) else {
            // A user who may enter it may still use the repository in it.
            if directory.is_dir() {
                self.skipped(directory);
                self.miss(directory);
            }
            return None;
        };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            if self.left == 0 {
                self.miss(directory);
                break;
            }
            self.left -= 1;
            let kind = entry.file_type().map_or(Entry::Other, Entry::from);
            found.push((entry.file_name(), kind));
        }
        Some(found)
    }

    fn repository(&mut self, path: &Path, kind: Kind) {
        let Ok(found) = fs::symlink_metadata(path) else {
            return;
        };
        let mark = Mark::from(&found);
        self.repositories
            .insert(path.to_owned(), Repository { kind, mark });
        let git = match kind {
            Kind::Directory | Kind::Bare => path,
            Kind::File | Kind::Link => return,
        };
        self.links_of_git(git, 0);
        for name in GIT_FILES {
            let path = git.join(name);
            if !git::is_placeholder(&path) {
                self.file(path, "git");
            }
        }
        for entry in fs::read_dir(git.join("hooks"))
            .into_iter()
            .flatten()
            .flatten()
        {
            if entry.path().extension() != Some(OsStr::new("sample")) {
                self.file(entry.path(), "git");
            }
        }
    }

    /// Finds links through which git would write elsewhere. Git never overwrites objects, so only
    /// the folders of objects count.
    fn links_of_git(&mut self, folder: &Path, depth: usize) {
        for (name, kind) in self.entries(folder).unwrap_or_default() {
            let path = folder.join(&name);
            match kind {
                Entry::Link => self.link(path),
                Entry::Directory if folder.ends_with("objects") && name != "info" => {}
                Entry::Directory if depth < DEPTH => self.links_of_git(&path, depth + 1),
                Entry::Directory => self.miss(&path),
                Entry::Other => {}
            }
        }
    }

    fn link(&mut self, path: PathBuf) {
        if let Ok(found) = fs::symlink_metadata(&path) {
            self.links.insert(path, Mark::from(&found));
        }
    }

    /// Checks whether a directory that is not searched is a repository or directly contains one.
    fn skipped(&mut self, directory: &Path) {
        let path = directory.join(".git");
        if let Ok(found) = fs::symlink_metadata(&path) {
            self.repository(&path, Entry::from(found.file_type()).into());
        }
    }

    fn file(&mut self, path: PathBuf, tool: &'static str) {
        if let Ok(found) = fs::symlink_metadata(&path)
            && !found.is_dir()
        {
            self.files.insert(path, (Mark::from(&found), tool));
        }
    }

    fn miss(&mut self, directory: &Path) {
        self.missed.get_or_insert_with(|| directory.to_owned());
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Directory,
    Link,
    Other,
}

impl From<fs::FileType> for Entry {
    fn from(kind: fs::FileType) -> Self {
        match kind {
            kind if kind.is_dir() => Self::Directory,
            kind if kind.is_symlink() => Self::Link,
            _ => Self::Other,
        }
    }
}

impl From<Entry> for Kind {
    fn from(entry: Entry) -> Self {
        match entry {
            Entry::Directory => Self::Directory,
            Entry::Link => Self::Link,
            Entry::Other => Self::File,
        }
    }
}

/// Whether a link names a place outside of `root`, judged by its text.
fn leads_out(link: &Path, root: &Path) -> bool {
    let (Ok(target), Some(folder)) = (fs::read_link(link), link.parent()) else {
        return true;
    };
    !lexical(&folder.join(target)).starts_with(root)
}

/// Whether git treats a directory with these entries as a repository (`is_git_directory` in git's
/// setup.c).
fn is_bare(entries: &[(OsString, Entry)]) -> bool {
    let has = |wanted: &str| {
        entries
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(wanted))
    };
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

/// Directories of installed and built programs. Whoever runs something in them runs what the
/// command made anyway.
const SKIPPED: &[&str] = &["node_modules", "target", ".venv", "venv", "__pycache__"];
/// What git reads from its directory and obeys, or continues on request.
const GIT_FILES: &[&str] = &[
    "config",
    "config.worktree",
    "commondir",
    "rebase-merge/git-rebase-todo",
    "rebase-apply/next",
];
const ENTRIES: usize = 500_000;
const DEPTH: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf, content: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn every_form_of_a_repository_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write(at("a/.git/HEAD"), "");
        write(at("b/.GIT/config"), "");
        write(at("c/.git"), "gitdir: elsewhere\n");
        fs::create_dir(at("d")).unwrap();
        std::os::unix::fs::symlink("../a/.git", at("d/.git")).unwrap();
        write(at("e/f/HEAD"), "");
        fs::create_dir_all(at("e/f/objects")).unwrap();
        fs::create_dir_all(at("e/f/refs")).unwrap();
        write(at("e/f/g/.git"), "");
        write(at("target/.git/HEAD"), "");
        write(at("g/HEAD"), "no repository");
        let survey = Survey::of([&folder.path().to_owned()]);
        let found: Vec<(PathBuf, Kind)> = survey
            .repositories
            .iter()
            .map(|(path, found)| {
                (
                    path.strip_prefix(folder.path()).unwrap().to_owned(),
                    found.kind,
                )
            })
            .collect();
        let expected = [
            ("a/.git", Kind::Directory),
            ("b/.GIT", Kind::Directory),
            ("c/.git", Kind::File),
            ("d/.git", Kind::Link),
            ("e/f", Kind::Bare),
            ("e/f/g/.git", Kind::File),
            ("target/.git", Kind::Directory),
        ]
        .map(|(path, kind)| (PathBuf::from(path), kind));
        assert_eq!(found, expected);
        assert_eq!(survey.missed, None);
    }

    #[test]
    fn a_file_that_was_touched_back_is_still_a_changed_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Makefile");
        fs::write(&path, "all:\n").unwrap();
        let roots = [folder.path().to_owned()];
        let before = Survey::of(&roots).files[&path];
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&path, "bad:\n").unwrap();
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(modified)
            .unwrap();
        let after = Survey::of(&roots).files[&path];
        assert_ne!(before, after);
        assert_eq!(before.0.modified, after.0.modified);
    }

    #[test]
    fn links_that_lead_out_and_those_of_git_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a/.git/logs")).unwrap();
        for (link, target) in [
            ("a/in", "../b"),
            ("a/out", "../../b"),
            ("a/far", "/etc/passwd"),
            ("a/.git/logs/HEAD", "../index"),
            ("a/.git/index", "/etc/passwd"),
        ] {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        let survey = Survey::of([&folder.path().to_owned()]);
        let expected = ["a/.git/index", "a/.git/logs/HEAD", "a/far", "a/out"].map(at);
        assert_eq!(survey.links.keys().cloned().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_lies_too_deep_is_said_to_be_missed() {
        let folder = tempfile::tempdir().unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", DEPTH + 2).collect();
        fs::create_dir_all(folder.path().join(deep)).unwrap();
        let unsearched: PathBuf = std::iter::repeat_n("d", DEPTH + 1).collect();
        let git = folder.path().join(unsearched).join(".git");
        fs::create_dir(&git).unwrap();
        let survey = Survey::of([&folder.path().to_owned()]);
        assert!(survey.missed.is_some());
        // A repository is found even where nothing else is looked for.
        assert!(survey.repositories.contains_key(&git));
    }
}
