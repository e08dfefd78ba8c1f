//! Checks the files that the command made in repositories: those that git outside would run or
//! write through are put where git does not find them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::aside::{mark, move_to, put_off};
use super::git::{EmptyRepo, Git, IndexContent, is_sha256, text_of};
use super::guard::is_ours;
use super::record::{ChangeTime, Guard, Repositories};
use super::walk::{FoundRepository, Kind, is_bare, is_mark, is_of_objects};
use crate::folder::{Folder, FolderAccess, kind_of, open_file, path_in};
use crate::list;
use crate::paths::lexical;

/// A finding about a file of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A new repository whose settings run nothing: it stays.
    NewRepository,
    /// The file was renamed to this, for this reason.
    Off(OsString, String),
    /// The file was moved there, for this reason.
    Moved(PathBuf, String),
    /// The file should have been put away, and was not, for this reason.
    Armed(String),
    /// An index that git cannot read.
    Unreadable,
    /// A rebase, or another operation whose next steps may be programs.
    Unfinished,
    /// The settings are not those of the start.
    Settings,
    /// A new or changed file that this tool reads by itself.
    Tool(&'static str),
}

/// Checks repositories, and keeps its findings.
#[derive(Debug)]
pub struct Checker {
    /// The projects.
    pub projects: Vec<PathBuf>,
    /// The state's folder for moved files.
    pub state: PathBuf,
    /// When the command began.
    pub began: ChangeTime,
    /// The directories of repositories that were there at the start, each with its top.
    pub known: BTreeMap<PathBuf, PathBuf>,
    /// The repositories of the start, by the paths at which git finds them.
    pub entries: BTreeMap<PathBuf, FoundRepository>,
    /// The findings.
    pub found: BTreeMap<PathBuf, Found>,
    /// How often something was put away.
    pub acted: usize,
    /// The relative folders of hooks that settings name.
    hooks: BTreeSet<PathBuf>,
    /// The files that the command cannot write. At the end, these are checked as well.
    guards: BTreeMap<PathBuf, Guard>,
    /// Whether the command has ended.
    is_over: bool,
    /// How long reading indexes has taken.
    spent: Duration,
    /// How many bytes may still be moved to the state's folder.
    room: u64,
    git: Option<Git>,
    /// The indexes that were read, with their time of change and inode then.
    read: BTreeMap<PathBuf, (ChangeTime, u64)>,
}

impl Checker {
    /// Creates a checker, with the files at the start.
    pub fn of(projects: Vec<PathBuf>, repositories: &Repositories) -> Self {
        let entries = repositories.entries.iter();
        let directories = repositories.directories.iter();
        Self {
            projects,
            state: repositories.state.clone(),
            began: repositories.began,
            known: directories
                .map(|(directory, top)| (directory.clone(), top.into()))
                .collect(),
            entries: entries
                .map(|entry| (entry.path.clone(), entry.clone()))
                .collect(),
            found: BTreeMap::new(),
            acted: 0,
            hooks: repositories.hooks.clone(),
            guards: repositories.guards.clone(),
            is_over: false,
            spent: Duration::ZERO,
            room: MOST_MOVED,
            git: Git::find(),
            read: BTreeMap::new(),
        }
    }

    /// Makes the next check look at everything again, since a mapping may have changed a file after
    /// it was read. Returns the files that the command could not write.
    pub fn look_anew(&mut self) -> BTreeMap<PathBuf, Guard> {
        self.read.clear();
        (self.is_over, self.spent) = (true, Duration::ZERO);
        std::mem::take(&mut self.guards)
    }

    /// Whether a repository was there at the start.
    pub fn is_known(&self, entry: &FoundRepository) -> bool {
        self.entries.get(&entry.path) == Some(entry)
    }

    /// Judges a new repository, and puts it off if it may run something. Returns the directory of a
    /// repository that stays, and the folders of its submodules.
    pub fn new_repository(&mut self, entry: &FoundRepository) -> Option<(PathBuf, Vec<PathBuf>)> {
        let directory = match self.why_armed(entry) {
            Ok(directory) => directory,
            Err(why) => {
                let path = match entry.kind {
                    Kind::Bare => entry.path.join("HEAD"),
                    _ => entry.path.clone(),
                };
                self.found.remove(&entry.path);
                self.put_off(&path, why);
                return None;
            }
        };
        self.found.insert(entry.path.clone(), Found::NewRepository);
        let submodules = self.directory(&directory, entry.top());
        Some((directory, submodules))
    }

