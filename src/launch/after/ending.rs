//! Disarms, removes or reports what the command left.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::disarm;
use super::running::Record;
use super::survey::{Kind, Reader, Survey, has_any};
use crate::git;

/// The result for the projects.
#[derive(Debug, Default)]
pub struct Aftermath {
    /// What the user should know, by path.
    pub found: Vec<(PathBuf, Found)>,
    /// Directories that were not searched.
    pub missed: BTreeSet<PathBuf>,
    /// New names in repositories that git may obey, and that may still be there.
    pub(super) obeyed: BTreeSet<PathBuf>,
}

impl Aftermath {
    /// Returns the paths of what the command made or changed.
    pub(super) fn made(&self) -> Vec<PathBuf> {
        let found = self.found.iter().map(|(path, _)| path);
        found.chain(&self.obeyed).cloned().collect()
    }

    /// Returns the repositories that the command made, and that are disarmed.
    pub(super) fn disarmed(&self) -> Vec<PathBuf> {
        let found = self.found.iter();
        let new = found.filter(|(_, found)| *found == Found::Disarmed);
        new.map(|(path, _)| path.clone()).collect()
    }

    /// Adds what was set aside while the command ran. What could not be then counts unless the end
    /// has dealt with it.
    pub(super) fn add(&mut self, aside: git::Aside) {
        for (path, done) in aside {
            let found = match done {
                Ok(name) => Found::SetAside(name),
                Err(_) if self.found.iter().any(|(one, _)| *one == path) => continue,
                Err(error) => Found::Armed(error.to_string()),
            };
            self.found.push((path, found));
        }
    }
}

/// One thing that the command left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A repository, whose settings and hooks were set aside.
    Disarmed,
    /// What git or a tool would obey, and was renamed to this.
    SetAside(OsString),
    /// One that could not be set aside, and why.
    Armed(String),
    /// A repository in a place that git does not see until the last sandbox there has ended.
    Apart,
    /// A removed link in a repository, through which git would have written elsewhere.
    Unlinked,
    /// A new or changed link that leads out of the project.
    LeadsOut,
    /// A new file that is run or obeyed on its own.
    New(Reader),
    /// A changed one.
    Changed(Reader),
    /// One that is gone.
    Removed(Reader),
}

/// The work at the end of one sandbox, in progress.
pub struct Ending<'a> {
    record: &'a Record,
    projects: Vec<PathBuf>,
    before: &'a Survey,
    /// Whether no other sandbox is in these directories.
    alone: bool,
    found: BTreeMap<PathBuf, Found>,
    obeyed: BTreeSet<PathBuf>,
}

impl<'a> Ending<'a> {
    /// Creates an ending that has done nothing yet. `alone` means that no other sandbox is in these
    /// directories.
    pub fn new(record: &'a Record, before: &'a Survey, alone: bool) -> Self {
        Self {
            record,
            projects: record.projects(),
            before,
            alone,
            found: BTreeMap::new(),
            obeyed: BTreeSet::new(),
        }
    }

    /// Surveys the projects again, and disarms, removes and reports what it finds.
    pub fn settle(mut self) -> Aftermath {
        if self.record.guard_git {
            self.bring_out();
            self.unbar();
        }
        let now = self.before.again(&self.projects);
        if self.record.guard_git {
            self.disarm_new(&now);
            self.set_obeyed_aside(&now);
            self.set_named_by_user_aside();
        }
        self.unlink(&now);
        self.compare(&now);
        self.tell_removed(&now);
        self.set_named_aside();
        let mut missed = now.missed;
        missed.extend(self.before.missed.iter().cloned());
        Aftermath {
            found: self.found.into_iter().collect(),
            missed,
            obeyed: self.obeyed,
        }
    }

