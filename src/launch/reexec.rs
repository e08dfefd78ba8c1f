//! The first process becomes two: a copy, the gateway process, and the launcher, in a fresh image
//! of this program.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use super::error::Error;
use super::failure::{AtStep, Step};
use super::prepare::LaunchPlan;
use super::{command, refuse, sealed, syscall};
use crate::enroll::LauncherEnd;

/// The descriptors beside the streams that this process was started with.
static INHERITED: OnceLock<Vec<RawFd>> = OnceLock::new();

/// Notes which descriptors this process was started with, for [`copy`], and waits for its children
/// even if whoever started it ignores theirs. Call it before any other descriptor is opened.
pub fn note_inherited() {
    syscall::default_action(libc::SIGCHLD);
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = listed.filter_map(|one| one.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    let mut all: Vec<RawFd> = numbers.filter(|fd| *fd > 2).collect();
    // The list itself was open.
    all.retain(|fd| std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok());
    let _ = INHERITED.set(all);
}

/// Copies this process, which has one thread. Returns the number of the copy; `None` in the copy,
/// which alone has these variables.
///
/// # Errors
/// A [`Step::Prepare`] failure.
pub fn copy(variables: &[(&str, &str)]) -> Result<Option<i32>, Error> {
    refuse::threads()?;
    let copy = syscall::copy(variables).at(Step::Prepare, "fork")?;
    if copy.is_none() {
        // Whoever waits for their end waits for the command's.
        for fd in INHERITED.get().into_iter().flatten() {
            drop(syscall::adopt(*fd));
        }
    }
    Ok(copy.map(|copy| copy.as_raw_nonzero().get()))
}

/// Replaces this process with the launcher, in a fresh image of this program: `gateway __launch
/// SOCKET PLAN PROCESS`.
///
/// The new image has only the variables that the command may have, so its memory contains no secret
/// of the user's. Returns only if that fails.
pub fn reexec(plan: &LaunchPlan, gateway: LauncherEnd) -> io::Error {
    let passed = plan.launch.environment.scrub(std::env::vars_os());
    match pass_on(plan, gateway) {
        Err(error) => error,
        Ok((socket, settings, process)) => {
            let arguments = [
                OsString::from("gateway"),
                SUBCOMMAND.into(),
                socket.as_raw_fd().to_string().into(),
                settings.as_raw_fd().to_string().into(),
                process.unwrap_or(0).to_string().into(),
            ];
            match command::prepared(&arguments, &passed) {
                Ok((arguments, passed)) => syscall::execute(c"/proc/self/exe", &arguments, &passed),
                Err(error) => error,
            }
        }
    }
}

/// Parses the arguments after [`SUBCOMMAND`], which [`reexec`] passed on.
///
/// # Errors
/// `InvalidInput` if they are not such arguments.
pub fn resume(arguments: &[OsString]) -> io::Result<(LaunchPlan, LauncherEnd)> {
    let [socket, plan, process] = arguments else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let (socket, plan) = (sealed::adopt(socket)?, sealed::take(plan)?);
    let process = process.to_str().and_then(|number| number.parse().ok());
    let process = process.ok_or(io::ErrorKind::InvalidInput)?;
    Ok((plan, LauncherEnd::from(socket).of(process)))
}

/// Creates the two files that the new image inherits: the socket, and the plan. Returns them with
/// the number of the gateway process.
fn pass_on(plan: &LaunchPlan, gateway: LauncherEnd) -> io::Result<(OwnedFd, OwnedFd, Option<i32>)> {
    let process = gateway.process();
    let socket = OwnedFd::from(gateway);
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty())?;
    Ok((socket, sealed::pass("gateway-plan", plan)?, process))
}

/// The first argument that makes `main` act as the launcher.
pub const SUBCOMMAND: &str = "__launch";
