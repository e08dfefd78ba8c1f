//! Watches, while the command runs, for what git outside would obey at once and no mount can guard:
//! new submodules, what settings name in a `.git` directory and was not there, and an index by
//! which git would write where it must not.
//!
//! `git status` runs what the settings of each repository name that the index calls a submodule. So
//! a `.git` that appears in such a folder is set aside as soon as it is seen. This narrows a gap
//! and does not close it: git outside may be quicker, and the command may hide a change of the
//! index.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use super::places::{INDEX_BYTES, ReadIndex, WorkTree, all_with_index, is_in};
use super::repository::RESOLUTIONS;
use crate::after::disarm::set_aside;
use crate::after::stored::is_aside;
use crate::after::survey::{Mark, Survey};
use crate::leave::Leave;
use crate::wait::timespec;

/// What was set aside, with its new name; or why it could not be.
pub type Aside = BTreeMap<PathBuf, io::Result<OsString>>;

/// A watch over the projects, until it is dropped.
#[derive(Debug)]
pub struct Lookout {
    stop: UnixStream,
    thread: JoinHandle<(Aside, Option<OwnedFd>)>,
}

impl Lookout {
    /// Begins to watch. What exists now is not the command's.
    ///
    /// # Errors
    /// The error of creating a pair of sockets or a thread.
    pub fn begin(
        projects: &[PathBuf],
        working_directory: Option<PathBuf>,
        survey: &Survey,
    ) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let mut watched = Watched {
            events: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
                .ok()
                .map(|file| Changes {
                    file,
                    watches: BTreeSet::new(),
                }),
            projects: projects.to_owned(),
            trees: BTreeMap::new(),
            shared: BTreeSet::new(),
            kept: survey.barred.iter().chain(&survey.apart).cloned().collect(),
            absent: BTreeSet::new(),
            links: survey.links.keys().cloned().collect(),
            parts: in_folder(&survey.parts, working_directory.as_deref()),
            folder: working_directory.filter(|one| !survey.repositories.contains_key(one)),
            aside: BTreeMap::new(),
            is_over: false,
        };
        for tree in all_with_index(projects, survey) {
            if tree.is_shared(projects, survey) {
                watched.shared.insert(tree.clone());
            }
            watched.trees.insert(tree, ReadIndex::default());
        }
        watched.read_indexes();
        let present = watched.submodules().into_iter().filter(|git| exists(git));
        let present: Vec<PathBuf> = present.collect();
        watched.kept.extend(present);
        let absent = survey.absent.keys().filter(|path| is_of_git(path));
        watched.absent = absent.cloned().collect();
        watched.kept.extend(survey.repositories.keys().cloned());
        let resolutions = watched.resolutions();
        watched.kept.extend(resolutions);
        let thread = std::thread::Builder::new().spawn(move || watched.run(&stopped))?;
        Ok(Self { stop, thread })
    }

    /// Ends the watch, and returns what was set aside, and a file to close some milliseconds later:
    /// the kernel would wait for up to 20 ms now, until the watches are gone.
    pub fn end(self) -> (Aside, Option<OwnedFd>) {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

/// What is watched.
struct Watched {
    /// Changes in folders; without any, the thread looks often.
    events: Option<Changes>,
    projects: Vec<PathBuf>,
    /// What was read of the index of each working tree.
    trees: BTreeMap<WorkTree, ReadIndex>,
    /// Those that checkouts outside of the projects use.
    shared: BTreeSet<WorkTree>,
    /// The `.git` entries that are not the command's, or that git outside does not see.
    kept: BTreeSet<PathBuf>,
    /// What settings name in `.git` directories, and what was not there.
    absent: BTreeSet<PathBuf>,
    /// The links that are not the command's.
    links: BTreeSet<PathBuf>,
    /// The working directory, unless it is a bare repository.
    folder: Option<PathBuf>,
    /// What it has of one that is not the command's.
    parts: BTreeSet<PathBuf>,
    aside: Aside,
    /// Whether the command is gone.
    is_over: bool,
}

/// Tells of changes in folders.
struct Changes {
    file: OwnedFd,
    watches: BTreeSet<i32>,
}

impl Changes {
    /// Watches nothing any more.
    fn end(self) -> OwnedFd {
        for watch in self.watches {
            // The kernel removes that of a folder that is gone.
            let _ = inotify::remove_watch(&self.file, watch);
        }
        self.file
    }
}

impl Watched {
    fn run(mut self, stopped: &UnixStream) -> (Aside, Option<OwnedFd>) {
        loop {
            let begun = Instant::now();
            self.look();
            // A command that changes much takes half of one processor at most.
            if is_stopped(stopped, begun.elapsed().max(PAUSE)) || self.wait(stopped) {
                return self.end();
            }
        }
    }

    /// Looks once more, when the command is gone. It may have changed what was read, and no time
    /// with it, through a mapping.
    fn end(mut self) -> (Aside, Option<OwnedFd>) {
        let events = self.events.take();
        self.is_over = true;
        for read in self.trees.values_mut() {
            *read = ReadIndex::default();
        }
        self.look();
        (self.aside, events.map(Changes::end))
    }

    /// Sets aside each forged index and each new `.git` of a submodule, and what came into a `.git`
    /// that settings name.
    fn look(&mut self) {
        self.read_indexes();
        self.set_forged_aside();
        let mut found = self.submodules();
        found.extend(self.absent.iter().cloned());
        found.extend(self.new_links());
        found.extend(self.part_of_bare());
        for git in found {
            if self.kept.contains(&git) || !is_in(&git, &self.projects) {
                continue;
            }
            self.watch_way_to(&git);
            let project = self.projects.iter().find(|one| git.starts_with(one));
            if let Some(project) = project.filter(|_| exists(&git)) {
                let done = set_aside(project, &git);
                self.note(git, done);
            }
        }
    }

    fn set_forged_aside(&mut self) {
        let mut forged = Vec::new();
        for read in self.trees.values_mut() {
            forged.append(&mut read.forged);
            if self.is_over || read.is_settled() {
                forged.append(&mut read.unfinished);
            }
        }
        let new = self.resolutions().into_iter();
        forged.extend(new.filter(|file| !self.kept.contains(file)));
        for file in forged {
            let done = set_forged_file_aside(&file);
            self.note(file, done);
        }
    }

    /// Returns the files that make a commit read others. In a directory that checkouts elsewhere
    /// share, it may be the user's own, and is told at the end.
    fn resolutions(&self) -> Vec<PathBuf> {
        let own = self
            .trees
            .keys()
            .filter(|tree| !self.shared.contains(*tree));
        let files = own.map(|tree| tree.git.join(RESOLUTIONS));
        files.filter(|file| exists(file)).collect()
    }

    fn note(&mut self, path: PathBuf, done: io::Result<OsString>) {
        match done {
            // It went meanwhile, or another sandbox's gateway was quicker.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // The command may go on for days.
            _ if self.aside.len() >= MOST => {}
            done => _ = self.aside.insert(path, done),
        }
    }

    /// Returns the new links directly in the directories of repositories: git outside would write
    /// through them.
    fn new_links(&self) -> Vec<PathBuf> {
        let directories = self.trees.keys().map(|tree| &tree.git);
        let entries = directories.flat_map(|git| listed(git).into_iter().flatten().flatten());
        let links = entries.filter(|entry| {
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            is_link && !is_aside(entry.file_name().as_encoded_bytes())
        });
        let links = links.map(|entry| entry.path());
        links.filter(|link| !self.links.contains(link)).collect()
    }

    /// Returns what is new of that which makes the working directory a bare repository, if it is
    /// one now.
    fn part_of_bare(&mut self) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        watch(&mut self.events, folder, APPEARS);
        let has = |name: &str| exists(&folder.join(name));
        let is_bare = has("HEAD") && (has("commondir") || (has("objects") && has("refs")));
        let parts = ["HEAD", "commondir", "objects", "refs"].map(|name| folder.join(name));
        let is_new = |part: &PathBuf| exists(part) && !self.parts.contains(part);
        parts.into_iter().find(|part| is_bare && is_new(part))
    }

    /// Reads the indexes that have changed.
    fn read_indexes(&mut self) {
        for (tree, read) in &mut self.trees {
            watch(&mut self.events, &tree.git, APPEARS | CHANGES);
            if !read.is_current() {
                *read = tree.read();
            }
        }
    }

    /// Returns the paths of the `.git` entries of all submodules.
    fn submodules(&self) -> BTreeSet<PathBuf> {
        let read = self.trees.values();
        read.flat_map(|read| read.submodules.iter().cloned())
            .collect()
    }

    /// Watches the existing folders in which something must appear for this path to exist.
    fn watch_way_to(&mut self, git: &Path) {
        if self.events.is_none() {
            return;
        }
        let folders: Vec<&Path> = git.ancestors().skip(1).collect();
        let inner = folders.into_iter().rev();
        let projects = &self.projects;
        for folder in inner.filter(|one| is_in(one, projects)) {
            if !fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir()) {
                return;
            }
            watch(&mut self.events, folder, APPEARS);
        }
    }

    /// Waits for a change; returns whether the watch ends.
    fn wait(&self, stopped: &UnixStream) -> bool {
        let mut events = vec![PollFd::new(stopped, PollFlags::IN)];
        events.extend(
            self.events
                .iter()
                .map(|one| PollFd::new(&one.file, PollFlags::IN)),
        );
        let mut read = self.trees.values();
        let is_sure = self.events.is_some() && read.all(|read| read.unfinished.is_empty());
        let patience = timespec(if is_sure { LONG } else { SHORT });
        // After an interruption it looks once more.
        let _ = rustix::event::poll(&mut events, Some(&patience));
        let ends = !events[0].revents().is_empty();
        let mut buffer = [0; 4096];
        let mut more = |one: &Changes| {
            rustix::io::read(&one.file, &mut buffer[..]).is_ok_and(|bytes| bytes > 0)
        };
        while self.events.as_ref().is_some_and(&mut more) {}
        ends
    }
}