    fn disarm_new(&mut self, now: &Survey) {
        for (path, repository) in &now.repositories {
            let before = self.before.repositories.get(path);
            let known = before.is_some_and(|before| repository.is_still(before));
            // Only the sandbox that owns such a place moves a repository out of it.
            let is_place = git::is_set_apart(path)
                && (!self.alone || self.before.apart.as_ref() == Some(path));
            if self.before.barred.contains(path) && git::is_bar(path) {
                continue;
            }
            if known || is_place {
                self.tidy(path, repository.kind);
            } else if !self.found.contains_key(path) {
                self.disarm(path, repository.kind);
            }
        }
    }

    /// Sets aside new names in known repositories that git may obey, such as the state of a rebase.
    /// Where other checkouts or sandboxes may be at work, they are only told.
    fn set_obeyed_aside(&mut self, now: &Survey) {
        let before = self.before;
        let used = git::used(before);
        let is_known = |path: &Path| has_any(path, |above| before.obeyed.contains(above));
        for path in now.obeyed.iter().filter(|path| !is_known(path)) {
            self.obeyed.insert(path.clone());
            let is_own = has_any(path, |above| used.contains_key(above)) || !self.is_shared(path);
            if self.alone && is_own && !self.is_dealt_with(path) && !before.misses(path) {
                self.set_aside(path);
            }
        }
    }

    /// Whether a path in a repository belongs to checkouts outside of the projects, too: those of a
    /// repository that is itself outside, and of other worktrees.
    fn is_shared(&self, path: &Path) -> bool {
        let is_git = |path: &Path| self.before.directories.contains_key(path);
        let is_outside = self
            .project_of(path)
            .is_some_and(|project| is_git(&project));
        let is_of_worktree = |above: &Path| {
            is_git(above)
                && above
                    .parent()
                    .is_some_and(|parent| parent.ends_with("worktrees"))
        };
        is_outside || has_any(path, is_of_worktree)
    }

    /// Whether something around it, or itself, was disarmed or set aside.
    fn is_dealt_with(&self, path: &Path) -> bool {
        has_any(path, |above| {
            matches!(
                self.found.get(above),
                Some(Found::Disarmed | Found::SetAside(_))
            )
        })
    }

    /// Moves out the repository that was created where there was none.
    fn bring_out(&mut self) {
        let place = self.before.apart.clone();
        let Some(git) = place.filter(|git| git::is_set_apart(git)) else {
            return;
        };
        let Some(project) = self.project_of(&git) else {
            return;
        };
        let found = match self.alone {
            false if !disarm::is_apart(&project, &git) => return,
            false => Found::Apart,
            true => match disarm::bring_out(&project, &git) {
                Ok(true) => Found::Disarmed,
                Ok(false) => return,
                Err(error) => Found::Armed(error.to_string()),
            },
        };
        self.found.insert(git, found);
    }

    /// Removes what kept the command from making repositories of absent submodules.
    fn unbar(&self) {
        for bar in self.before.barred.iter().filter(|_| self.alone) {
            if let Some(project) = self.project_of(bar) {
                // One that cannot be removed stays, and has no effect.
                let _ = disarm::unbar(&project, bar);
            }
        }
    }

    /// Removes git's new links that were not set aside with other things. Reports those that lead
    /// out.
    fn unlink(&mut self, now: &Survey) {
        for (path, mark) in &now.links {
            if self.before.links.get(path) == Some(mark) || now.repositories.contains_key(path) {
                continue;
            }
            let found = match now.is_of_git(path) && self.record.guard_git {
                false => Some(Found::LeadsOut),
                true => self.unlinked(path),
            };
            self.found.extend(found.map(|found| (path.clone(), found)));
        }
    }

