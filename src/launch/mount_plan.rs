//! The plan of the sandbox's file system. It consists of pure decisions over paths, made before
//! anything is cloned.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::failure::{Failure, Step};
use super::mount_request::MountRequest;
use super::repository::Repositories;
use super::request::KeptFolder;
use super::{exact, hide, program, tools, view};

/// The resulting file system. Paths that it does not name do not exist in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountPlan {
    /// The home directory.
    pub home: Home,
    /// Home directories of other users, which are never shown.
    #[serde(with = "exact::list")]
    pub other_homes: Vec<PathBuf>,
    /// Directories that stay as they are on the host, and writable.
    #[serde(with = "exact::list")]
    pub projects: Vec<PathBuf>,
    /// The visible paths of the host beyond its system, read-only.
    #[serde(with = "exact::list")]
    pub seen: Vec<PathBuf>,
    /// The visible paths of the home directory, relative to it; changes stay in memory.
    #[serde(with = "exact::list")]
    pub seen_in_home: Vec<PathBuf>,
    /// Folders of the home directory that outlive the sandbox.
    pub kept: Vec<KeptFolder>,
    /// Files to make in the home directory unless it shows them, by path relative to it.
    pub files: BTreeMap<PathBuf, String>,
    /// The paths that the user or the gateway hides, absolute.
    #[serde(with = "exact::list")]
    pub hidden: Vec<PathBuf>,
    /// Hidden paths that may not be replaced, so their parents may not be renamed.
    #[serde(with = "exact::list")]
    pub own: Vec<PathBuf>,
    /// Files of the projects that the command may neither change nor make.
    #[serde(with = "exact::list")]
    pub read_only: Vec<PathBuf>,
    /// Hidden sockets of the host; those in a project are part of it.
    #[serde(with = "exact::list")]
    pub sockets: Vec<PathBuf>,
    /// Where the command starts.
    #[serde(with = "exact::one")]
    pub working_directory: PathBuf,
    /// Whether what the command writes to its working directory persists.
    pub persistent: bool,
    /// Whether what git obeys in the projects' repositories becomes read-only.
    pub guard_git: bool,
    /// The repositories of the projects, and their guarded parts.
    pub repositories: Repositories,
    /// Whether files that tools run on their own become read-only.
    pub guard_tools: bool,
}

