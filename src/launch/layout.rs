//! The plan of the sandbox's file system, made before anything is cloned: pure decisions over paths.

use std::path::{Path, PathBuf};

use super::error::{Failure, Step};
use super::hide;

/// What the person asked for.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// The directory in which the launcher was started, canonical.
    pub working_directory: PathBuf,
    /// The home directory of the user as whom the command runs; `None` if they have none.
    pub home: Option<PathBuf>,
    /// Home directories of other users that this process could see (root's own, on the root path).
    pub other_homes: Vec<PathBuf>,
    /// Further directories that stay writable, canonical.
    pub projects: Vec<PathBuf>,
    /// Files and directories to hide, beyond the built-in ones; absolute.
    pub hide: Vec<PathBuf>,
    /// Those of them in whose place nothing may be put.
    pub own: Vec<PathBuf>,
    /// Folders to which nothing may be added, canonical.
    pub own_folders: Vec<PathBuf>,
    /// Unix sockets of the host, by path.
    pub sockets: Vec<PathBuf>,
    /// Directories of repositories outside, canonical, that projects are worktrees or submodules of.
    pub repositories: Vec<PathBuf>,
    /// Whether what git obeys in the projects' repositories stays writable.
    pub writable_git: bool,
    /// Whether files that tools run by themselves are guarded.
    pub guard_tools: bool,
}

/// The file system as it will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The home directory.
    pub home: Home,
    /// Whole directories that are emptied.
    pub emptied: Vec<PathBuf>,
    /// Directories that stay as they are on the host, and writable.
    pub projects: Vec<PathBuf>,
    /// What is hidden, absolute.
    pub hidden: Vec<PathBuf>,
    /// What is hidden and may not be replaced, so that its parents may not be renamed.
    pub own: Vec<PathBuf>,
    /// Sockets of the host that are hidden; those in a project are part of it.
    pub sockets: Vec<PathBuf>,
    /// Where the command starts.
    pub working_directory: PathBuf,
    /// Whether what the command writes to its working directory persists.
    pub persistent: bool,
    /// Whether what git obeys in the projects' repositories becomes read-only.
    pub guard_git: bool,
    /// Whether files that tools run by themselves become read-only.
    pub guard_tools: bool,
}

/// The command's home directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// The user's own, under an overlay: what is written there vanishes at the end, and hidden names are not there.
    Overlay(PathBuf),
    /// An empty one in memory.
    Empty(PathBuf),
}

impl std::fmt::Display for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Overlay(path) => write!(
                f,
                "{} (an overlay: changes are dropped, credentials hidden)",
                path.display()
            ),
            Self::Empty(path) => write!(f, "{} (empty, in memory)", path.display()),
        }
    }
}

impl Home {
    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            Self::Overlay(path) | Self::Empty(path) => path,
        }
    }
}

impl Layout {
    /// Plans the file system.
    ///
    /// The working directory is a project, unless it is the home directory or holds it, or holds something that is
    /// hidden or covered: then it is as private to the sandbox as its surroundings are.
    ///
    /// # Errors
    /// A [`Step::Prepare`] failure if a further project is such a directory, or if a path is not absolute.
    pub fn plan(wishes: Wishes) -> Result<Self, Failure> {
        let Wishes {
            working_directory,
            home,
            other_homes,
            projects: further,
            hide,
            own,
            own_folders,
            sockets,
            repositories,
            writable_git,
            guard_tools,
        } = wishes;
        for path in further.iter().chain(&hide) {
            if !path.is_absolute() {
                return Err(Failure::new(
                    Step::Prepare,
                    format!("`{}` is not absolute", path.display()),
                ));
            }
        }
        let home = match home.filter(|home| home.is_absolute() && home != Path::new("/")) {
            Some(home) => Home::Overlay(home),
            None => Home::Empty(EMPTY_HOME.into()),
        };
        let emptied: Vec<PathBuf> = other_homes
            .into_iter()
            .filter(|other| other != Path::new("/") && !home.path().starts_with(other))
            .collect();
        let mut layout = Self {
            hidden: hidden(&home, hide),
            own,
            sockets: Vec::new(),
            home,
            emptied,
            projects: Vec::new(),
            persistent: false,
            guard_git: !writable_git,
            guard_tools,
            working_directory,
        };
        for project in further {
            if let Some(reason) = layout.why_no_project(&project) {
                return Err(Failure::new(
                    Step::Prepare,
                    format!("`{}` {reason}", project.display()),
                ));
            }
            layout.projects.push(project);
        }
        let directory = layout.working_directory.clone();
        if layout.hidden.iter().any(|hidden| directory.starts_with(hidden)) {
            return Err(Failure::new(
                Step::Prepare,
                format!("`{}` lies in what is hidden", directory.display()),
            ));
        }
        if layout
            .projects
            .iter()
            .any(|project| directory.starts_with(project))
        {
            layout.persistent = true;
        } else if layout.why_no_project(&directory).is_none() {
            layout.persistent = true;
            layout.projects.push(directory);
        } else if layout
            .emptied
            .iter()
            .any(|emptied| directory.starts_with(emptied))
        {
            layout.working_directory = layout.home.path().to_owned();
        }
        for repository in repositories {
            let has_it = layout
                .projects
                .iter()
                .any(|project| repository.starts_with(project));
            if layout.persistent && !has_it && layout.why_no_project(&repository).is_none() {
                layout.projects.push(repository);
            }
        }
        for folder in own_folders {
            if layout.projects.contains(&folder) {
                return Err(Failure::new(
                    Step::Prepare,
                    format!(
                        "the command could add policies to `{}`; move them to a folder of their own, or name the files",
                        folder.display()
                    ),
                ));
            }
            if layout.may_have_overlay(&folder) {
                layout.own.push(folder.clone());
                layout.hidden.push(folder);
            }
        }
        let in_project = |path: &PathBuf| layout.projects.iter().any(|project| path.starts_with(project));
        layout.sockets = sockets.into_iter().filter(|path| !in_project(path)).collect();
        Ok(layout)
    }

