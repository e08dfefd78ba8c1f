//! Replaces the calling process with the launcher, in a fresh image of this program.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::MemfdFlags;

use super::request::Launch;
use super::{command, environment, syscall};
use crate::enroll::LauncherEnd;

/// Replaces this process with the launcher, in a fresh image of this program: `gateway __launch
/// SOCKET SETTINGS PROCESS`.
///
/// The new image has only the variables that the command may have, so its memory contains no secret
/// of the user's. Returns only if that fails.
pub fn reexec(mut launch: Launch, gateway: LauncherEnd) -> io::Error {
    let variables: Vec<_> = std::env::vars_os().collect();
    launch
        .hide
        .extend(environment::credential_files(&variables));
    let mut passed = launch.environment.scrub(variables.iter().cloned());
    let for_the_launcher = |(name, _): &(OsString, OsString)| FOR_IT.iter().any(|one| name == one);
    passed.extend(variables.into_iter().filter(for_the_launcher));
    match pass_on(&launch, gateway) {
        Err(error) => error,
        Ok((socket, settings, process)) => {
            let arguments = [
                OsString::from("gateway"),
                SUBCOMMAND.into(),
                socket.as_raw_fd().to_string().into(),
                settings.as_raw_fd().to_string().into(),
                process.unwrap_or(0).to_string().into(),
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
    let [socket, settings, process] = arguments else {
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
    let process = process.to_str().and_then(|number| number.parse().ok());
    let process = process.ok_or(io::ErrorKind::InvalidInput)?;
    Ok((launch, LauncherEnd::from(socket).of(process)))
}

/// Creates the two files that the new image inherits: the socket, and the settings. Returns them
/// with the number of the gateway process.
fn pass_on(launch: &Launch, gateway: LauncherEnd) -> io::Result<(OwnedFd, OwnedFd, Option<i32>)> {
    let process = gateway.process();
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
    Ok((socket, settings.into(), process))
}

/// What the launcher needs to know, and drops itself: who called sudo, and where git's settings
/// are.
const FOR_IT: [&str; 4] = [
    "SUDO_UID",
    "SUDO_GID",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
];
/// The first argument that tells `main` to act as the launcher.
pub const SUBCOMMAND: &str = "__launch";