    fn unlinked(&self, path: &Path) -> Option<Found> {
        match disarm::unlink(&self.project_of(path)?, path) {
            Ok(()) => Some(Found::Unlinked),
            // It was moved with what was set aside, or is no longer a link.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
                None
            }
            Err(error) => Some(Found::Armed(error.to_string())),
        }
    }

    fn tidy(&mut self, path: &Path, kind: Kind) {
        let is_directory = matches!(kind, Kind::Directory | Kind::Bare);
        if let Some(project) = self.project_of(path).filter(|_| self.alone && is_directory) {
            // A placeholder that cannot be removed stays, and has no effect.
            let _ = disarm::tidy(&project, path);
        }
    }

    fn disarm(&mut self, path: &Path, kind: Kind) {
        let Some(project) = self.project_of(path) else {
            return;
        };
        if self.before.misses(path) {
            let why = "its folder was not searched before the command ran; it may have been there";
            self.found.insert(path.to_owned(), Found::Armed(why.into()));
            return;
        }
        match disarm::disarm_or_set_aside(&project, path, kind) {
            Ok(Some((entry, new))) => self.note(&entry, Ok(Found::SetAside(new))),
            done => self.note(path, done.map(|_| Found::Disarmed)),
        }
    }

    /// Sets aside what the user's own settings name in new repositories, if the command made it.
    fn set_named_by_user_aside(&mut self) {
        let is_new = |(_, found): &(&PathBuf, &Found)| **found == Found::Disarmed;
        let new: Vec<PathBuf> = self
            .found
            .iter()
            .filter(is_new)
            .map(|(git, _)| git.clone())
            .collect();
        let named = new
            .iter()
            .flat_map(|git| git::present_in(git, &self.projects));
        let made: Vec<PathBuf> = named.filter(|path| self.is_made(path)).collect();
        made.iter().for_each(|path| self.set_aside(path));
    }

    /// Whether a path, or what is directly in it, changed since the command began.
    fn is_made(&self, path: &Path) -> bool {
        let is_late = |path: &Path| {
            let changed = path.symlink_metadata().map(|found| found.ctime());
            changed.is_ok_and(|changed| changed >= self.record.began)
        };
        let mut inner = std::fs::read_dir(path).into_iter().flatten().flatten();
        is_late(path) || inner.any(|entry| is_late(&entry.path()))
    }

    fn set_aside(&mut self, path: &Path) {
        if let Some(project) = self.project_of(path) {
            self.note(path, disarm::set_aside(&project, path).map(Found::SetAside));
        }
    }

    fn note(&mut self, path: &Path, found: io::Result<Found>) {
        let found = match found {
            Ok(found) => found,
            // It was moved with something around it that was set aside.
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => Found::Armed(error.to_string()),
        };
        self.found.insert(path.to_owned(), found);
    }

    /// Reports new and changed files that tools run. Sets aside those of known tools on request.
    fn compare(&mut self, now: &Survey) {
        for (path, (mark, reader)) in &now.files {
            let before = self.before.files.get(path);
            if self.is_dealt_with(path) || before.is_some_and(|(before, _)| before == mark) {
                continue;
            }
            // A changed one was changed outside: the command cannot write it.
            if self.record.guard_tools && before.is_none() && matches!(reader, Reader::Tool(_)) {
                self.set_aside(path);
                continue;
            }
            let found = match before {
                None => Found::New(*reader),
                Some(_) => Found::Changed(*reader),
            };
            self.found.insert(path.clone(), found);
        }
    }

    /// Reports files that are gone: one may have held a tool back. Git ends its own states.
    fn tell_removed(&mut self, now: &Survey) {
        for (path, (_, reader)) in &self.before.files {
            let stays = now.files.contains_key(path) || now.misses(path) || is_there(path);
            if !stays && *reader != Reader::Git {
                self.found.insert(path.clone(), Found::Removed(*reader));
            }
        }
    }

    /// Sets aside files that appeared at paths that git's settings named before the files existed.
    fn set_named_aside(&mut self) {
        for (path, may_be_folder) in &self.before.absent {
            let found = path.symlink_metadata();
            if found.is_ok_and(|found| *may_be_folder || !found.is_dir()) {
                self.set_aside(path);
            }
        }
    }

    fn project_of(&self, path: &Path) -> Option<PathBuf> {
        self.projects
            .iter()
            .find(|project| path.starts_with(project))
            .cloned()
    }
}

/// Whether there is something at a path, with no link on the way.
fn is_there(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    let is_real = folder.canonicalize().is_ok_and(|real| real == folder);
    is_real && path.symlink_metadata().is_ok()
}