/// Watches a folder, if it exists. If that is one too many for the system, nothing is watched any
/// more, and the thread looks often.
fn watch(events: &mut Option<Changes>, folder: &Path, flags: WatchFlags) {
    let Some(one) = events else { return };
    match inotify::add_watch(&one.file, folder, flags) {
        // The command may make folders anew for days. The rest goes when the file is closed.
        Ok(watch) if one.watches.len() < MOST => _ = one.watches.insert(watch),
        Err(Errno::NOSPC | Errno::NOMEM) => *events = None,
        _ => {}
    }
}

fn in_folder(parts: &BTreeMap<PathBuf, Mark>, folder: Option<&Path>) -> BTreeSet<PathBuf> {
    let parts = parts.keys().filter(|part| part.parent() == folder);
    parts.cloned().collect()
}

fn is_of_git(path: &Path) -> bool {
    path.iter().any(|part| part == ".git")
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Lists a folder, also if its owner may only enter it.
fn listed(folder: &Path) -> io::Result<fs::ReadDir> {
    fs::read_dir(folder).or_else(|_| {
        let _leave = Leave::to_list(folder);
        fs::read_dir(folder)
    })
}

/// Waits, and returns whether the watch ends.
fn is_stopped(stopped: &UnixStream, patience: Duration) -> bool {
    let mut events = [PollFd::new(stopped, PollFlags::IN)];
    rustix::event::poll(&mut events, Some(&timespec(patience))).is_ok_and(|count| count > 0)
}

fn set_forged_file_aside(file: &Path) -> io::Result<OsString> {
    let folder = file.parent().unwrap_or(file);
    let _leave = Leave::to_enter(folder);
    set_aside(folder, file)
}

/// What is watched in a folder: new names, and beside them changed files.
const APPEARS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW)
    .union(WatchFlags::MASK_ADD);
const CHANGES: WatchFlags = WatchFlags::MODIFY.union(WatchFlags::CLOSE_WRITE);
/// How many names that were set aside are told, and watches remembered.
const MOST: usize = 10_000;
/// The least time between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a look is put off where nothing tells of changes, and where something does.
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(5);

/// Sets aside the forged indexes in repositories that the command made.
pub fn set_forged_aside(new: &[PathBuf]) -> Aside {
    let mut left = INDEX_BYTES;
    let forged = new.iter().flat_map(|git| {
        let tree = WorkTree::in_directory(git.clone());
        tree.forged_of_new(&mut left)
    });
    let done = |file: PathBuf| (file.clone(), set_forged_file_aside(&file));
    forged.map(done).collect()
}