    /// Tells whether a directory can be covered by an overlay without covering what has its own place in this plan.
    pub fn may_have_overlay(&self, directory: &Path) -> bool {
        let own = self.projects.iter().chain(&self.emptied).map(PathBuf::as_path);
        let mut own = own
            .chain([self.home.path()])
            .chain(hide::COVERED.iter().map(Path::new))
            .chain(SYSTEM.iter().map(Path::new));
        directory != Path::new("/") && !own.any(|own| own.starts_with(directory))
    }

    /// Tells why a directory cannot stay as it is on the host; `None` if it can.
    fn why_no_project(&self, directory: &Path) -> Option<&'static str> {
        let holds = |inner: &Path| inner.starts_with(directory);
        if holds(self.home.path()) || self.emptied.iter().any(|home| holds(home)) {
            return Some("is, or holds, a home directory");
        }
        if hide::COVERED.iter().any(|covered| holds(Path::new(covered))) {
            return Some("is, or holds, a directory of sockets and temporary files");
        }
        if SYSTEM
            .iter()
            .any(|system| directory.starts_with(system) || holds(Path::new(system)))
        {
            return Some("belongs to the system");
        }
        if self
            .built_in_hidden()
            .any(|hidden| holds(&hidden) || directory.starts_with(&hidden))
        {
            return Some("holds, or lies in, what is hidden");
        }
        None
    }

    fn built_in_hidden(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let home = self.home.path();
        hide::IN_HOME
            .iter()
            .map(move |name| home.join(name))
            .chain(hide::ELSEWHERE.iter().map(PathBuf::from))
    }
}

fn hidden(home: &Home, wished: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut hidden: Vec<PathBuf> = match home {
        Home::Overlay(home) => hide::IN_HOME.iter().map(|name| home.join(name)).collect(),
        Home::Empty(_) => Vec::new(),
    };
    hidden.extend(hide::ELSEWHERE.iter().map(PathBuf::from));
    hidden.extend(wished);
    hidden
}

/// Gives the Unix sockets with a path that exist in this network namespace, but for those that are covered anyway.
pub fn host_sockets(table: &str) -> Vec<PathBuf> {
    // Num RefCount Protocol Flags Type St Inode Path
    let mut paths: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]))
        .map(PathBuf::from)
        .filter(|path| {
            !hide::COVERED
                .iter()
                .chain(&["/dev", "/var/run"])
                .any(|covered| path.starts_with(covered))
        })
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Where the home directory is of a user who has none.
pub const EMPTY_HOME: &str = "/tmp/home";

