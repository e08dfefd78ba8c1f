//! Prepares a launch: all decisions, before anything is created.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::failure::{Failure, Step};
use super::identity::{CommandUser, User};
use super::mount_plan::MountPlan;
use super::mount_request::MountRequest;
use super::request::Launch;
use super::{project, repository, watch};

/// A launch in which everything is decided, before anything is created.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// The user that runs the command.
    pub(super) identity: CommandUser,
    /// The file system.
    pub mounts: MountPlan,
    /// The command, and its bounds. Its files are decided in `mounts`.
    pub(super) launch: Launch,
}

impl LaunchPlan {
    /// Chooses the user that runs the command, and plans the file system.
    ///
    /// # Errors
    /// A failure that names the path that cannot be shown, hidden or guarded.
    pub fn of(launch: Launch) -> Result<Self, Error> {
        let identity = CommandUser::choose(launch.user, User::who_called_sudo())?;
        let mut mounts = MountPlan::new(MountRequest::of(&launch, identity)?)?;
        mounts.forget_what_is_not_there();
        refuse_links_of_the_command(&launch, &mounts)?;
        refuse_to_show_what_is_hidden(&mounts)?;
        watch::refuse_files(&mounts)?;
        let launch = Launch {
            arguments: launch.arguments,
            own_program: launch.own_program,
            variables: launch.variables,
            environment: launch.environment,
            bounds: launch.bounds,
            allow_userns: launch.allow_userns,
            ports: launch.ports,
            capture: launch.capture,
            ..Launch::default()
        };
        Ok(Self {
            identity,
            mounts,
            launch,
        })
    }

    /// Looks for the repositories of the projects, and for their guarded parts.
    ///
    /// # Errors
    /// A failure that names what cannot be guarded.
    pub fn look_at_repositories(&mut self, state: &Path) -> Result<(), Error> {
        self.mounts.repositories = repository::find(&self.mounts, state)?;
        Ok(())
    }

    /// Hides further folders of the gateway, in which the command may make no file.
    ///
    /// # Errors
    /// As [`LaunchPlan::of`].
    pub fn hide(&mut self, folders: Vec<PathBuf>) -> Result<(), Error> {
        self.mounts.hide_own_folders(folders)?;
        Ok(refuse_to_show_what_is_hidden(&self.mounts)?)
    }

    /// Returns the user that runs the command.
    pub fn user(&self) -> User {
        self.identity.user()
    }

    /// Returns the command, and its bounds.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Returns the names of variables that do not reach the command and that it might miss.
    pub fn left_out(&self) -> Vec<String> {
        self.launch.environment.left_out(std::env::vars_os())
    }

    /// Whether a project has a repository whose settings and hooks are read-only.
    pub fn guards_git(&self) -> bool {
        let mut projects = self.mounts.projects.iter();
        self.mounts.guard_git && projects.any(|one| one.join(".git").exists())
    }

    /// Returns the files of the projects that seem to hold a secret, among those that usually do,
    /// each with the secret's name.
    pub fn secrets(&self) -> Vec<(PathBuf, Option<String>)> {
        let projects = self.mounts.projects.iter();
        let secrets = projects.flat_map(|one| project::secrets(one));
        let is_seen = |(path, _): &(PathBuf, _)| !self.mounts.hidden.contains(path);
        secrets.filter(is_seen).collect()
    }

    /// Returns the sockets in the projects that a program of the host serves.
    pub fn sockets(&self) -> Vec<PathBuf> {
        project::sockets(&self.mounts)
    }
}

/// Refuses paths that lead through a link in a project: the command may change where the link
/// leads.
fn refuse_links_of_the_command(launch: &Launch, plan: &MountPlan) -> Result<(), Failure> {
    let named = [&launch.see, &launch.projects, &launch.hide];
    for path in named.into_iter().flatten() {
        if let Some(link) = plan.link_in_a_project(path) {
            let why = format!(
                "`{}` leads by the link `{}`, which the command may change; name where it leads",
                path.display(),
                link.display()
            );
            return Err(Failure::new(Step::Prepare, why));
        }
    }
    Ok(())
}

/// Refuses paths that are both shown and hidden: the gateway's own files, secrets, and paths that
/// the user hides.
fn refuse_to_show_what_is_hidden(plan: &MountPlan) -> Result<(), Failure> {
    let is_hidden = |path: &&PathBuf| plan.hidden.iter().any(|hidden| path.starts_with(hidden));
    match plan.seen.iter().find(is_hidden) {
        None => Ok(()),
        Some(path) => {
            let why = format!(
                "`{}` is hidden from the command, and cannot be shown to it",
                path.display()
            );
            Err(Failure::new(Step::Prepare, why))
        }
    }
}
