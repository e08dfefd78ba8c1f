//! The launcher: runs a command in namespaces whose only way out is the gateway.
//!
//! [`reexec`] replaces the calling process with a fresh, single-threaded one with a scrubbed
//! environment. [`resume`] continues there, and [`run`] does the work. `launch` shares only
//! `enroll` with the data path: the sockets that the gateway serves are created inside the sandbox
//! and passed to it. If a step fails, the command is never started.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![expect(
    unsafe_code,
    reason = "namespaces, seccomp, key rings and the probes have no safe calls"
)]

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

use crate::enroll::{Capture, LauncherEnd};

mod advice;
pub mod after;
pub mod bounds;
mod command;
mod confine;
mod detect;
mod devices;
pub mod enroll;
pub mod environment;
mod error;
pub mod escape;
mod filter;
mod git;
mod gitconfig;
pub mod hide;
mod host;
mod identity;
mod init;
mod layout;
mod mounts;
mod named;
mod netlink;
pub mod network;
mod overlay;
mod passed;
pub mod program;
mod ruleset;
mod streams;
mod syscall;
mod terminal;
pub mod tools;
pub mod trust;
mod truststore;
mod view;
mod watch;

pub use error::{Error, Failure, Step};
pub use identity::{User, UserUnknown};
pub use layout::Home;
pub use streams::Stream;

use error::At;
use identity::Identity;
use layout::{Layout, Wishes};

/// What to run, and how.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Launch {
    /// The command and its arguments. The first is the program, looked up in `PATH` unless
    /// `own_program` is set.
    pub arguments: Vec<OsString>,
    /// Whether the program is this very program, whatever the first argument says. It then runs
    /// from the open file, so the sandbox's user need not be able to reach its path.
    pub own_program: bool,
    /// Further directories that stay the host's own and writable; absolute.
    pub projects: Vec<PathBuf>,
    /// Further directories and files to show, read-only; absolute.
    pub see: Vec<PathBuf>,
    /// What to show of the home directory beyond the default: names of [`tools::SETS`], and paths.
    pub see_home: Vec<String>,
    /// Further sets of the home directory, by name, if the user has one.
    pub sets: Vec<String>,
    /// Files and directories to hide, beyond the built-in ones; absolute.
    pub hide: Vec<PathBuf>,
    /// Those of `hide` that are the gateway's own files. Nothing may be put in their place either,
    /// because the next start would read it.
    pub own: Vec<PathBuf>,
    /// Folders in which the gateway looks for its own files by a pattern. Nothing may be added to
    /// them.
    pub own_folders: Vec<PathBuf>,
    /// Which variables pass, beyond the built-in list.
    pub environment: environment::Rules,
    /// How much of the machine's resources the sandbox may use.
    pub bounds: bounds::Bounds,
    /// The user that runs the command. Root only; `None` for the user who called `sudo`, or nobody.
    pub user: Option<User>,
    /// Whether the command may create its own user namespaces (Chromium, bubblewrap, podman, a
    /// nested gateway).
    pub allow_userns: bool,
    /// Whether what git obeys in the projects' repositories stays writable.
    pub writable_git: bool,
    /// Whether files that outside tools run on their own are guarded: none can change, and none can
    /// appear.
    pub guard_tools: bool,
    /// Forces one way of capture; `None` for the best one that the kernel has.
    pub capture: Option<Capture>,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(u8),
    /// This signal killed it.
    Signal(i32),
}

/// What a launch will look like, for the summary that a person sees before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The user that runs the command.
    pub user: User,
    /// Where the command's home directory is, and whether it is the user's own.
    pub home: Home,
    /// What is visible of the home directory: sets by name, and paths relative to it.
    pub seen_in_home: Vec<String>,
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
}

