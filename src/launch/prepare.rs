//! Prepares a launch: everything that is decided before anything is created.

use std::path::PathBuf;

use super::error::Error;
use super::failure::{Failure, Step};
use super::identity::{Identity, User};
use super::mount_plan::{Home, MountPlan};
use super::mount_request::MountRequest;
use super::request::Launch;
use super::{project, watch};

/// What a launch will look like, for the summary shown before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The user that runs the command.
    pub user: User,
    /// Where the command's home directory is, and whether it is the user's own.
    pub home: Home,
    /// What is visible of the home directory: sets by name, and paths relative to it.
    pub seen_in_home: Vec<String>,
    /// What of it is visible, as absolute paths.
    pub places_in_home: Vec<PathBuf>,
    /// What is visible beyond the system, the home directory and the projects.
    pub seen: Vec<PathBuf>,
    /// Where it starts.
    pub working_directory: PathBuf,
    /// Whether what it writes to its working directory persists.
    pub persistent: bool,
    /// The directories that are the host's own and writable.
    pub projects: Vec<PathBuf>,
    /// The names of variables that do not reach the command and that it might miss.
    pub left_out: Vec<String>,
    /// Whether a project has a repository whose settings and hooks are read-only.
    pub guards_git: bool,
    /// The files of the projects that hold what looks like a secret, of those that usually do.
    pub secrets: Vec<PathBuf>,
    /// The sockets in the projects on which a program of the host answers.
    pub sockets: Vec<PathBuf>,
}

/// Describes what [`super::run`] would do in this directory, as this user.
///
/// # Errors
/// As [`super::run`], for what can be known beforehand.
pub fn summary(launch: &Launch) -> Result<Summary, Error> {
    let (identity, plan) = plan(launch)?;
    let seen_in_home = plan.seen_in_home_by_name();
    let places_in_home = plan.places_in_home().collect();
    let guards_git = plan.guard_git && plan.projects.iter().any(|one| one.join(".git").exists());
    let secrets = plan.projects.iter().flat_map(|one| project::secrets(one));
    let secrets = secrets.filter(|path| !plan.hidden.contains(path)).collect();
    let sockets = project::sockets(&plan);
    let MountPlan {
        home,
        working_directory,
        persistent,
        projects,
        seen,
        ..
    } = plan;
    Ok(Summary {
        user: identity.user(),
        home,
        seen_in_home,
        places_in_home,
        seen,
        working_directory,
        persistent,
        projects,
        guards_git,
        secrets,
        sockets,
        left_out: launch.environment.left_out(std::env::vars_os()),
    })
}

/// Plans the file system of a launch.
///
/// # Errors
/// As [`super::run`], for what can be known beforehand.
pub fn file_system(launch: &Launch) -> Result<MountPlan, Error> {
    Ok(plan(launch)?.1)
}

/// Chooses the user that runs the command, and plans the file system.
///
/// # Errors
/// A failure that names what cannot be shown, hidden or guarded.
pub fn plan(launch: &Launch) -> Result<(Identity, MountPlan), Failure> {
    let identity = Identity::choose(launch.user, User::who_called_sudo())?;
    let mut plan = MountPlan::new(MountRequest::of(launch, identity)?)?;
    plan.forget_what_is_not_there();
    plan.repositories.clone_from(&launch.repositories);
    refuse_links_of_the_command(launch, &plan)?;
    refuse_to_show_what_is_hidden(&plan)?;
    watch::refuse_files(&plan)?;
    Ok((identity, plan))
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

/// Refuses what is both shown and hidden: the gateway's own files, secrets, and what the user
/// hides.
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
