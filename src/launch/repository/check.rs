//! Looks at what the command made in repositories: what git outside would run or write through is
//! put where git does not find it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsString};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

use super::aside::{move_to, put_off};
use super::found::{is_sha256, line_of, named_by};
use super::git::{Git, IndexContent, Neutral};
use super::guard::is_ours;
use super::record::{Guard, Moment, Repositories};
use super::walk::{Entry, Kind, is_bare};
use crate::folder::{Folder, To, kind_of, path_in};
use crate::list;

/// What was found of the command's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A new repository whose settings run nothing: it stays.
    NewRepository,
    /// Something that was renamed to this, and why.
    Off(OsString, String),
    /// Something that was moved there, and why.
    Moved(PathBuf, String),
    /// Something that should have been, and why it was not.
    Armed(String),
    /// An index that git cannot read.
    Unreadable,
    /// A rebase, or another operation whose steps may be programs.
    Unfinished,
    /// Settings that are not those of the start.
    Settings,
    /// A new or changed file that this tool reads by itself.
    Tool(&'static str),
}

/// Looks at repositories, and keeps what it found.
#[derive(Debug)]
pub struct Checker {
    /// The projects.
    pub projects: Vec<PathBuf>,
    /// The state's folder for what is moved.
    pub state: PathBuf,
    /// When the command began.
    pub began: Moment,
    /// The directories of repositories that were there at the start.
    pub known: BTreeSet<PathBuf>,
    /// What git finds them by.
    pub entries: BTreeMap<PathBuf, Entry>,
    /// What was found.
    pub found: BTreeMap<PathBuf, Found>,
    /// How often something was put away.
    pub acted: usize,
    /// What the command cannot write. At the end all is looked at.
    guards: BTreeMap<PathBuf, Guard>,
    git: Option<Git>,
    /// The indexes that were read, as they were then.
    read: BTreeMap<PathBuf, (Moment, u64)>,
}

impl Checker {
    /// Knows what was there at the start.
    pub fn of(projects: Vec<PathBuf>, repositories: &Repositories) -> Self {
        let entries = repositories.entries.iter();
        Self {
            projects,
            state: repositories.state.clone(),
            began: repositories.began,
            known: repositories.directories.keys().cloned().collect(),
            entries: entries
                .map(|entry| (entry.path.clone(), entry.clone()))
                .collect(),
            found: BTreeMap::new(),
            acted: 0,
            guards: repositories.guards.clone(),
            git: Git::find(),
            read: BTreeMap::new(),
        }
    }

    /// Looks at everything anew: what was read may have changed since, through a mapping. Returns
    /// what the command could not write.
    pub fn look_anew(&mut self) -> BTreeMap<PathBuf, Guard> {
        self.read.clear();
        std::mem::take(&mut self.guards)
    }

    /// Whether a repository was there at the start.
    pub fn is_known(&self, entry: &Entry) -> bool {
        self.entries.get(&entry.path) == Some(entry)
    }

    /// Judges a new repository, and puts off one that may run something.
    pub fn new_repository(&mut self, entry: &Entry) {
        let directory = match self.why_armed(entry) {
            Ok(directory) => directory,
            Err(why) => {
                let path = match entry.kind {
                    Kind::Bare => entry.path.join("HEAD"),
                    _ => entry.path.clone(),
                };
                self.found.remove(&entry.path);
                return self.put_off(&path, why);
            }
        };
        self.found.insert(entry.path.clone(), Found::NewRepository);
        self.directory(&directory, entry.top());
    }

    /// Looks at the names in a repository's directory, and at its index. Returns the folders of
    /// its submodules, if the index was read.
    pub fn directory(&mut self, directory: &Path, top: &Path) -> Vec<PathBuf> {
        let Some(folder) = self.open(directory) else {
            return Vec::new();
        };
        for (name, kind) in folder.entries(MOST_NAMES, |_| true).unwrap_or_default() {
            let path = path_in(directory, &name);
            let name = name.as_c_str();
            let is_new = folder.look(name).is_ok_and(|found| self.is_new(&found));
            let why = match kind {
                _ if !is_new || self.guards.contains_key(&path) || is_ours(&path) => continue,
                FileType::Symlink => "git would write elsewhere through it",
                _ if name == c"MERGE_RR" => "a commit copies the files that it names",
                FileType::RegularFile if name == c"commondir" && !self.is_linked(directory) => {
                    "it leads git to other settings"
                }
                FileType::Directory if UNFINISHED.contains(&name) => {
                    self.found.insert(path, Found::Unfinished);
                    continue;
                }
                _ => continue,
            };
            self.move_away(&path, why);
        }
        self.index(&folder, directory, top)
    }