/// Creates the sandbox, runs the command in it, and returns how it ended.
///
/// The process must be single-threaded, which [`reexec`] ensures.
///
/// # Errors
/// [`Error`] if the command was never started; see [`Error::exit_code`] and [`Error::advice`].
pub fn run(launch: Launch, gateway: LauncherEnd) -> Result<Exit, Error> {
    let (identity, layout) = plan(&launch)?;
    let program = match launch.own_program {
        true => Some(OwnedFd::from(
            File::open("/proc/self/exe").at(Step::Prepare, "/proc/self/exe")?,
        )),
        false => None,
    };
    let mut variables = launch.environment.scrub(std::env::vars_os());
    if identity.is_other() {
        for name in [
            "USER",
            "LOGNAME",
            "MAIL",
            "XDG_CONFIG_HOME",
            "XDG_CACHE_HOME",
            "XDG_DATA_HOME",
            "XDG_STATE_HOME",
        ] {
            variables.retain(|(known, _)| known != name);
        }
    }
    let sandbox = init::Sandbox {
        identity,
        layout,
        arguments: launch.arguments,
        program,
        environment: variables,
        bounds: launch.bounds,
        capture: launch.capture,
        allow_userns: launch.allow_userns,
        interactive: terminal::Terminal::is_interactive(),
        terminal: terminal::Terminal::own().exists(),
    };
    host::run(sandbox, gateway)
}

/// Describes what [`run`] would do in this directory, as this user.
///
/// # Errors
/// As [`run`], for what can be known beforehand.
pub fn summary(launch: &Launch) -> Result<Summary, Error> {
    let (identity, layout) = plan(launch)?;
    let seen_in_home = layout.seen_in_home_by_name();
    let Layout {
        home,
        working_directory,
        persistent,
        projects,
        seen,
        ..
    } = layout;
    Ok(Summary {
        user: identity.user(),
        home,
        seen_in_home,
        seen,
        working_directory,
        persistent,
        projects,
        left_out: launch.environment.left_out(std::env::vars_os()),
    })
}

/// Replaces this process with the launcher, in a fresh image of this program: `gateway __launch
/// SOCKET SETTINGS`.
///
/// The new image has only the variables that the command may have, so its memory contains no secret
/// of the user's. Returns only if that fails.
pub fn reexec(mut launch: Launch, gateway: LauncherEnd) -> io::Error {
    let variables: Vec<_> = std::env::vars_os().collect();
    launch
        .hide
        .extend(environment::credential_files(&variables));
    let mut passed = launch.environment.scrub(variables.iter().cloned());
    // Who called sudo matters to the launcher, not to the command: the launcher drops these itself.
    passed.extend(
        variables
            .into_iter()
            .filter(|(name, _)| name == "SUDO_UID" || name == "SUDO_GID"),
    );
    match prepare(&launch, gateway) {
        Err(error) => error,
        Ok((socket, settings)) => {
            let arguments = [
                OsString::from("gateway"),
                SUBCOMMAND.into(),
                socket.as_raw_fd().to_string().into(),
                settings.as_raw_fd().to_string().into(),
            ];
            match (command::strings(&arguments), command::block(&passed)) {
                (Ok(arguments), Ok(passed)) => {
                    syscall::execute(c"/proc/self/exe", &arguments, &passed)
                }
                (Err(error), _) | (_, Err(error)) => error,
            }
        }
    }
}

/// Parses what [`reexec`] passed on: the arguments after [`SUBCOMMAND`].
///
/// # Errors
/// `InvalidInput` if they are not such arguments.
pub fn resume(arguments: &[OsString]) -> io::Result<(Launch, LauncherEnd)> {
    let [socket, settings] = arguments else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let adopt = |argument: &OsStr| -> io::Result<OwnedFd> {
        let number = argument
            .to_str()
            .and_then(|a| a.parse().ok())
            .filter(|number| *number > 2);
        syscall::adopt(number.ok_or(io::ErrorKind::InvalidInput)?)
    };
    let (socket, settings) = (adopt(socket)?, File::from(adopt(settings)?));
    let launch = serde_json::from_reader(io::BufReader::new(settings))?;
    Ok((launch, socket.into()))
}

