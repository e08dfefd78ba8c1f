//! Watches the directories of repositories while the command runs: files that git outside would
//! obey at once are put away as soon as they are seen. That narrows the time, and the end judges:
//! git outside may be quicker, and no event tells of a write to a file that stays open. A command
//! that keeps making such files is ended.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::IntoRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use super::check::Checker;

/// A watch over repositories, until it is ended.
#[derive(Debug)]
pub struct RepositoryWatch {
    stop: UnixStream,
    thread: JoinHandle<Checker>,
}

impl RepositoryWatch {
    /// Begins to watch repositories' directories, each with the top of its working tree, and
    /// folders in which a new repository would count at once. Calls `end` if the command keeps
    /// moving files back that were moved away.
    ///
    /// # Errors
    /// The error of creating sockets, a thread or a watch.
    pub fn begin(
        checker: Checker,
        directories: BTreeMap<PathBuf, PathBuf>,
        tops: BTreeSet<PathBuf>,
        end: Box<dyn Fn() + Send>,
    ) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let mut watched = Watched {
            events: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            places: BTreeMap::new(),
            checker,
            directories,
            tops,
            end,
        };
        let directories: Vec<PathBuf> = watched.directories.keys().cloned().collect();
        for path in directories.iter().chain(&watched.tops.clone()) {
            watched.add(path)?;
        }
        let thread = std::thread::Builder::new().spawn(move || watched.run(&stopped))?;
        Ok(Self { stop, thread })
    }

    /// Ends the watch. Returns the checker, and whether the command was ended.
    pub fn end(self) -> Option<(Checker, bool)> {
        drop(self.stop);
        let checker = self.thread.join().ok()?;
        let was_ended = checker.acted >= MOST_ACTS;
        Some((checker, was_ended))
    }
}

struct Watched {
    events: std::os::fd::OwnedFd,
    /// The folders, by the numbers of their watches.
    places: BTreeMap<i32, PathBuf>,
    checker: Checker,
    directories: BTreeMap<PathBuf, PathBuf>,
    tops: BTreeSet<PathBuf>,
    end: Box<dyn Fn() + Send>,
}

impl Watched {
    /// Watches a folder, or the first existing one above it.
    fn add(&mut self, path: &Path) -> io::Result<()> {
        let changes = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE;
        for place in path.ancestors() {
            match inotify::add_watch(&self.events, place, changes | WatchFlags::ONLYDIR) {
                Ok(watch) => _ = self.places.insert(watch, place.to_owned()),
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                Err(error @ (Errno::NOSPC | Errno::NOMEM)) => return Err(error.into()),
                // This user may not list the folder.
                Err(_) => {}
            }
            break;
        }
        Ok(())
    }

    fn run(mut self, stopped: &UnixStream) -> Checker {
        while self.wait(stopped) {
            let begun = Instant::now();
            for place in self.changed() {
                self.look(&place);
            }
            if self.checker.acted >= MOST_ACTS {
                (self.end)();
            }
            // Constant changes take half of one processor at most.
            std::thread::sleep(begun.elapsed().min(LONGEST_PAUSE));
        }
        // The kernel waits for up to 20 ms when the descriptor is closed: this process's end does.
        let _ = self.events.into_raw_fd();
        self.checker
    }

    /// Waits for a change. Returns false when the watch is ended.
    fn wait(&self, stopped: &UnixStream) -> bool {
        let mut events = [
            PollFd::new(&self.events, PollFlags::IN),
            PollFd::new(stopped, PollFlags::IN),
        ];
        match rustix::event::poll(&mut events, None) {
            Ok(_) | Err(Errno::INTR) => events[1].revents().is_empty(),
            Err(_) => false,
        }
    }

    /// Returns the folders in which something changed; all, if events were lost.
    fn changed(&self) -> BTreeSet<PathBuf> {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.events, &mut buffer);
        let mut found = BTreeSet::new();
        while let Ok(event) = reader.next() {
            match self.places.get(&event.wd()) {
                Some(place) => _ = found.insert(place.clone()),
                None => return self.places.values().cloned().collect(),
            }
        }
        found
    }

    fn look(&mut self, place: &PathBuf) {
        match self.directories.get(place).cloned() {
            Some(top) if self.checker.known.contains_key(place) => {
                let submodules = self.checker.directory(place, &top);
                submodules.into_iter().for_each(|inner| self.top(inner));
            }
            // The settings of a new repository may have come to name a program.
            Some(top) => self.top(top),
            None => {
                let tops = self.tops.range(place.clone()..);
                let below = tops.take_while(|top| top.starts_with(place));
                let below: Vec<PathBuf> = below.cloned().collect();
                below.into_iter().for_each(|top| self.top(top));
            }
        }
    }

    /// Looks for a new repository in a folder that git outside enters, and in its submodules.
    fn top(&mut self, top: PathBuf) {
        let mut tops = vec![top];
        while let Some(top) = tops.pop() {
            // Watched before it is looked at, so that no change is missed.
            let _ = self.add(&top);
            let git = top.join(".git");
            let is_known = self.checker.known.contains_key(&git);
            if !is_known && git.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                let _ = self.add(&git);
                self.directories.insert(git, top.clone());
            }
            for (directory, inner) in self.checker.top(&top) {
                let _ = self.add(&directory);
                self.directories.insert(directory, top.clone());
                tops.extend(inner);
            }
            self.tops.insert(top);
        }
    }
}

/// How many files may be put away before the command is ended.
const MOST_ACTS: usize = 3;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
