//! The git files in the projects when the command starts, and which of them the command may not
//! change. Git itself reads the settings.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Stat};
use rustix::time::ClockId;

use super::git::{EmptyRepo, Git, content_of, has, is_sha256, mentions, text_of};
use super::record::{Guard, Repositories};
use super::walk::{FoundRepository, Kind, SearchVisitor, Walk, is_mark};
use crate::error::Error;
use crate::failure::{Failure, Step};
use crate::folder::{Folder, FolderAccess, path_in};
use crate::identity::home_of;
use crate::mount_plan::MountPlan;
use crate::paths::lexical;
use crate::program::{links, real};

/// Finds the repositories of a plan's projects, and their guarded parts.
///
/// # Errors
/// A [`Step::Git`] failure that names what cannot be guarded.
pub fn find(plan: &MountPlan, state: &Path) -> Result<Repositories, Error> {
    // The clock by which the kernel notes changes.
    let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    let mut search = Search {
        projects: &plan.projects,
        state,
        git: Git::find(),
        found: Repositories {
            state: state.to_owned(),
            began: (now.tv_sec, now.tv_nsec),
            ..Repositories::default()
        },
        own: own_settings(),
    };
    if plan.guard_git || plan.guard_tools {
        let visitor = Tools {
            wanted: plan.guard_tools,
            found: Vec::new(),
        };
        let walk = Walk::over(&plan.projects, visitor);
        search.found.missed = walk.missed;
        let tools = walk.visitor.found.iter();
        tools.for_each(|path| search.guard_target(path, Guard::ReadOnly));
        if plan.guard_git {
            search.own_settings()?;
            // Otherwise the command could write another name into it.
            let marks = plan.projects.iter().map(|project| project.join(".git"));
            let marks = marks.filter(|file| is_mark(CWD, file));
            marks.for_each(|file| search.guard(&file, Guard::ReadOnly));
            search.found.entries = walk.entries;
            for entry in search.found.entries.clone() {
                search.entry(&entry)?;
            }
        }
    }
    for path in plan.read_only.iter().filter(|path| path.exists()) {
        search.guard(path, Guard::ReadOnly);
    }
    search.other_names()?;
    Ok(search.found)
}

struct Tools {
    wanted: bool,
    found: Vec<PathBuf>,
}

impl SearchVisitor for Tools {
    fn name(&mut self, _: &Folder, path: &Path, name: &CStr, _: &'static str) {
        if self.wanted {
            self.found.push(path_in(path, name));
        }
    }
}

struct Search<'a> {
    projects: &'a [PathBuf],
    state: &'a Path,
    git: Option<Git>,
    found: Repositories,
    /// The user's own files of settings, and the system's, whether or not they are there.
    own: Vec<PathBuf>,
}