/// A handle on a sandbox's first process. When it ends, all others end.
#[derive(Debug)]
pub struct First(OwnedFd);

impl First {
    /// Opens a handle by process number. The process must not have been reaped.
    ///
    /// # Errors
    /// `ESRCH` if it has gone.
    pub fn of(pid: i32) -> io::Result<Self> {
        let pid = rustix::process::Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = rustix::process::PidfdFlags::empty();
        Ok(Self(rustix::process::pidfd_open(pid, flags)?))
    }
}

/// Waits until no process of the sandbox is left, for at most `within`.
pub fn await_end(first: &First, within: Duration) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec {
        tv_sec: within.as_secs() as i64,
        tv_nsec: within.subsec_nanos().into(),
    };
    // It dies with the launcher, so nothing needs to be done if this takes longer.
    let _ = poll(&mut [PollFd::new(&first.0, PollFlags::IN)], Some(&timeout));
}

/// Waits until every child of this process has ended and is reaped, for at most `within`.
pub fn await_children(within: Duration) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{WaitOptions, wait};
    let until = Instant::now() + within;
    let ends = syscall::SignalSet::of(&[libc::SIGCHLD]);
    // Blocked before the first check, so that none ends unseen between a check and the wait.
    let (Ok(before), Ok(arrivals)) = (ends.block(), ends.descriptor()) else {
        return;
    };
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => continue,
            Ok(None) => {}
            Err(_) => break,
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        // However this ends, the next check decides.
        let _ = poll(&mut [PollFd::new(&arrivals, PollFlags::IN)], Some(&timeout));
        while syscall::next_signal(&arrivals).is_some() {}
    }
    before.restore();
}

/// What is both shown and hidden: the gateway's own files, secrets, and what the person hides.
fn see_refused(layout: &Layout) -> Option<&PathBuf> {
    let is_hidden = |path: &&PathBuf| layout.hidden.iter().any(|hidden| path.starts_with(hidden));
    layout.seen.iter().find(is_hidden)
}

/// The exit code of a launcher that never started the command.
pub const LAUNCHER_FAILED: u8 = 125;

/// The first argument that tells `main` to act as the launcher.
pub const SUBCOMMAND: &str = "__launch";

impl Exit {
    fn from_status(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signal(libc::WTERMSIG(status))
        } else {
            Self::Code(libc::WEXITSTATUS(status) as u8)
        }
    }

    /// Ends this process the way the command ended: with its code, or by its signal, without a core
    /// file.
    pub fn resume(self) -> ! {
        match self {
            Self::Code(code) => std::process::exit(code.into()),
            Self::Signal(signal) => {
                let none = rustix::process::Rlimit {
                    current: Some(0),
                    maximum: Some(0),
                };
                let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
                syscall::default_action(signal);
                syscall::SignalSet::of(&[]).restore();
                syscall::raise(signal);
                std::process::exit(128 + signal)
            }
        }
    }
}

fn prepare(launch: &Launch, gateway: LauncherEnd) -> io::Result<(OwnedFd, OwnedFd)> {
    use std::io::{Seek, Write};
    let socket = OwnedFd::from(gateway);
    let mut settings = File::from(rustix::fs::memfd_create(
        "gateway-launch",
        MemfdFlags::CLOEXEC,
    )?);
    settings.write_all(&serde_json::to_vec(launch)?)?;
    settings.rewind()?;
    for file in [socket.as_fd(), settings.as_fd()] {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?;
    }
    Ok((socket, settings.into()))
}

/// The path of a name in its real directory; the name itself may be a link. `None` if there is no
/// such directory.
fn by_name(path: &Path) -> Option<PathBuf> {
    Some(
        std::fs::canonicalize(path.parent()?)
            .ok()?
            .join(path.file_name()?),
    )
}