    /// Judges the repositories that git would find in a folder. Returns the directories of new
    /// repositories that stay, each with the folders of its submodules.
    pub fn top(&mut self, top: &Path) -> Vec<(PathBuf, Vec<PathBuf>)> {
        let project = self.project_of(top);
        // Into another mark the command may yet write a name.
        let guards = [top.to_owned(), top.join(".git")];
        let mut guards = guards.iter().filter_map(|path| self.guards.get(path));
        let keeps_mark = self.is_over || guards.any(|guard| *guard != Guard::Pinned);
        let found = project.map(|project| entries_in(&project, top, keeps_mark));
        let mut new = found.unwrap_or_default();
        new.retain(|entry| !self.is_known(entry));
        let stays = new.iter().filter_map(|entry| self.new_repository(entry));
        stays.collect()
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
                FileType::Directory if name == c"remotes" || name == c"branches" => {
                    self.new_names(&path);
                    continue;
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

    /// Moves new files that name the places from which git fetches and to which it pushes.
    fn new_names(&mut self, folder: &Path) {
        let Some(open) = self.open(folder) else {
            return;
        };
        for (name, _) in open.entries(MOST_NAMES, |_| true).unwrap_or_default() {
            if open.look(&*name).is_ok_and(|found| self.is_new(&found)) {
                self.move_away(
                    &path_in(folder, &name),
                    "git fetches and pushes where it says",
                );
            }
        }
    }

    /// Judges a new repository in the directory of another: git outside takes it for that of a
    /// submodule which it checks out.
    fn inner_repository(&mut self, directory: &Path) {
        match self.is_plain_inner(directory) {
            Err(why) => self.put_off(&directory.join("HEAD"), why),
            Ok(()) => _ = self.directory(directory, directory),
        }
    }

    /// Looks for new links and repositories below a repository's directory.
    pub fn links(&mut self, directory: &Path) {
        let mut folders = vec![directory.to_owned()];
        let mut left = MOST_NAMES;
        while let Some(path) = folders.pop() {
            let Some(folder) = self.open(&path) else {
                continue;
            };
            let entries = folder.entries(left, |_| true).unwrap_or_default();
            let has = |wanted: &CStr| entries.iter().any(|(name, _)| name.as_c_str() == wanted);
            let mut parts = path.strip_prefix(directory).into_iter().flatten();
            let is_of_module = parts.any(|part| part == "modules");
            if is_of_module && !self.known.contains_key(&path) && is_bare(has) {
                self.inner_repository(&path);
            }
            for (name, kind) in entries {
                left -= 1;
                let inner = path_in(&path, &name);
                // Only objects are many, and git writes none of them in place.
                let is_object = path == directory.join("objects") && is_of_objects(&path, &name);
                if kind.is_dir() && !is_object {
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

    /// Whether a file was made or changed since the start.
    fn is_new(&self, found: &Stat) -> bool {
        moment_of(found) >= self.began
    }

    /// Renames a file that git would obey.
    pub fn put_off(&mut self, path: &Path, why: String) {
        self.put_away(path, |_, project, _| {
            Ok(Found::Off(put_off(project, path)?, why))
        });
    }

    /// Marks the folders whose repositories were put off, at the end: the command could hold a mark
    /// open, and write another name into it.
    pub fn mark(&mut self) {
        for (path, found) in &mut self.found {
            let project = self.projects.iter().find(|one| path.starts_with(one));
            if let (Found::Off(new, why), Some(project)) = (found, project)
                && let Err(error) = mark(project, path, new)
            {
                let more = format!("; git there may act on a repository above: {error}");
                why.push_str(&more);
            }
        }
    }

    /// Moves a file that git would obey, or write through, to the state's folder.
    pub fn move_away(&mut self, path: &Path, why: &str) {
        self.put_away(path, |state, project, room| {
            let new = move_to(state, project, path, room)?;
            Ok(Found::Moved(new, why.to_owned()))
        });
    }

    fn put_away(
        &mut self,
        path: &Path,
        how: impl FnOnce(&Path, &Path, &mut u64) -> io::Result<Found>,
    ) {
        let Some(project) = self.project_of(path) else {
            return;
        };
        let found = match how(&self.state, &project, &mut self.room) {
            // It was put away with its folder.
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            done => done.unwrap_or_else(|error| Found::Armed(error.to_string())),
        };
        self.acted += 1;
        self.found.insert(path.to_owned(), found);
    }

    /// Has git read a changed index, and moves one whose paths lead out of the working tree.
    fn index(&mut self, folder: &Folder, directory: &Path, top: &Path) -> Vec<PathBuf> {
        let path = directory.join("index");
        let Ok(found) = folder.look(c"index") else {
            return Vec::new();
        };
        let is_part = |name: &CStr| name.to_bytes().starts_with(b"sharedindex.");
        let parts = folder.entries(MOST_NAMES, is_part).unwrap_or_default();
        let parts = parts
            .iter()
            .filter_map(|(name, _)| folder.look(&**name).ok());
        let changed = parts.chain([found]).map(|part| moment_of(&part)).max();
        let mark = (changed.unwrap_or_default(), found.st_ino);
        if mark.0 < self.began || self.read.get(&path) == Some(&mark) {
            return Vec::new();
        }
        let content = self.read_index(&path, directory);
        self.read.insert(path.clone(), mark);
        match content {
            // At the end no process writes it; the user's git may read more of it than ours did.
            None if self.is_over && self.git.is_some() => {
                self.move_away(&path, "git cannot read it");
                Vec::new()
            }
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
            Some(content) if content.submodules.iter().any(|inner| is_far(top, inner)) => {
                self.move_away(&path, "it has a submodule that is too deep to look at");
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

    fn read_index(&mut self, index: &Path, directory: &Path) -> Option<IndexContent> {
        // A command may run for days; at its end a person waits.
        let is_in_time = !self.is_over || self.spent < FOR_INDEXES;
        let git = self.git.as_ref().filter(|_| is_in_time)?;
        let begun = Instant::now();
        let neutral = EmptyRepo::of(&self.state, directory, is_sha256(directory, git)).ok()?;
        let content = git.index(index, &neutral).ok();
        self.spent += begun.elapsed();
        content
    }

    /// Returns the directory of a new repository that runs nothing, or why another may.
    ///
    /// # Errors
    /// Why it may run something.
    fn why_armed(&self, entry: &FoundRepository) -> Result<PathBuf, String> {
        let top = self.open(entry.top()).ok_or("it cannot be read")?;
        let mut hooks = self.hooks.iter();
        if let Some(hooks) = hooks.find(|hooks| top.look(hooks.as_path()).is_ok()) {
            return Err(format!("git would run hooks in `{}`", hooks.display()));
        }
        match entry.kind {
            Kind::Link => Err("it is a link".to_owned()),
            Kind::Directory | Kind::Bare => self.is_plain(&entry.path).map(|()| entry.path.clone()),
            Kind::File => {
                let directory = self.named_by(&entry.path)?;
                match self.known.get(&directory) {
                    None => self.is_plain_inner(&directory)?,
                    Some(top) if top == entry.top() => {}
                    Some(_) => return Err("it leads to the repository of another folder".into()),
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
            let named = text_of(&directory.join("commondir"), b"");
            self.known.contains_key(common) && named.is_some_and(|named| named == "../..")
        })
    }

    /// Returns the directory that a new `.git` file names: written as git writes it, in a project,
    /// and through no link.
    fn named_by(&self, file: &Path) -> Result<PathBuf, String> {
        let named = text_of(file, b"gitdir: ").ok_or("it cannot be read")?;
        let is_odd = |byte: &u8| byte.is_ascii_control();
        let bytes = named.as_bytes();
        if bytes.iter().any(is_odd) || bytes != bytes.trim_ascii() {
            return Err("it is not written as git writes it".to_owned());
        }
        let directory = lexical(&file.parent().unwrap_or(file).join(&named));
        let is_inside = self.open(&directory).is_some();
        is_inside
            .then_some(directory)
            .ok_or_else(|| "it leads out of the project".to_owned())
    }

    /// As [`Self::is_plain`], also for the directory of a worktree.
    fn is_plain_inner(&self, directory: &Path) -> Result<(), String> {
        if !self.is_linked(directory) {
            return self.is_plain(directory);
        }
        let folder = self.open(directory).ok_or("it cannot be read")?;
        self.has_plain_settings(&folder, c"config.worktree")
    }

    /// Checks that nothing in a repository's directory runs: few plain settings, no hooks, no other
    /// repositories.
    fn is_plain(&self, directory: &Path) -> Result<(), String> {
        let folder = self.open(directory).ok_or("it cannot be read")?;
        if folder.look(c"commondir").is_ok() {
            return Err("it has `commondir`".to_owned());
        }
        for name in [c"hooks", c"modules", c"worktrees"] {
            let is_sample = |name: &CStr| name.to_bytes().ends_with(b".sample");
            match folder.look(name).map(kind_of) {
                Err(_) => {}
                Ok(FileType::Directory) => {
                    let inner = folder
                        .child(name, FolderAccess::Read)
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
        let mut files = [c"config", c"config.worktree"].into_iter();
        files.try_for_each(|file| self.has_plain_settings(&folder, file))
    }

    fn has_plain_settings(&self, folder: &Folder, file: &CStr) -> Result<(), String> {
        let config = match open_file(folder, file) {
            Err(Errno::NOENT) => return Ok(()),
            config => config.map_err(|_| "its settings cannot be read")?,
        };
        let git = self.git.as_ref().ok_or("no git of root's can read it")?;
        let settings = git.settings_in(config);
        let settings = settings.map_err(|_| "its settings cannot be read")?;
        match settings.iter().find(|one| !is_plain_key(&one.key)) {
            Some(armed) => Err(format!("its settings have `{}`", armed.key)),
            None => Ok(()),
        }
    }

    fn open(&self, directory: &Path) -> Option<Folder> {
        let project = self.project_of(directory)?;
        Folder::open(&project, directory, FolderAccess::Read).ok()
    }

    fn project_of(&self, path: &Path) -> Option<PathBuf> {
        let mut projects = self.projects.iter();
        projects.find(|project| path.starts_with(project)).cloned()
    }
}

/// Returns the repositories that git would find in a folder: a `.git`, and the folder itself if its
/// names make it one, which git uses if it refuses the `.git`.
fn entries_in(project: &Path, top: &Path, keeps_mark: bool) -> Vec<FoundRepository> {
    let Ok(folder) = Folder::open(project, top, FolderAccess::Read) else {
        return Vec::new();
    };
    let entry = |path: PathBuf, kind, found: Stat| FoundRepository {
        path,
        kind,
        file: (found.st_dev, found.st_ino),
    };
    let own = folder.look(c".git").ok();
    let is_kept = |found: Stat| keeps_mark && kind_of(found).is_file() && is_mark(&folder, c".git");
    let own = own.filter(|found| !is_kept(*found));
    let own = own.map(|found| entry(top.join(".git"), kind_of(found).into(), found));
    let is_there = is_bare(|name| folder.look(name).is_ok());
    let bare = folder.look(c".").ok().filter(|_| is_there);
    let bare = bare.map(|found| entry(top.to_owned(), Kind::Bare, found));
    own.into_iter().chain(bare).collect()
}

/// Whether a path is too long to open, although git may come there folder by folder.
fn is_far(top: &Path, inner: &Path) -> bool {
    top.join(inner).as_os_str().len() > LONGEST_PATH
}

/// Returns when a file was last made or changed.
pub fn moment_of(found: &Stat) -> ChangeTime {
    (found.st_ctime, found.st_ctime_nsec as i64)
}

/// Whether a setting runs nothing and includes no other settings, whatever its value is.
fn is_plain_key(key: &str) -> bool {
    let (section, name) = key.rsplit_once('.').unwrap_or((key, ""));
    let section = section
        .split_once('.')
        .map_or(section, |(section, _)| section);
    list::pairs(include_str!("../data/plain_settings.txt")).any(|plain| plain == (section, name))
}

/// Operations that stopped, and whose next steps may be programs.
const UNFINISHED: [&CStr; 3] = [c"rebase-merge", c"rebase-apply", c"sequencer"];
/// How long indexes are read in total, at the end.
const FOR_INDEXES: Duration = Duration::from_secs(60);
/// How many bytes are moved to the state's folder. A larger file is renamed in its folder.
const MOST_MOVED: u64 = 64 << 20;
/// The longest path of a submodule that is looked at.
const LONGEST_PATH: usize = 4000;
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