    /// Looks for new links below a repository's directory.
    pub fn links(&mut self, directory: &Path) {
        let mut folders = vec![directory.to_owned()];
        let mut left = MOST_NAMES;
        while let Some(path) = folders.pop() {
            let Some(folder) = self.open(&path) else {
                continue;
            };
            // Objects alone are many, and are read by their names.
            let is_object = |name: &CStr| path.ends_with("objects") && name.to_bytes().len() == 2;
            for (name, kind) in folder
                .entries(left, |name| !is_object(name))
                .unwrap_or_default()
            {
                left -= 1;
                let inner = path_in(&path, &name);
                if kind.is_dir() {
                    folders.push(inner);
                } else if kind.is_symlink() && folder.look(&*name).is_ok_and(|it| self.is_new(&it))
                {
                    self.move_away(&inner, "git would write elsewhere through it");
                }
            }
        }
        if left == 0 {
            let why = "it has too many names to look through".to_owned();
            self.found.insert(directory.to_owned(), Found::Armed(why));
        }
    }

    /// Whether something was made or changed since the start.
    pub fn is_new(&self, found: &Stat) -> bool {
        (found.st_ctime, found.st_ctime_nsec as i64) >= self.began
    }

    /// Renames what git would obey.
    pub fn put_off(&mut self, path: &Path, why: String) {
        let done = self.project_of(path).map(|project| put_off(&project, path));
        self.note(path, done.map(|done| done.map(|new| Found::Off(new, why))));
    }

    /// Moves what git would obey, or write through, to the state's folder.
    pub fn move_away(&mut self, path: &Path, why: &str) {
        let done = self
            .project_of(path)
            .map(|project| move_to(&self.state, &project, path));
        self.note(
            path,
            done.map(|done| done.map(|new| Found::Moved(new, why.to_owned()))),
        );
    }

