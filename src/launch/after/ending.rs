//! Disarms, removes or reports what the command left.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::disarm;
use super::running::Record;
use super::survey::{Kind, Mark, Reader, Survey, has_any};
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

    /// Says of what git may obey why it was left: somebody has a lock on the project whose sandbox
    /// is not known here, and it may be that one's.
    pub(super) fn tell_locked(&mut self) {
        for (_, found) in &mut self.found {
            if *found == Found::New(Reader::Git) {
                *found = Found::Armed("a program outside has a lock on the project".to_owned());
            }
        }
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
    /// What of it was disarmed or set aside.
    dealt_with: BTreeSet<PathBuf>,
    obeyed: BTreeSet<PathBuf>,
    /// The user's folders that no longer look like repositories.
    users: BTreeSet<PathBuf>,
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
            dealt_with: BTreeSet::new(),
            obeyed: BTreeSet::new(),
            users: BTreeSet::new(),
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
        let missed = now.unsearched().chain(self.before.unsearched());
        Aftermath {
            missed: missed.cloned().collect(),
            found: self.found.into_iter().collect(),
            obeyed: self.obeyed,
        }
    }

    fn disarm_new(&mut self, now: &Survey) {
        for (path, repository) in &now.repositories {
            let before = self.before.repositories.get(path);
            let known = before.is_some_and(|before| repository.is_still(before));
            if self.before.barred.contains(path) && git::is_bar(path) {
                continue;
            }
            let is_place = git::is_set_apart(path);
            if known || is_place && self.before.apart.as_ref() == Some(path) {
                self.tidy(path, repository.kind);
            } else if is_place && !self.alone {
                self.disarm_around_place(path);
            } else if !self.found.contains_key(path) {
                self.disarm(path, repository.kind, now.is_unsure_within(path));
            }
        }
    }

    /// Leaves another sandbox's place to that. But this one's command may have made it seem one: so
    /// it is handed over as not the user's, and what git would obey beside it is set aside.
    fn disarm_around_place(&mut self, path: &Path) {
        self.obeyed.insert(path.to_owned());
        let project = self.project_of(path);
        if let Some(project) = project.filter(|_| !self.before.misses(path)) {
            match disarm::disarm_around_place(&project, path) {
                Ok(false) => {}
                done => self.note(path, done.map(|_| Found::Disarmed)),
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
            if self.alone && is_own && !self.is_dealt_with(path) && !before.is_unsure_of_git(path) {
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
        !self.dealt_with.is_empty() && has_any(path, |above| self.dealt_with.contains(above))
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
        self.note(&git, Ok(found));
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
            let is_of_git = now.is_of_git(path) && self.record.guard_git;
            let is_users = has_any(path, |above| self.users.contains(above));
            let found = match is_of_git && !is_users && !self.before.is_unsure_of_git(path) {
                false => Some(Found::LeadsOut),
                true => self.unlinked(path),
            };
            self.found.extend(found.map(|found| (path.clone(), found)));
        }
    }

    fn unlinked(&self, path: &Path) -> Option<Found> {
        let project = self.project_of(path)?;
        let done = match self.before.texts.get(path) {
            Some(text) if std::fs::read_link(path).is_ok_and(|now| now == *text) => return None,
            // One of the user's, which the command made lead elsewhere.
            Some(_) => disarm::set_aside(&project, path).map(Found::SetAside),
            None => disarm::unlink(&project, path).map(|()| Found::Unlinked),
        };
        match done {
            Ok(found) => Some(found),
            // It was moved with what was set aside, or is no longer a link.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
                None
            }
            Err(error) => Some(Found::Armed(error.to_string())),
        }
    }

    fn tidy(&mut self, path: &Path, kind: Kind) {
        let is_directory = matches!(kind, Kind::Directory | Kind::Bare);
        let Some(project) = self.project_of(path).filter(|_| is_directory) else {
            return;
        };
        let is_ours = |path: &Path| self.is_made(path) || self.before.forgotten.contains(path);
        if self.alone {
            // A placeholder that cannot be removed stays, and has no effect.
            let _ = disarm::tidy(&project, path, &is_ours);
            return;
        }
        let folders = git::GUARDED.iter().filter(|one| one.content.is_none());
        let folders = folders.map(|one| path.join(one.name));
        let ours: Vec<PathBuf> = folders.filter(|path| is_ours(path)).collect();
        self.obeyed.extend(ours);
    }

    /// Whether a folder has something of the user's by which it may look like a repository now.
    fn is_users(&self, folder: &Path) -> bool {
        let parts = self.before.parts.range(folder.to_owned()..);
        let mut within = parts.take_while(|(path, _)| path.starts_with(folder));
        within.any(|(path, _)| path.parent() == Some(folder))
    }

    /// Sets aside what is new of that which makes a folder a repository. Returns whether there was
    /// anything.
    fn set_new_parts_aside(&mut self, project: &Path, folder: &Path) -> bool {
        let before = &self.before.parts;
        let is_new = |path: &Path, mark| !before.get(path).is_some_and(|one| one.is_same(&mark));
        let new = disarm::new_parts(project, folder, is_new).unwrap_or_default();
        new.iter().for_each(|path| self.set_aside(path));
        !new.is_empty()
    }

    fn disarm(&mut self, path: &Path, kind: Kind, is_unsure: bool) {
        let Some(project) = self.project_of(path) else {
            return;
        };
        if self.before.misses(path) {
            let why = "its folder was not searched before the command ran; it may have been there";
            self.found.insert(path.to_owned(), Found::Armed(why.into()));
            return;
        }
        if kind == Kind::Bare
            && (self.is_users(path) || self.before.is_unsure_of(path))
            && self.set_new_parts_aside(&project, path)
        {
            self.users.insert(path.to_owned());
            return;
        }
        let done = match is_unsure {
            // Not all of its links are known.
            true => disarm::set_aside_entry(&project, path, kind),
            false => disarm::disarm_or_set_aside(&project, path, kind),
        };
        match done {
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
        if matches!(found, Found::Disarmed | Found::SetAside(_)) {
            self.dealt_with.insert(path.to_owned());
        }
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
            let is_new = before.is_none() && !self.before.is_unsure_of(path);
            if self.record.guard_tools && is_new && matches!(reader, Reader::Tool(_)) {
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

    /// Reports files that are gone: one may have held a tool back. Git ends its own states. Also
    /// those that changed where the search did not get again.
    fn tell_removed(&mut self, now: &Survey) {
        let before = self.before.files.iter();
        for (path, (mark, reader)) in before.filter(|(path, _)| !now.files.contains_key(*path)) {
            let found = match mark_of(path) {
                Some(now) if now == *mark || self.is_dealt_with(path) => continue,
                Some(_) => Found::Changed(*reader),
                None if *reader == Reader::Git || now.is_unsure_of(path) => continue,
                None => Found::Removed(*reader),
            };
            self.found.insert(path.clone(), found);
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

/// Returns the mark of what is at a path, with no link on the way.
fn mark_of(path: &Path) -> Option<Mark> {
    let folder = path.parent().unwrap_or(path);
    let is_real = folder.canonicalize().is_ok_and(|real| real == folder);
    let found = is_real.then(|| rustix::fs::lstat(path));
    found?.ok().map(Mark::from)
}