impl Search<'_> {
    /// Guards the user's own settings where they lie in a project, and what they name there.
    fn own_settings(&mut self) -> Result<(), Failure> {
        for file in self.own.clone() {
            self.guard_target(&file, Guard::File);
            for project in self.projects {
                self.named(&file, project, DEEPEST)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, entry: &FoundRepository) -> Result<(), Failure> {
        let directory = match entry.kind {
            Kind::File => named_by(&entry.path),
            Kind::Directory | Kind::Bare => Some(entry.path.clone()),
            Kind::Link => Some(real(&entry.path)),
        };
        match entry.kind {
            Kind::File => self.guard(&entry.path, Guard::ReadOnly),
            Kind::Link => self.guard_target(&entry.path, Guard::Pinned),
            Kind::Directory | Kind::Bare => self.guard(&entry.path, Guard::Pinned),
        }
        match directory.filter(|one| self.is_inside(one)) {
            Some(directory) => self.directory(&directory, entry.top(), 0),
            None => Ok(()),
        }
    }

    /// Guards a repository's directory, and those of its submodules and worktrees.
    fn directory(&mut self, directory: &Path, top: &Path, depth: usize) -> Result<(), Failure> {
        let known = self.found.directories.get(directory);
        if depth > DEEPEST || known.is_some_and(|known| known == top || directory == top) {
            return Ok(());
        }
        if known.is_some_and(|known| known != directory.as_os_str()) {
            return self.named_at(directory, top);
        }
        let of = directory.to_owned();
        self.found.directories.insert(of, top.into());
        self.guard(directory, Guard::Pinned);
        self.settings(directory, top)?;
        self.absent_submodules(directory, top)?;
        for inner in repositories_in(&directory.join("modules"), DEEPEST) {
            self.directory(&inner, &inner, depth + 1)?;
        }
        if is_linked(directory) {
            return Ok(());
        }
        let worktrees = fs::read_dir(directory.join("worktrees"));
        for worktree in worktrees.into_iter().flatten().flatten() {
            let path = worktree.path();
            // Its `gitdir` names the `.git` of the working tree.
            let top = text_of(&path.join("gitdir"), b"").map(|named| path.join(named));
            let top = top.as_deref().and_then(Path::parent).unwrap_or(&path);
            self.directory(&path, &real(top), depth + 1)?;
        }
        Ok(())
    }

    /// Guards the settings and hooks of a repository's directory, and the files that they name.
    fn settings(&mut self, directory: &Path, top: &Path) -> Result<(), Failure> {
        let at = |name: &str| directory.join(name);
        self.guard_target(&at("config.worktree"), Guard::File);
        if is_linked(directory) {
            self.guard_target(&at("gitdir"), Guard::ReadOnly);
            self.guard_target(&at("commondir"), Guard::ReadOnly);
            return self.named_at(directory, top);
        }
        self.guard_target(&at("config"), Guard::File);
        self.hooks(&at("hooks"));
        let has_tree = mentions(&at("config"), &[b"worktree"])
            && self.values(&at("config"), &["core.worktree"])?.len() == 1;
        if !has_tree {
            self.guard_target(&at("commondir"), Guard::Commondir);
        }
        self.named_at(directory, top)
    }

    /// Guards what the settings that count in a working tree name: its own, those that it shares,
    /// and the user's.
    fn named_at(&mut self, directory: &Path, top: &Path) -> Result<(), Failure> {
        let shared = text_of(&directory.join("commondir"), b"").filter(|_| is_linked(directory));
        let common = lexical(&directory.join(shared.unwrap_or_default()));
        let files = [common.join("config"), directory.join("config.worktree")];
        let own = self.own.clone();
        let mut files = files.iter().chain(&own);
        files.try_for_each(|file| self.named(file, top, DEEPEST))
    }

    /// Guards a folder of hooks, and the programs of the projects to which its links lead.
    fn hooks(&mut self, folder: &Path) {
        self.guard_target(folder, Guard::Folder);
        let hooks = fs::read_dir(folder).into_iter().flatten().flatten();
        for hook in hooks.filter(|hook| hook.file_type().is_ok_and(|kind| kind.is_symlink())) {
            self.guard_target(&hook.path(), Guard::ReadOnly);
        }
    }

    /// Guards the files that a settings file names: included files, and a folder of hooks.
    fn named(&mut self, file: &Path, top: &Path, depth: usize) -> Result<(), Failure> {
        if depth == 0 || !mentions(file, &[b"include", b"hookspath"]) {
            return Ok(());
        }
        for (key, value) in self.values(file, &["core.hookspath", "include.path", "includeif."])? {
            let base = match key.as_str() {
                "core.hookspath" => top,
                _ => file.parent().unwrap_or(file),
            };
            let value = at_home(&value);
            let path = lexical(&base.join(&value));
            if key == "core.hookspath" {
                if value.is_relative() {
                    self.found.hooks.insert(value);
                }
                self.hooks(&path);
            } else {
                self.guard_target(&path, Guard::File);
                self.named(&path, top, depth - 1)?;
            }
        }
        Ok(())
    }

    fn git_for(&self, file: &Path) -> Result<Git, Failure> {
        let why = "there is no git of root's in /usr/bin to read it";
        self.git.clone().ok_or_else(|| unguarded(file, why))
    }

    /// Returns the values of settings, by the prefixes of their names.
    fn values(&self, file: &Path, keys: &[&str]) -> Result<Vec<(String, PathBuf)>, Failure> {
        let git = self.git_for(file)?;
        match git.settings(&real(file)) {
            // Git outside cannot read it, either.
            Err(error) if OUT_OF_REACH.contains(&error.kind()) => Ok(Vec::new()),
            Err(error) => Err(unguarded(file, &error.to_string())),
            Ok(settings) => Ok(settings
                .into_iter()
                .filter(|one| keys.iter().any(|key| one.key.starts_with(key)))
                .map(|one| (one.key, PathBuf::from(one.value)))
                .collect()),
        }
    }

    /// Guards the folders of submodules that are not checked out: git outside would enter a `.git`
    /// there.
    fn absent_submodules(&mut self, directory: &Path, top: &Path) -> Result<(), Failure> {
        let index = directory.join("index");
        if top == directory || !is_short(&index, INDEX_BYTES) || !has(&content_of(&index), GITLINK)
        {
            return Ok(());
        }
        let git = self.git_for(&index)?;
        let neutral = EmptyRepo::of(self.state, directory, is_sha256(directory, &git));
        let content = neutral.and_then(|neutral| git.index(&index, &neutral));
        for submodule in content
            .map(|content| content.submodules)
            .unwrap_or_default()
        {
            let folder = top.join(submodule);
            let git = folder.join(".git");
            let is_absent = fs::symlink_metadata(&git).is_err() || is_mark(CWD, &git);
            if is_absent && self.is_inside(&folder) {
                self.guard(&folder, Guard::Folder);
            }
        }
        Ok(())
    }

    /// Guards a path, and its target if it is a link, with each link on the way.
    fn guard_target(&mut self, path: &Path, guard: Guard) {
        for link in links(path).iter().filter(|link| *link != path) {
            self.guard(link, Guard::Pinned);
        }
        self.guard(path, guard);
        let target = real(path);
        if target != path {
            self.guard(&target, guard);
        }
    }

    /// Guards a path of the projects, and keeps the folders above it in their places. For a path
    /// that does not exist, the first missing folder is guarded.
    fn guard(&mut self, path: &Path, guard: Guard) {
        let Some(project) = self
            .projects
            .iter()
            .find(|project| path.starts_with(project))
        else {
            return;
        };
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.retain(|above| above.starts_with(project) && above != project);
        for folder in above.into_iter().rev() {
            if fs::symlink_metadata(folder).is_err() {
                if guard > Guard::ReadOnly {
                    self.found.guards.insert(folder.to_owned(), Guard::Folder);
                }
                return;
            }
            let kept = self.found.guards.entry(folder.to_owned());
            kept.or_insert(Guard::Pinned);
        }
        let kept = self.found.guards.entry(path.to_owned()).or_insert(guard);
        *kept = guard.max(*kept);
    }

    fn is_inside(&self, path: &Path) -> bool {
        self.projects
            .iter()
            .any(|project| path.starts_with(project))
    }

    /// Guards the other names (hard links) that read-only files have in the projects.
    fn other_names(&mut self) -> Result<(), Failure> {
        let guards = self.found.guards.iter();
        let read_only = guards.filter(|(_, guard)| **guard != Guard::Pinned);
        let files: BTreeSet<u64> = read_only.flat_map(|(path, _)| inodes(path)).collect();
        if files.is_empty() {
            return Ok(());
        }
        for project in self.projects {
            let mut folders = vec![project.clone()];
            while let Some(path) = folders.pop() {
                let why =
                    "a guarded file has other names (hard links), which cannot be looked for here";
                let folder = Folder::open(project, &path, FolderAccess::Read);
                let folder =
                    folder.map_err(|error| unguarded(&path, &format!("{why}: {error}")))?;
                for (name, kind) in folder.entries(usize::MAX, |_| true).unwrap_or_default() {
                    let inner = path_in(&path, &name);
                    let is_it = |found: Stat| files.contains(&found.st_ino);
                    if kind.is_dir() {
                        folders.push(inner);
                    } else if kind.is_file() && folder.look(&*name).is_ok_and(is_it) {
                        self.guard(&inner, Guard::ReadOnly);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the inodes with several names: of a file, or of the files directly in a folder.
fn inodes(path: &Path) -> Vec<u64> {
    let within = fs::read_dir(path).into_iter().flatten().flatten();
    let paths = within.map(|entry| entry.path()).chain([path.to_owned()]);
    let found = paths.filter_map(|path| fs::symlink_metadata(path).ok());
    let linked = found.filter(|found| found.is_file() && found.nlink() > 1);
    linked.map(|found| found.ino()).collect()
}

/// Whether a directory is that of a linked worktree.
fn is_linked(directory: &Path) -> bool {
    directory
        .parent()
        .is_some_and(|above| above.ends_with("worktrees"))
        && directory.join("commondir").is_file()
}

/// Returns the repositories below a folder of repositories, whose names may contain slashes.
fn repositories_in(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let path = entry.path();
        match fs::symlink_metadata(path.join("HEAD")).is_ok() {
            true => found.push(path),
            false if depth > 0 => found.extend(repositories_in(&path, depth - 1)),
            false => {}
        }
    }
    found
}

/// Returns the directory that a `.git` file names.
pub fn named_by(file: &Path) -> Option<PathBuf> {
    fs::canonicalize(file.parent()?.join(text_of(file, b"gitdir: ")?)).ok()
}

fn is_short(file: &Path, most: u64) -> bool {
    fs::symlink_metadata(file).is_ok_and(|found| found.is_file() && found.len() <= most)
}

/// Returns the settings files that apply to every repository of the user.
fn own_settings() -> Vec<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = set("HOME").map(PathBuf::from);
    let of_home = home.iter().flat_map(|home| OWN.map(|name| home.join(name)));
    let of_configuration = set("XDG_CONFIG_HOME").map(|one| Path::new(&one).join("git/config"));
    let named = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"];
    let named = named.into_iter().filter_map(set).map(PathBuf::from);
    let mut files: Vec<PathBuf> = of_home.chain(of_configuration).chain(named).collect();
    files.push(PathBuf::from("/etc/gitconfig"));
    files
}

/// Replaces `~/` or `~NAME/` at the start of a path.
fn at_home(path: &Path) -> PathBuf {
    let mut parts = path.components();
    let first = parts.next().and_then(|part| part.as_os_str().to_str());
    let home = match first.and_then(|first| first.strip_prefix('~')) {
        None => None,
        Some("") => std::env::var_os("HOME").map(PathBuf::from),
        Some(name) => home_of(name),
    };
    home.map_or_else(|| path.to_owned(), |home| home.join(parts.as_path()))
}

fn unguarded(path: &Path, why: &str) -> Failure {
    let why = format!(
        "`{}` cannot be guarded: {why}. With `--writable-git` the command runs, and nothing of git is guarded",
        path.display()
    );
    Failure::new(Step::Git, why)
}

/// The user's own settings files, in the home directory.
const OWN: [&str; 2] = [".gitconfig", ".config/git/config"];
/// The mode of a submodule, as an index stores it.
const GITLINK: &[u8] = b"\x00\x00\xe0\x00";
/// The largest index in which submodules are searched.
const INDEX_BYTES: u64 = 256 << 20;
/// How deep repositories lie in others, and includes in files.
const DEEPEST: usize = 16;
/// The errors of a file that this user cannot read.
const OUT_OF_REACH: [ErrorKind; 3] = [
    ErrorKind::NotFound,
    ErrorKind::PermissionDenied,
    ErrorKind::NotADirectory,
];
