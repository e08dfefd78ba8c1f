//! Disarms, removes or reports what the command left.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::disarm;
use super::running::Record;
use super::survey::{Kind, Mark, Survey};
use crate::git;

/// The result for the projects.
#[derive(Debug, Default)]
pub struct Aftermath {
    /// What the user should know, by path.
    pub found: Vec<(PathBuf, Found)>,
    /// A directory that was not searched.
    pub missed: Option<PathBuf>,
}

impl Aftermath {
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
    /// A `.git` entry, or a file that a tool runs, that was renamed to this.
    SetAside(OsString),
    /// One that could not be set aside, and why.
    Armed(String),
    /// A repository in a place that git does not see until the last sandbox there has ended.
    Apart,
    /// A removed link in a repository, through which git would have written elsewhere.
    Unlinked,
    /// A new or changed link that leads out of the project.
    LeadsOut,
    /// A new file that this tool runs or obeys on its own.
    New(&'static str),
    /// A changed one.
    Changed(&'static str),
}

/// The work at the end of one sandbox, in progress.
pub struct Ending<'a> {
    record: &'a Record,
    projects: Vec<PathBuf>,
    before: &'a Survey,
    /// Whether no other sandbox is in these directories.
    alone: bool,
    found: BTreeMap<PathBuf, Found>,
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
        }
    }

    /// Surveys the projects again, and disarms, removes and reports what it finds.
    pub fn settle(mut self) -> Aftermath {
        if self.record.guard_git {
            self.bring_out();
            self.unbar();
        }
        let now = Survey::of(&self.projects);
        if self.record.guard_git {
            for (path, repository) in &now.repositories {
                let known = self
                    .before
                    .repositories
                    .get(path)
                    .is_some_and(|before| repository.is_still(before));
                // Only the sandbox that owns such a place moves a repository out of it.
                let is_place = git::is_set_apart(path)
                    && (!self.alone || self.own_place().as_ref() == Some(path));
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
        self.unlink(&now);
        self.compare(&now);
        self.set_named_aside();
        Aftermath {
            found: self.found.into_iter().collect(),
            missed: now.missed.or_else(|| self.before.missed.clone()),
        }
    }

    fn own_place(&self) -> Option<PathBuf> {
        let directory = self.record.working_directory.as_ref()?;
        Some(Path::new(directory).join(".git"))
    }

    /// Moves out the repository that was created where there was none.
    fn bring_out(&mut self) {
        let Some(git) = self.own_place() else {
            return;
        };
        let Some(project) = self.project_of(&git) else {
            return;
        };
        if !git::is_set_apart(&git) {
            return;
        }
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
            let Some(project) = self.project_of(path) else {
                continue;
            };
            if self.before.links.get(path) == Some(mark) || now.repositories.contains_key(path) {
                continue;
            }
            let of_git = now.repositories.keys().any(|git| path.starts_with(git));
            let found = match of_git && self.record.guard_git {
                false => Found::LeadsOut,
                true => match disarm::unlink(&project, path) {
                    Ok(()) => Found::Unlinked,
                    // It was moved with what was set aside, or is no longer a link.
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
                        ) =>
                    {
                        continue;
                    }
                    Err(error) => Found::Armed(error.to_string()),
                },
            };
            self.found.insert(path.clone(), found);
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
        if self.before.missed.is_some() {
            let why =
                "not all was searched before the command ran; it may have been there".to_owned();
            self.found.insert(path.to_owned(), Found::Armed(why));
            return;
        }
        let (done, name) = match kind {
            Kind::Directory => (disarm::disarm(&project, path), path.to_owned()),
            Kind::Bare => (disarm::disarm_bare(&project, path), path.join("HEAD")),
            Kind::File | Kind::Link => (Err(io::ErrorKind::NotADirectory.into()), path.to_owned()),
        };
        let found = done
            .map(|()| Found::Disarmed)
            .or_else(|_| disarm::set_aside(&project, &name).map(Found::SetAside));
        let found = match found {
            Ok(found) => found,
            // It was moved with something around it that was set aside.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => Found::Armed(error.to_string()),
        };
        self.found.insert(path.to_owned(), found);
    }

    /// Reports new and changed files that tools run, and sets them aside on request.
    fn compare(&mut self, now: &Survey) {
        for (path, (mark, tool)) in &now.files {
            let before: Option<&(Mark, _)> = self.before.files.get(path);
            let of_new = |(new, found): (&PathBuf, &Found)| {
                *found == Found::Disarmed && path.starts_with(new)
            };
            if self.found.iter().any(of_new) || before.is_some_and(|(before, _)| before == mark) {
                continue;
            }
            let found = match before {
                None => Found::New(tool),
                Some(_) => Found::Changed(tool),
            };
            let of_git = now.repositories.keys().any(|git| path.starts_with(git));
            let is_refused = self.record.guard_tools && !of_git;
            let found = match self.project_of(path).filter(|_| is_refused) {
                None => found,
                Some(project) => disarm::set_aside(&project, path)
                    .map_or_else(|error| Found::Armed(error.to_string()), Found::SetAside),
            };
            self.found.insert(path.clone(), found);
        }
    }

    /// Sets aside what appeared at paths that git's settings named before it existed, and hooks in
    /// new repositories that the user's own settings name in each.
    fn set_named_aside(&mut self) {
        let is_new = |(_, found): &(&PathBuf, &Found)| **found == Found::Disarmed;
        let new = self.found.iter().filter(is_new);
        let hooks = new.flat_map(|(git, _)| git::hooks_in_new(git));
        let mut named = self.before.absent.clone();
        named.extend(hooks.map(|path| (path, true)));
        for (path, may_be_folder) in named {
            let counts = std::fs::symlink_metadata(&path)
                .is_ok_and(|found| may_be_folder || !found.is_dir());
            let Some(project) = self.project_of(&path).filter(|_| counts) else {
                continue;
            };
            let found = disarm::set_aside(&project, &path)
                .map_or_else(|error| Found::Armed(error.to_string()), Found::SetAside);
            self.found.insert(path, found);
        }
    }

    fn project_of(&self, path: &Path) -> Option<PathBuf> {
        self.projects
            .iter()
            .find(|project| path.starts_with(project))
            .cloned()
    }
}