/// The real paths of what a person passes to the command or shows to it: directories and files
/// only, nothing that a process answers on.
fn real(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let real = |path: &PathBuf| {
        let found = std::fs::metadata(path).at(Step::Prepare, path.display().to_string())?;
        if !found.is_dir() && !found.is_file() {
            let why = format!("`{}` is neither a directory nor a file", path.display());
            return Err(Failure::new(Step::Prepare, why));
        }
        std::fs::canonicalize(path).at(Step::Prepare, path.display().to_string())
    };
    paths.iter().map(real).collect()
}

fn plan(launch: &Launch) -> Result<(Identity, Layout), Failure> {
    let identity = Identity::choose(launch.user, User::who_called_sudo())?;
    let user = identity.user();
    let environment_home = std::env::var_os("HOME").map(PathBuf::from);
    let wanted_home = if identity.is_other() {
        user.home()
    } else {
        environment_home.clone()
    };
    let is_own = |home: &PathBuf| {
        std::fs::metadata(home).is_ok_and(|found| found.is_dir() && found.uid() == user.uid)
    };
    let canonical = |path: PathBuf| std::fs::canonicalize(path).ok();
    let home = wanted_home.and_then(canonical).filter(is_own);
    let other_homes = match identity {
        Identity::Own(_) => Vec::new(),
        Identity::Other(_) => {
            let root = User { uid: 0, gid: 0 }.home();
            let mut homes: Vec<PathBuf> = [root, environment_home]
                .into_iter()
                .flatten()
                .filter_map(canonical)
                .collect();
            homes.retain(|other| Some(other) != home.as_ref());
            homes.dedup();
            homes
        }
    };
    let projects = real(&launch.projects)?;
    let see = real(&launch.see)?;
    let working_directory = std::env::current_dir().at(Step::Prepare, "working directory")?;
    let shared: Vec<&Path> = projects
        .iter()
        .chain([&working_directory])
        .map(PathBuf::as_path)
        .collect();
    let repositories = shared
        .iter()
        .filter_map(|project| git::outside(project, &shared))
        .collect();
    let variables: Vec<_> = std::env::vars_os().collect();
    // By the name in its real directory, and, for a link, by its target.
    let both = |path: &PathBuf| [by_name(path), canonical(path.clone())];
    let mut hide: Vec<PathBuf> = launch.hide.iter().flat_map(both).flatten().collect();
    hide.extend(environment::relocated(&variables, hide::IN_HOME));
    hide.sort();
    hide.dedup();
    // If the table cannot be read, sockets cannot be told apart; the places that are always covered
    // remain.
    let sockets =
        layout::host_sockets(&std::fs::read_to_string("/proc/net/unix").unwrap_or_default());
    let wishes = Wishes {
        sockets,
        working_directory,
        home,
        other_homes,
        projects,
        see,
        see_home: launch.see_home.clone(),
        sets: launch.sets.clone(),
        hide,
        own: launch.own.iter().filter_map(|path| by_name(path)).collect(),
        own_folders: launch.own_folders.clone(),
        repositories,
        guard_tools: launch.guard_tools,
        writable_git: launch.writable_git,
    };
    let mut layout = Layout::plan(wishes)?;
    layout.forget_what_is_not_there();
    if layout.guard_git {
        layout.named_above = git::present_above(&layout.projects)?;
    }
    for path in launch
        .see
        .iter()
        .chain(&launch.projects)
        .chain(&launch.hide)
    {
        if let Some(link) = layout.link_in_a_project(path) {
            let why = format!(
                "`{}` leads by the link `{}`, which the command may change; name where it leads",
                path.display(),
                link.display()
            );
            return Err(Failure::new(Step::Prepare, why));
        }
    }
    if let Some(path) = see_refused(&layout) {
        let why = format!(
            "`{}` is hidden from the command, and cannot be shown to it",
            path.display()
        );
        return Err(Failure::new(Step::Prepare, why));
    }
    watch::refuse_files(&layout)?;
    Ok((identity, layout))
}