/// The command's home directory, in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Home {
    /// At the path of the user's own, with the visible parts of it.
    Own(#[serde(with = "exact::one")] PathBuf),
    /// An empty one.
    Empty(#[serde(with = "exact::one")] PathBuf),
}

impl Home {
    /// Returns the user's own home directory if they have one, or else an empty one. `/` is no
    /// user's home.
    fn of(own: Option<PathBuf>) -> Self {
        match own.filter(|home| home.is_absolute() && home != Path::new("/")) {
            Some(home) => Self::Own(home),
            None => Self::Empty(EMPTY_HOME.into()),
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        match self {
            Self::Own(path) | Self::Empty(path) => path,
        }
    }
}

impl MountPlan {
    /// Plans the file system.
    ///
    /// The working directory is a project, unless it is or contains the home directory, or contains
    /// something known to hold credentials. In that case the command starts there if part of it is
    /// visible, and otherwise in its home directory.
    ///
    /// # Errors
    /// A [`Step::Prepare`] failure if a further project is such a directory, or if something cannot
    /// be shown.
    pub fn new(request: MountRequest) -> Result<Self, Failure> {
        let launch = request.launch;
        let named = launch.projects.iter().chain(&launch.hide);
        for path in named.chain(&launch.see) {
            if !path.is_absolute() {
                return Err(refused(path, "is not absolute"));
            }
        }
        let home = Home::of(request.home);
        if let (Home::Empty(_), Some(text)) = (&home, launch.see_home.first()) {
            return Err(refused(
                Path::new(text),
                "is of no home: the user of the command has none",
            ));
        }
        let of_home = [launch.see_home, launch.sets].concat();
        let (seen, seen_in_home) = seen(&home, launch.see, &of_home)?;
        let mut other_homes = request.other_homes;
        other_homes.retain(|other| other != Path::new("/") && !home.path().starts_with(other));
        let mut plan = Self {
            kept: launch.kept,
            files: launch.files,
            hidden: launch.hide,
            own: launch.own,
            read_only: Vec::new(),
            sockets: Vec::new(),
            home,
            other_homes,
            projects: Vec::new(),
            seen,
            seen_in_home,
            persistent: false,
            guard_git: !launch.writable_git,
            repositories: Repositories::default(),
            guard_tools: launch.guard_tools,
            working_directory: request.working_directory,
        };
        plan.add_projects(launch.projects)?;
        plan.settle_working_directory(request.project)?;
        plan.add_repositories(request.repositories);
        plan.hide_own_folders(launch.own_folders)?;
        let read_only = launch.read_only.into_iter();
        plan.read_only = read_only.filter(|path| plan.in_project(path)).collect();
        let sockets = request.sockets.into_iter();
        plan.sockets = sockets.filter(|path| !plan.in_project(path)).collect();
        Ok(plan)
    }

    fn add_projects(&mut self, projects: Vec<PathBuf>) -> Result<(), Failure> {
        for project in projects {
            if let Some(reason) = self.why_no_project(&project) {
                return Err(refused(&project, reason));
            }
            self.projects.push(project);
        }
        Ok(())
    }

    /// Adds the working directory's project, or finds where the command starts instead.
    fn settle_working_directory(&mut self, project: PathBuf) -> Result<(), Failure> {
        let directory = self.working_directory.clone();
        let known = known_stores(self.home.path());
        let mut hidden = self.hidden.iter().cloned().chain(known);
        if hidden.any(|hidden| directory.starts_with(hidden)) {
            return Err(refused(&directory, "lies in what is hidden"));
        }
        let may_be = |project: &PathBuf| {
            directory.starts_with(project)
                && (self.in_project(project) || self.why_no_project(project).is_none())
        };
        let candidates = [project, directory.clone()];
        if let Some(project) = candidates.into_iter().find(may_be) {
            self.persistent = true;
            if !self.in_project(&project) {
                self.projects.push(project);
            }
        } else if !self.is_there(&directory) {
            self.working_directory = self.home.path().to_owned();
        }
        Ok(())
    }

    /// Adds the outside repositories that the projects' repositories belong to.
    fn add_repositories(&mut self, repositories: Vec<PathBuf>) {
        for repository in repositories {
            if self.persistent
                && !self.in_project(&repository)
                && self.why_no_project(&repository).is_none()
            {
                self.projects.push(repository);
            }
        }
    }

    /// Hides the folders that the gateway searches for its own files.
    ///
    /// # Errors
    /// A [`Step::Prepare`] failure if the command starts in one, or one is a project.
    pub fn hide_own_folders(&mut self, own_folders: Vec<PathBuf>) -> Result<(), Failure> {
        for folder in own_folders {
            let holds_start = self.persistent && self.working_directory.starts_with(&folder);
            if self.projects.contains(&folder) || holds_start && self.in_project(&folder) {
                return Err(Failure::new(
                    Step::Prepare,
                    format!(
                        "the command could add policies to `{}`; move them to a folder of their own, or name the files",
                        folder.display()
                    ),
                ));
            }
            if self.may_be_hidden(&folder) {
                self.own.push(folder.clone());
                self.hidden.push(folder);
            }
        }
        Ok(())
    }

    /// Drops requested parts of the home directory that do not exist, or that a command put there.
    pub fn forget_what_is_not_there(&mut self) {
        let home = self.home.path().to_owned();
        let mut seen = std::mem::take(&mut self.seen_in_home);
        seen.retain(|name| {
            home.join(name).exists() && self.link_in_a_project(&home.join(name)).is_none()
        });
        self.seen_in_home = seen;
    }

    /// Returns the link in a project through which a path leads, if any. A command that ran there
    /// may have created the link so that the sandbox shows it something else.
    pub fn link_in_a_project(&self, path: &Path) -> Option<PathBuf> {
        program::links(path)
            .into_iter()
            .find(|link| self.in_project(link))
    }

    /// Returns the visible parts of the home directory, for display: set names first, then other
    /// paths.
    pub fn seen_in_home_by_name(&self) -> Vec<String> {
        let sets = tools::names_of(&self.seen_in_home)
            .into_iter()
            .map(str::to_owned);
        let seen = self.seen_in_home.iter();
        let others = seen.filter(|path| !tools::is_of_a_set(path));
        let others = others.map(|path| format!("~/{}", path.display()));
        sets.chain(others).collect()
    }

    /// Returns the flag that would show a program that is not visible. It names the program's
    /// directory, unless that is the home directory.
    pub fn flag_to_see(&self, program: &Path) -> String {
        let directory = program.parent().unwrap_or(program);
        let home = self.home.path();
        match program.strip_prefix(home) {
            Err(_) => format!("--see {}", directory.display()),
            Ok(file) if directory == home => format!("--see-home ./{}", file.display()),
            Ok(file) => format!("--see-home {}", file.parent().unwrap_or(file).display()),
        }
    }

    /// Whether a path is part of a project.
    pub fn in_project(&self, path: &Path) -> bool {
        self.projects
            .iter()
            .any(|project| path.starts_with(project))
    }

    /// Whether a real path of the host is visible inside.
    pub fn sees(&self, real: &Path) -> bool {
        self.in_project(real)
            || view::trees().iter().any(|tree| real.starts_with(tree))
            || self.seen.iter().any(|seen| real.starts_with(seen))
            || self.places_in_home().any(|seen| real.starts_with(seen))
    }

    /// Returns the visible paths of the home directory, absolute.
    pub fn places_in_home(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let home = match &self.home {
            Home::Own(home) => Some(home),
            Home::Empty(_) => None,
        };
        home.into_iter()
            .flat_map(|home| self.seen_in_home.iter().map(|name| home.join(name)))
    }

    /// Whether a file of the new root was made for it, rather than the host's file of that name.
    pub fn is_made(&self, path: &Path) -> bool {
        let name = path.strip_prefix(self.home.path());
        let text = name.ok().and_then(|name| self.files.get(name));
        text.is_some_and(|text| std::fs::read(path).is_ok_and(|held| held == text.as_bytes()))
    }

    /// Whether a path lies in a folder that outlives the sandbox.
    pub fn is_kept(&self, path: &Path) -> bool {
        let home = self.home.path();
        self.kept
            .iter()
            .any(|kept| path.starts_with(home.join(&kept.name)))
    }

    /// Returns the hidden paths that are known to contain credentials. Excludes paths that the user
    /// named, and their parents.
    pub fn built_in_hidden(&self) -> Vec<PathBuf> {
        let seen: Vec<PathBuf> = self.places_in_home().collect();
        let named = |hidden: &PathBuf| seen.iter().any(|seen| seen.starts_with(hidden));
        known_stores(self.home.path())
            .filter(|hidden| !named(hidden))
            .collect()
    }

    /// Returns the project that the working directory is in, if the command's files there persist.
    pub fn project(&self) -> Option<&Path> {
        let mut projects = self.projects.iter().map(PathBuf::as_path);
        projects.find(|project| self.working_directory.starts_with(project))
    }

    /// Whether a directory exists inside: it is visible, or something below it is.
    fn is_there(&self, directory: &Path) -> bool {
        let fresh = view::FRESH.iter().map(Path::new);
        let mut places = fresh.clone().chain([self.home.path()]);
        places.any(|place| place.starts_with(directory))
            || fresh.clone().any(|fresh| fresh == directory)
            || self.sees(directory)
    }

    /// Whether a directory can be hidden as a whole without hiding another path that this plan
    /// places.
    fn may_be_hidden(&self, directory: &Path) -> bool {
        let mut own = self
            .projects
            .iter()
            .map(PathBuf::as_path)
            .chain([self.home.path()])
            .chain(view::FRESH.iter().map(Path::new))
            .chain(SYSTEM.iter().map(Path::new));
        directory != Path::new("/") && !own.any(|own| own.starts_with(directory))
    }

    /// Returns why a directory cannot stay as it is on the host; `None` if it can.
    fn why_no_project(&self, directory: &Path) -> Option<&'static str> {
        let mut homes = self.other_homes.iter();
        if homes.any(|home| home.starts_with(directory)) {
            Some(HOLDS_HOME)
        } else {
            why_no_project(self.home.path(), directory)
        }
    }
}

/// Returns why a directory cannot be a project of a user with this home; `None` if it can.
pub fn why_no_project(home: &Path, directory: &Path) -> Option<&'static str> {
    let holds = |inner: &Path| inner.starts_with(directory);
    if holds(home) {
        return Some(HOLDS_HOME);
    }
    if view::FRESH.iter().any(|fresh| holds(Path::new(fresh))) {
        return Some("is, or holds, a directory of sockets and temporary files");
    }
    if SYSTEM
        .iter()
        .any(|system| directory.starts_with(system) || holds(Path::new(system)))
    {
        return Some("belongs to the system");
    }
    // Texts are compared much more quickly than the components of paths.
    let text = |path: &Path| [path.as_os_str().as_bytes(), b"/"].concat();
    let directory = text(directory);
    let mut stores = known_stores(home).map(|hidden| text(&hidden));
    stores
        .any(|hidden| hidden.starts_with(&directory) || directory.starts_with(&hidden))
        .then_some("holds, or lies in, what is hidden")
}

