//! What the sandbox's file system should contain, according to the user and this machine.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gateway_names::real_path;

use super::failure::{AtStep, Failure, Step};
use super::identity::{CommandUser, User};
use super::paths::by_name;
use super::repository::outside;
use super::request::Launch;
use super::{environment, hide, view};

/// The wanted file system: the user's wishes, and the matching paths of this machine.
#[derive(Clone, Debug, Default)]
pub struct MountRequest {
    /// The directory in which the launcher was started, canonical.
    pub working_directory: PathBuf,
    /// The project of the working directory: itself, or a directory above.
    pub project: PathBuf,
    /// The home directory of the user that runs the command; `None` if they have none.
    pub home: Option<PathBuf>,
    /// Home directories of other users that this process could see (root's own, when root runs it).
    pub other_homes: Vec<PathBuf>,
    /// Unix sockets of the host, by path.
    pub sockets: Vec<PathBuf>,
    /// Directories of repositories outside, canonical, whose worktrees or submodules are projects.
    pub repositories: Vec<PathBuf>,
    /// The user's wishes. Paths to show, write or protect from changes are canonical.
    pub launch: Launch,
}

impl MountRequest {
    /// Looks up on this machine the paths that the launch names.
    ///
    /// # Errors
    /// A [`Step::Prepare`] failure if a path to show does not exist.
    pub fn of(launch: &Launch, identity: CommandUser) -> Result<Self, Failure> {
        let (home, other_homes) = homes(identity);
        let projects = real("--write", &launch.projects)?;
        let working_directory = std::env::current_dir().at(Step::Prepare, "working directory")?;
        let project = launch.project.clone();
        let project = project.unwrap_or_else(|| working_directory.clone());
        // If the table cannot be read, sockets cannot be distinguished; the places that are always
        // covered remain.
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        Ok(Self {
            repositories: repositories(&projects, &project),
            working_directory,
            project,
            home,
            other_homes,
            sockets: host_sockets(&sockets),
            launch: Launch {
                projects,
                see: real("--see", &launch.see)?,
                hide: hidden(launch),
                own: launch.own.iter().filter_map(|path| by_name(path)).collect(),
                ..launch.clone()
            },
        })
    }
}

/// Returns the home directory of the user that runs the command, and those of others that this
/// process could see.
fn homes(identity: CommandUser) -> (Option<PathBuf>, Vec<PathBuf>) {
    let user = identity.user();
    let from_environment = std::env::var_os("HOME").map(PathBuf::from);
    let wanted = match identity {
        CommandUser::Own(_) => from_environment.clone(),
        CommandUser::Other(_) => user.home(),
    };
    let is_own = |home: &PathBuf| {
        std::fs::metadata(home).is_ok_and(|found| found.is_dir() && found.uid() == user.uid)
    };
    let home = wanted.and_then(canonical).filter(is_own);
    let mut others = Vec::new();
    if identity.is_other() {
        let root = User { uid: 0, gid: 0 }.home();
        let known = [root, from_environment].into_iter().flatten();
        others.extend(known.filter_map(canonical));
        others.retain(|other| Some(other) != home.as_ref());
        others.dedup();
    }
    (home, others)
}

/// Returns the repositories outside that the projects belong to.
fn repositories(projects: &[PathBuf], project: &Path) -> Vec<PathBuf> {
    let mut shared: Vec<&Path> = projects.iter().map(PathBuf::as_path).collect();
    shared.push(project);
    shared
        .iter()
        .filter_map(|project| outside(project, &shared))
        .collect()
}

/// Returns what to hide: each path by the name in its real directory and, for a link, by its
/// target.
fn hidden(launch: &Launch) -> Vec<PathBuf> {
    let both = |path: &PathBuf| [by_name(path), canonical(path.clone())];
    let variables: Vec<_> = std::env::vars_os().collect();
    let named = environment::credential_files(&variables);
    let named = launch.hide.iter().chain(&named);
    let mut hide: Vec<PathBuf> = named.flat_map(both).flatten().collect();
    hide.extend(environment::relocated(&variables, &hide::IN_HOME));
    hide.sort();
    hide.dedup();
    hide
}

/// Returns the real paths that the user passes or shows to the command. Accepts only directories
/// and files, no sockets, pipes or devices.
fn real(flag: &str, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let real = |path: &PathBuf| {
        // The flag is wrong, not the system: without an error number, which would blame the system.
        let refused = |error: std::io::Error| {
            Failure::new(Step::Prepare, format!("{flag} {}: {error}", path.display()))
        };
        let found = std::fs::metadata(path).map_err(refused)?;
        if !found.is_dir() && !found.is_file() {
            let why = format!(
                "{flag} {} is neither a directory nor a file",
                path.display()
            );
            return Err(Failure::new(Step::Prepare, why));
        }
        real_path(path).map_err(refused)
    };
    paths.iter().map(real).collect()
}

fn canonical(path: PathBuf) -> Option<PathBuf> {
    real_path(path).ok()
}

/// Returns the Unix sockets with a path in this network namespace, except those in places that are
/// not visible anyway.
pub fn host_sockets(table: &str) -> Vec<PathBuf> {
    // Num RefCount Protocol Flags Type St Inode Path
    let mut paths: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]))
        .map(PathBuf::from)
        .filter(|path| {
            !view::FRESH
                .iter()
                .chain(&["/dev", "/var/run"])
                .any(|fresh| path.starts_with(fresh))
        })
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_with_a_path_that_could_be_visible_are_named() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000: 00000002 00000000 00010000 0001 01 1 /srv/my app/x.sock\n\
            0000: 00000002 00000000 00010000 0001 01 2 /run/docker.sock\n\
            0000: 00000002 00000000 00010000 0001 01 3 @/tmp/abstract\n\
            0000: 00000002 00000000 00000000 0001 03 4\n\
            0000: 00000002 00000000 00010000 0001 01 5 /workspace/dev.sock\n";
        assert_eq!(
            host_sockets(table),
            ["/srv/my app/x.sock", "/workspace/dev.sock"].map(PathBuf::from)
        );
    }
}
