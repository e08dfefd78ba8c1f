//! Checks what the command leaves in the projects, so that the user's tools outside do not run it
//! unnoticed.
//!
//! [`Inspection`] surveys the projects before the command runs and again after it has ended. It
//! disarms new repositories, removes the placeholders of `launch::git`, and reports new and changed
//! files that a tool runs on its own. The gateway process does this, because it outlives a launcher
//! that is killed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

pub(super) mod disarm;
mod ending;
mod folder;
mod path_budget;
mod running;
mod settings;
pub(super) mod stored;
pub(super) mod survey;
mod tools;
mod walk;

pub use disarm::disarm_all;
pub use ending::{Aftermath, Found};
pub use survey::Reader;

use super::error::Error;
use super::failure::{At, Step};
use super::git;
use super::prepare::Plan;
use ending::Ending;
use running::Record;
use survey::Survey;

/// An inspection of the projects, begun before the command runs.
#[derive(Debug)]
pub struct Inspection {
    record: Record,
    locks: Vec<OwnedFd>,
    before: Before,
    lookout: Option<git::Lookout>,
}

#[derive(Debug)]
enum Before {
    Surveying(JoinHandle<Survey>),
    Surveyed(Box<Survey>),
}

/// Announces to others that a sandbox of this plan starts, before any of it exists.
///
/// Pass the file to [`Inspection::adopt`] in the process that outlives the sandbox. That process
/// inherits the locks. The caller releases them when that process has been started.
///
/// # Errors
/// Fails if the file cannot be created or a project is locked.
pub fn announce(plan: &Plan, folder: &Path) -> Result<(OwnedFd, Vec<OwnedFd>), Error> {
    let plan = &plan.mounts;
    let working_directory = plan.persistent.then_some(plan.working_directory.as_path());
    let mut record = Record::new(
        &plan.projects,
        working_directory,
        plan.guard_git,
        plan.guard_tools,
    );
    let absent = plan.read_only.iter().filter(|path| is_absent(path));
    record.absent = absent.map(Into::into).collect();
    let locks = record
        .lock_projects()
        .at(Step::Prepare, "a project is locked by another program")?;
    let file = record.enter(folder).at(
        Step::Prepare,
        format!("the list of running sandboxes, in `{}`", folder.display()),
    )?;
    Ok((file, locks))
}

/// Whether nothing has this name, not even a link.
fn is_absent(path: &Path) -> bool {
    path.symlink_metadata().is_err()
}

impl Inspection {
    /// Starts to survey what exists. Returns `None` if the file is not one of [`announce`].
    pub fn adopt(file: impl AsFd) -> Option<Self> {
        let record = Record::read(file)?;
        let locks = record.adopt_locks();
        let projects = record.projects();
        let guard_git = record.guard_git;
        let working_directory = record.working_directory.as_ref().map(PathBuf::from);
        let absent: Vec<PathBuf> = record.absent.iter().map(PathBuf::from).collect();
        let before = Before::Surveying(std::thread::spawn(move || {
            let mut survey = Survey::of(&projects);
            if guard_git {
                survey.absent = git::absent(&projects, &survey);
                survey.barred = git::absent_submodules(&projects, &survey);
                survey.apart = working_directory
                    .and_then(|one| git::place_of_a_new_one(&projects, &one, &survey));
            }
            survey
                .absent
                .extend(absent.into_iter().map(|path| (path, true)));
            survey
        }));
        Some(Self {
            record,
            locks,
            before,
            lookout: None,
        })
    }

    /// Waits until the survey is complete, and watches for new submodules from then on. The command
    /// may not run before that.
    ///
    /// # Errors
    /// The error of starting the watch.
    pub fn begin(&mut self) -> io::Result<()> {
        self.await_survey();
        if let Before::Surveyed(before) = &self.before
            && self.record.guard_git
        {
            let folder = self.record.working_directory.as_ref().map(PathBuf::from);
            self.lookout = Some(git::Lookout::begin(
                &self.record.projects(),
                folder,
                before,
            )?);
        }
        Ok(())
    }

    fn await_survey(&mut self) {
        let none = Before::Surveyed(Box::default());
        self.before = match std::mem::replace(&mut self.before, none) {
            Before::Surveying(thread) => {
                Before::Surveyed(Box::new(thread.join().unwrap_or_default()))
            }
            surveyed => surveyed,
        };
    }

    /// Surveys again once no process of the sandbox is left. Then disarms, and removes
    /// placeholders.
    ///
    /// A file of the gateway that appeared stays if it is `vouched` for.
    pub fn end(mut self, vouched: impl Fn(&Path) -> bool) -> Aftermath {
        self.await_survey();
        let Self {
            record,
            locks,
            before: Before::Surveyed(mut before),
            lookout,
        } = self
        else {
            return Aftermath::default();
        };
        // The file is closed at the end of this, when the kernel is done with its watches.
        let (aside, _events) = lookout.map(git::Lookout::end).unwrap_or_default();
        let gained = record.absent.iter().map(PathBuf::from);
        for path in gained.filter(|path| vouched(path)) {
            before.absent.remove(&path);
        }
        record.end(|alone, handed| {
            // The record covers nested projects. The locks cover other users and home directories.
            let is_locked = alone && !record.has_locks_alone(&locks);
            let alone = alone && !is_locked;
            handed.iter().for_each(|path| before.forget(path));
            let mut aftermath = Ending::new(&record, &before, alone).settle();
            aftermath.add(aside);
            if is_locked {
                aftermath.tell_locked();
            }
            let new = aftermath.disarmed();
            aftermath.add(git::set_forged_aside(&new));
            let made = aftermath.made();
            (aftermath, made)
        })
    }
}