/// Returns the paths that are known to contain credentials of a user with this home.
fn known_stores(home: &Path) -> impl Iterator<Item = PathBuf> {
    let in_home = hide::IN_HOME.iter().map(move |name| home.join(name));
    in_home.chain(hide::elsewhere().map(PathBuf::from))
}

/// Returns the paths that are visible beyond the system, both elsewhere and in the home directory.
fn seen(
    home: &Home,
    see: Vec<PathBuf>,
    of_the_home: &[String],
) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Failure> {
    let mut of_home: Vec<PathBuf> = Vec::new();
    let mut elsewhere = Vec::new();
    for path in see {
        match path.strip_prefix(home.path()) {
            Ok(relative) if !relative.as_os_str().is_empty() => of_home.push(relative.to_owned()),
            _ => match why_not_seen(home, &path) {
                Some(reason) => return Err(refused(&path, reason)),
                None => elsewhere.push(path),
            },
        }
    }
    if let Home::Own(home) = home {
        of_home.extend(tools::unasked());
        for text in of_the_home {
            let named = tools::named(text, home);
            of_home.extend(named.map_err(|reason| refused(Path::new(text), reason))?);
        }
    }
    for paths in [&mut of_home, &mut elsewhere] {
        paths.sort();
        paths.dedup_by(|later, earlier| later.starts_with(earlier));
    }
    Ok((elsewhere, of_home))
}