const SYSTEM: &[&str] = &[
    "/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/boot",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(directory: &str, home: &str) -> Layout {
        let wishes = Wishes {
            working_directory: directory.into(),
            home: Some(home.into()),
            ..Wishes::default()
        };
        Layout::plan(wishes).unwrap()
    }

    #[test]
    fn a_directory_in_or_beside_the_home_is_a_project() {
        for directory in ["/home/ann/src/app", "/srv/app", "/tmp/build", "/workspace"] {
            let layout = plan(directory, "/home/ann");
            assert!(layout.persistent, "{directory}");
            assert_eq!(layout.projects, [PathBuf::from(directory)]);
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
            let layout = plan(directory, "/home/ann");
            assert!(!layout.persistent && layout.projects.is_empty(), "{directory}");
        }
    }

    #[test]
    fn a_launch_from_inside_a_hidden_directory_is_refused() {
        let wishes = Wishes {
            working_directory: "/home/ann/.ssh/keys".into(),
            home: Some("/home/ann".into()),
            ..Wishes::default()
        };
        assert!(Layout::plan(wishes).is_err());
    }

    #[test]
    fn in_roots_own_home_the_command_of_another_starts_in_its_own() {
        let wishes = Wishes {
            working_directory: "/root".into(),
            other_homes: vec!["/root".into()],
            ..Wishes::default()
        };
        assert_eq!(
            Layout::plan(wishes).unwrap().working_directory,
            Path::new(EMPTY_HOME)
        );
    }

    #[test]
    fn a_wished_project_that_would_show_secrets_is_refused() {
        for project in ["/home/ann/.config", "/", "/home", "relative"] {
            let wishes = Wishes {
                working_directory: "/srv/app".into(),
                home: Some("/home/ann".into()),
                projects: vec![project.into()],
                ..Wishes::default()
            };
            assert!(Layout::plan(wishes).is_err(), "{project}");
        }
    }

    #[test]
    fn a_user_without_a_home_gets_an_empty_one() {
        let wishes = Wishes {
            working_directory: "/root/app".into(),
            other_homes: vec!["/root".into()],
            ..Wishes::default()
        };
        let layout = Layout::plan(wishes).unwrap();
        assert_eq!(layout.home, Home::Empty(EMPTY_HOME.into()));
        assert_eq!(layout.emptied, [PathBuf::from("/root")]);
        assert_eq!(layout.projects, [PathBuf::from("/root/app")]);
    }

    #[test]
    fn sockets_are_found_by_their_paths_and_a_projects_own_are_left_to_it() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000: 00000002 00000000 00010000 0001 01 1 /srv/my app/x.sock\n\
            0000: 00000002 00000000 00010000 0001 01 2 /run/docker.sock\n\
            0000: 00000002 00000000 00010000 0001 01 3 @/tmp/abstract\n\
            0000: 00000002 00000000 00000000 0001 03 4\n\
            0000: 00000002 00000000 00010000 0001 01 5 /workspace/dev.sock\n";
        let sockets = host_sockets(table);
        assert_eq!(
            sockets,
            ["/srv/my app/x.sock", "/workspace/dev.sock"].map(PathBuf::from)
        );
        let wishes = Wishes {
            working_directory: "/workspace".into(),
            sockets,
            ..Wishes::default()
        };
        assert_eq!(
            Layout::plan(wishes).unwrap().sockets,
            [PathBuf::from("/srv/my app/x.sock")]
        );
    }

    #[test]
    fn a_folder_of_policies_is_hidden_as_a_whole_and_is_never_the_project_itself() {
        let plan = |folder: &str| {
            Layout::plan(Wishes {
                working_directory: "/srv/app".into(),
                own_folders: vec![folder.into()],
                ..Wishes::default()
            })
        };
        let folder = PathBuf::from("/srv/app/policies");
        let layout = plan("/srv/app/policies").unwrap();
        assert!(layout.hidden.contains(&folder) && layout.own.contains(&folder));
        assert!(plan("/srv/app").is_err());
    }

    #[test]
    fn what_holds_a_project_gets_no_overlay() {
        let layout = plan("/srv/app", "/home/ann");
        for directory in ["/", "/srv", "/srv/app", "/home", "/var", "/etc"] {
            assert!(!layout.may_have_overlay(Path::new(directory)), "{directory}");
        }
        assert!(
            layout.may_have_overlay(Path::new("/srv/other"))
                && layout.may_have_overlay(Path::new("/etc/app"))
        );
    }

    proptest::proptest! {
        #[test]
        fn no_project_ever_holds_something_hidden(parts in proptest::collection::vec("[a-z.]{1,8}|\\.ssh|\\.config|home|ann", 0..5)) {
            let directory = PathBuf::from("/").join(parts.join("/"));
            let wishes = Wishes { working_directory: directory, home: Some("/home/ann".into()), ..Wishes::default() };
            let Ok(layout) = Layout::plan(wishes) else { return Ok(()) };
            for project in &layout.projects {
                proptest::prop_assert!(layout.hidden.iter().all(|hidden| !hidden.starts_with(project)));
            }
        }
    }
}