    fn note(&mut self, path: &Path, done: Option<std::io::Result<Found>>) {
        let found = match done {
            None => return,
            // It went with what was around it.
            Some(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => return,
            Some(Err(error)) => Found::Armed(error.to_string()),
            Some(Ok(found)) => found,
        };
        self.acted += 1;
        self.found.insert(path.to_owned(), found);
    }

    /// Reads a changed index by git, and moves one that leads astray.
    fn index(&mut self, folder: &Folder, directory: &Path, top: &Path) -> Vec<PathBuf> {
        let path = directory.join("index");
        let Ok(found) = folder.look(c"index") else {
            return Vec::new();
        };
        let mark = ((found.st_ctime, found.st_ctime_nsec as i64), found.st_ino);
        if !self.is_new(&found) || self.read.get(&path) == Some(&mark) {
            return Vec::new();
        }
        let content = self.read_index(&path, directory);
        self.read.insert(path.clone(), mark);
        match content {
            None => {
                self.found.insert(path, Found::Unreadable);
                Vec::new()
            }
            Some(IndexContent {
                astray: Some(astray),
                ..
            }) => {
                let why = format!(
                    "its path `{}` leads out of the working tree",
                    astray.display()
                );
                self.move_away(&path, &why);
                Vec::new()
            }
            Some(content) => {
                self.found.remove(&path);
                content
                    .submodules
                    .iter()
                    .map(|inner| top.join(inner))
                    .collect()
            }
        }
    }

    fn read_index(&self, index: &Path, directory: &Path) -> Option<IndexContent> {
        let neutral = Neutral::of(&self.state, directory, is_sha256(directory)).ok()?;
        self.git.as_ref()?.index(index, &neutral).ok()
    }

    /// Returns the directory of a new repository that runs nothing, or why another may.
    fn why_armed(&self, entry: &Entry) -> Result<PathBuf, String> {
        match entry.kind {
            Kind::Link => Err("it is a link".to_owned()),
            Kind::Directory | Kind::Bare => self.is_plain(&entry.path).map(|()| entry.path.clone()),
            Kind::File => {
                let directory = named_by(&entry.path).ok_or("it leads nowhere")?;
                if self.known.contains(&directory) {
                    return Ok(directory);
                }
                match self.is_linked(&directory) {
                    true => self.is_plain_worktree(&directory)?,
                    false => self.is_plain(&directory)?,
                }
                Ok(directory)
            }
        }
    }

    /// Whether a directory is one that git makes for a new worktree of a known repository.
    fn is_linked(&self, directory: &Path) -> bool {
        let common = directory
            .parent()
            .filter(|above| above.ends_with("worktrees"));
        let common = common.and_then(Path::parent);
        common.is_some_and(|common| {
            let line = line_of(&directory.join("commondir"));
            self.known.contains(common) && line.as_deref() == Some("../..")
        })
    }

    fn is_plain_worktree(&self, directory: &Path) -> Result<(), String> {
        let folder = self.open(directory).ok_or("it cannot be read")?;
        match folder.look(c"config.worktree") {
            Ok(_) => Err("it has settings of its own".to_owned()),
            Err(_) => Ok(()),
        }
    }

    /// Whether a repository's directory has nothing that runs: few plain settings, no hooks, no
    /// other repositories.
    fn is_plain(&self, directory: &Path) -> Result<(), String> {
        let folder = self.open(directory).ok_or("it cannot be read")?;
        for name in [c"commondir", c"config.worktree"] {
            if folder.look(name).is_ok() {
                return Err(format!("it has `{}`", name.to_string_lossy()));
            }
        }
        for name in [c"hooks", c"modules", c"worktrees"] {
            let is_sample = |name: &CStr| name.to_bytes().ends_with(b".sample");
            match folder.look(name).map(kind_of) {
                Err(_) => {}
                Ok(FileType::Directory) => {
                    let inner = folder
                        .child(name, To::Read)
                        .map_err(|error| error.to_string())?;
                    let names = inner.entries(1, |name| !is_sample(name));
                    let names = names.map_err(|error| error.to_string())?;
                    if let Some((found, _)) = names.first() {
                        let (name, found) = (name.to_string_lossy(), found.to_string_lossy());
                        return Err(format!("it has `{name}/{found}`"));
                    }
                }
                Ok(_) => return Err(format!("its `{}` is no folder", name.to_string_lossy())),
            }
        }
        self.has_plain_settings(&directory.join("config"))
    }

    fn has_plain_settings(&self, config: &Path) -> Result<(), String> {
        if std::fs::symlink_metadata(config).is_err() {
            return Ok(());
        }
        let git = self
            .git
            .as_ref()
            .ok_or("there is no git of root's to read its settings")?;
        let settings = git
            .settings(config)
            .map_err(|_| "its settings cannot be read")?;
        match settings.iter().find(|one| !is_plain_key(&one.key)) {
            Some(armed) => Err(format!("its settings have `{}`", armed.key)),
            None => Ok(()),
        }
    }

    fn open(&self, directory: &Path) -> Option<Folder> {
        let project = self.project_of(directory)?;
        Folder::open(&project, directory, To::Read).ok()
    }

    fn project_of(&self, path: &Path) -> Option<PathBuf> {
        let mut projects = self.projects.iter();
        projects.find(|project| path.starts_with(project)).cloned()
    }
}

/// Returns the repository that git would find in a folder.
pub fn entry_in(project: &Path, top: &Path) -> Option<Entry> {
    let folder = Folder::open(project, top, To::Read).ok()?;
    let entry = |path: PathBuf, kind, found: Stat| {
        Some(Entry {
            path,
            kind,
            file: (found.st_dev, found.st_ino),
        })
    };
    if let Ok(found) = folder.look(c".git") {
        return entry(top.join(".git"), kind_of(found).into(), found);
    }
    let is_there = is_bare(|name| folder.look(name).is_ok());
    let found = folder.look(c".").ok().filter(|_| is_there)?;
    entry(top.to_owned(), Kind::Bare, found)
}

/// Whether a setting runs nothing and leads to no other settings, whatever its value is.
fn is_plain_key(key: &str) -> bool {
    let (section, name) = key.rsplit_once('.').unwrap_or((key, ""));
    let section = section
        .split_once('.')
        .map_or(section, |(section, _)| section);
    list::pairs(include_str!("../data/plain_settings.txt")).any(|plain| plain == (section, name))
}

/// Operations that stopped, and whose next steps may be programs.
const UNFINISHED: [&CStr; 3] = [c"rebase-merge", c"rebase-apply", c"sequencer"];
/// How many names of a repository are looked at.
const MOST_NAMES: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_runs_nothing_is_plain() {
        for key in [
            "core.bare",
            "remote.origin.url",
            "branch.a.b.merge",
            "user.name",
        ] {
            assert!(is_plain_key(key), "{key}");
        }
        for key in [
            "core.fsmonitor",
            "alias.st",
            "filter.x.clean",
            "core",
            "include.path",
        ] {
            assert!(!is_plain_key(key), "{key}");
        }
    }
}