/// Returns why a directory cannot be shown; `None` if it can.
fn why_not_seen(home: &Home, path: &Path) -> Option<&'static str> {
    let holds = |inner: &str| Path::new(inner).starts_with(path);
    if home.path().starts_with(path) {
        return Some("is, or holds, the home directory; `--see-home` names what is needed of it");
    }
    if view::FRESH.iter().any(|fresh| holds(fresh)) {
        return Some("is, or holds, a directory of sockets and temporary files");
    }
    if view::KERNELS
        .iter()
        .any(|kernel| holds(kernel) || path.starts_with(kernel))
    {
        return Some("is not a directory of files");
    }
    None
}

fn refused(path: &Path, reason: &str) -> Failure {
    Failure::new(Step::Prepare, format!("`{}` {reason}", path.display()))
}

const HOLDS_HOME: &str = "is, or holds, a home directory";

/// The home directory of a user who has none.
pub const EMPTY_HOME: &str = "/tmp/home";

const SYSTEM: &[&str] = &[
    "/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/boot",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Launch;

    fn planned(directory: &str, home: &str) -> MountPlan {
        let request = MountRequest {
            working_directory: directory.into(),
            home: Some(home.into()),
            ..MountRequest::default()
        };
        MountPlan::new(request).unwrap()
    }

    #[test]
    fn a_project_that_cannot_be_one_leaves_the_folder_alone() {
        for (project, stays) in [
            ("/home/ann/src", "/home/ann/src"),
            ("/home/ann", "/home/ann/src/app"),
            ("/srv/other", "/home/ann/src/app"),
        ] {
            let plan = MountPlan::new(MountRequest {
                working_directory: "/home/ann/src/app".into(),
                project: project.into(),
                home: Some("/home/ann".into()),
                ..MountRequest::default()
            });
            let plan = plan.unwrap();
            assert_eq!(plan.project(), Some(Path::new(stays)), "{project}");
            assert_eq!(plan.working_directory, Path::new("/home/ann/src/app"));
        }
    }

    #[test]
    fn a_directory_in_or_beside_the_home_is_a_project() {
        for directory in ["/home/ann/src/app", "/srv/app", "/tmp/build", "/workspace"] {
            let plan = planned(directory, "/home/ann");
            assert!(plan.persistent, "{directory}");
            assert_eq!(plan.projects, [PathBuf::from(directory)]);
        }
    }

    #[test]
    fn the_home_itself_what_holds_it_and_what_holds_secrets_do_not_persist() {
        for directory in [
            "/home/ann",
            "/home",
            "/",
            "/tmp",
            "/var",
            "/etc",
            "/usr/lib",
            "/home/ann/.config",
            "/proc/1",
        ] {
            let plan = planned(directory, "/home/ann");
            assert!(!plan.persistent && plan.projects.is_empty(), "{directory}");
        }
    }

    #[test]
    fn a_launch_from_inside_a_hidden_directory_is_refused() {
        let request = MountRequest {
            working_directory: "/home/ann/.ssh/keys".into(),
            home: Some("/home/ann".into()),
            ..MountRequest::default()
        };
        assert!(MountPlan::new(request).is_err());
    }

    #[test]
    fn in_roots_own_home_the_command_of_another_starts_in_its_own() {
        let request = MountRequest {
            working_directory: "/root".into(),
            other_homes: vec!["/root".into()],
            ..MountRequest::default()
        };
        assert_eq!(
            MountPlan::new(request).unwrap().working_directory,
            Path::new(EMPTY_HOME)
        );
    }

    #[test]
    fn a_wished_project_that_would_show_secrets_is_refused() {
        for project in ["/home/ann/.config", "/", "/home", "relative"] {
            let request = MountRequest {
                working_directory: "/srv/app".into(),
                home: Some("/home/ann".into()),
                launch: Launch {
                    projects: vec![project.into()],
                    ..Launch::default()
                },
                ..MountRequest::default()
            };
            assert!(MountPlan::new(request).is_err(), "{project}");
        }
    }

    #[test]
    fn a_user_without_a_home_gets_an_empty_one() {
        let request = MountRequest {
            working_directory: "/root/app".into(),
            other_homes: vec!["/root".into()],
            ..MountRequest::default()
        };
        let plan = MountPlan::new(request).unwrap();
        assert_eq!(plan.home, Home::Empty(EMPTY_HOME.into()));
        assert_eq!(plan.projects, [PathBuf::from("/root/app")]);
    }

    #[test]
    fn the_sockets_of_a_project_are_left_to_it() {
        let sockets = ["/srv/my app/x.sock", "/workspace/dev.sock"].map(PathBuf::from);
        let request = MountRequest {
            working_directory: "/workspace".into(),
            sockets: sockets.into(),
            ..MountRequest::default()
        };
        assert_eq!(
            MountPlan::new(request).unwrap().sockets,
            [PathBuf::from("/srv/my app/x.sock")]
        );
    }

    #[test]
    fn a_folder_of_policies_is_hidden_as_a_whole_and_is_never_the_project_itself() {
        let with_folder = |folder: &str| {
            MountPlan::new(MountRequest {
                working_directory: "/srv/app".into(),
                launch: Launch {
                    own_folders: vec![folder.into()],
                    ..Launch::default()
                },
                ..MountRequest::default()
            })
        };
        let folder = PathBuf::from("/srv/app/policies");
        let plan = with_folder("/srv/app/policies").unwrap();
        assert!(plan.hidden.contains(&folder) && plan.own.contains(&folder));
        assert!(with_folder("/srv/app").is_err());
    }

    #[test]
    fn of_the_home_only_sets_and_what_is_named_are_seen() {
        let request = MountRequest {
            working_directory: "/home/ann/app".into(),
            home: Some("/home/ann".into()),
            launch: Launch {
                see: vec!["/data/models".into(), "/home/ann/tools".into()],
                see_home: vec!["claude".into(), ".vimrc".into(), ".config/gh".into()],
                ..Launch::default()
            },
            ..MountRequest::default()
        };
        let plan = MountPlan::new(request).unwrap();
        for seen in [
            "/home/ann/app/x",
            "/home/ann/.cargo/bin/cargo",
            "/home/ann/.claude/skills/x",
            "/home/ann/.vimrc",
            "/home/ann/tools/x",
            "/home/ann/.config/gh/hosts.yml",
            "/data/models/x",
            "/usr/bin/env",
        ] {
            assert!(plan.sees(Path::new(seen)), "{seen}");
        }
        for absent in [
            "/home/ann/.bashrc",
            "/home/ann/.cargo/config.toml",
            "/home/ann/.claude.json",
            "/home/ann/other/x",
            "/home/bob/x",
            "/data/other",
            "/srv/x",
            "/var/lib/x",
            "/mnt/c/Users",
        ] {
            assert!(!plan.sees(Path::new(absent)), "{absent}");
        }
    }

    #[test]
    fn what_would_show_the_home_or_sockets_is_not_to_be_seen() {
        for path in [
            "/",
            "/home",
            "/home/ann",
            "/run",
            "/var",
            "/proc",
            "/proc/1",
            "/dev/shm",
            "relative",
        ] {
            let request = MountRequest {
                working_directory: "/srv/app".into(),
                home: Some("/home/ann".into()),
                launch: Launch {
                    see: vec![path.into()],
                    ..Launch::default()
                },
                ..MountRequest::default()
            };
            assert!(MountPlan::new(request).is_err(), "{path}");
        }
    }

    #[test]
    fn a_command_that_starts_where_nothing_is_seen_starts_at_home() {
        assert_eq!(
            planned("/home/ann/.config", "/home/ann").working_directory,
            Path::new("/home/ann")
        );
        for there in ["/", "/home", "/tmp", "/var", "/usr/lib", "/etc"] {
            assert_eq!(
                planned(there, "/home/ann").working_directory,
                Path::new(there)
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn no_project_ever_holds_something_hidden(parts in proptest::collection::vec("[a-z.]{1,8}|\\.ssh|\\.config|home|ann", 0..5)) {
            let directory = PathBuf::from("/").join(parts.join("/"));
            let request = MountRequest { working_directory: directory, home: Some("/home/ann".into()), ..MountRequest::default() };
            let Ok(plan) = MountPlan::new(request) else { return Ok(()) };
            for project in &plan.projects {
                proptest::prop_assert!(plan.built_in_hidden().iter().all(|hidden| !hidden.starts_with(project)));
            }
        }
    }
}
