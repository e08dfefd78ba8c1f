//! The launcher: runs a command in namespaces whose only way out is the gateway.
//!
//! [`reexec()`] replaces the calling process with a fresh, single-threaded one with a scrubbed
//! environment. [`resume`] continues there, and [`run`] does the work. `launch` shares only
//! `enroll` and [`unsent`] with the data path: the sockets that the gateway serves are created
//! inside the sandbox and passed to it. If a step fails, the command is never started.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![expect(
    unsafe_code,
    reason = "namespaces, seccomp and key rings have no safe calls"
)]

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;

use crate::enroll::LauncherEnd;

mod advice;
pub mod bounds;
mod command;
mod confine;
mod cover;
mod detect;
mod devices;
pub mod enroll;
pub mod environment;
mod error;
pub mod exact;
mod exit;
mod failure;
mod filter;
mod folder;
mod gitconfig;
pub mod hide;
pub mod home_files;
mod host;
mod identity;
mod init;
mod join;
pub mod kept;
mod kept_home;
mod list;
mod mount_plan;
mod mount_request;
mod mounts;
pub mod netlink;
mod network;
mod overlay;
mod passed;
mod paths;
pub mod ports;
mod prepare;
pub mod program;
mod project;
mod pty;
mod reexec;
mod refuse;
pub mod removal;
pub mod repository;
mod request;
mod ruleset;
pub mod sealed;
pub mod service;
pub mod sidecar;
mod streams;
mod syscall;
mod temporary_mode;
mod terminal;
pub mod tools;
mod tree;
pub mod trust;
pub mod truststore;
mod view;
mod wait;
mod watch;

pub use detect::is_secret_name;
pub use error::Error;
pub use exit::{Exit, LAUNCHER_FAILED};
pub use failure::{Failure, Step};
pub use identity::{User, UserUnknown};
pub use join::{JoinError, JoinListener, JoinSender};
pub use mount_plan::{Home, MountPlan};
pub use network::{ADDRESS_V4, ADDRESS_V6};
pub use prepare::LaunchPlan;
pub use project::project_of;
pub use reexec::{SUBCOMMAND, copy, note_inherited, reexec, resume};
pub use request::{KeptFolder, Launch};
pub use streams::LostOutput;
pub use syscall::unsent;
pub use wait::{FirstProcess, WaitStatus};

use failure::AtStep;
use terminal::Terminal;

/// Creates the sandbox that was planned, runs the command in it, and returns how it ended.
///
/// The process must be single-threaded, which [`reexec()`] ensures.
///
/// # Errors
/// [`Error`] if the command was never started; see [`Error::exit_code`] and [`Error::advice`].
pub fn run(plan: LaunchPlan, gateway: &LauncherEnd) -> Result<Exit, Error> {
    let program = if plan.launch.own_program {
        Some(OwnedFd::from(
            File::open("/proc/self/exe").at(Step::Prepare, "/proc/self/exe")?,
        ))
    } else {
        None
    };
    let sandbox = init::Sandbox {
        environment: variables(&plan),
        plan,
        program,
        interactive: Terminal::is_interactive(),
        terminal: Terminal::own().exists(),
    };
    host::run(sandbox, gateway)
}

/// Returns the command's scrubbed variables, without the caller's own if another user runs it.
fn variables(plan: &LaunchPlan) -> Vec<(OsString, OsString)> {
    let mut variables = plan.launch.environment.scrub(std::env::vars_os());
    if plan.identity.is_other() {
        variables.retain(|(name, _)| !OF_THE_CALLER.split(' ').any(|known| name == known));
    }
    variables
}

/// Variables that describe the caller, and are wrong for another user.
const OF_THE_CALLER: &str =
    "USER LOGNAME MAIL XDG_CONFIG_HOME XDG_CACHE_HOME XDG_DATA_HOME XDG_STATE_HOME";
