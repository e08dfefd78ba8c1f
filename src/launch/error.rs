//! Why a sandbox could not be made, at which step, and what would help.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use super::streams::Stream;
use crate::enroll;

/// The steps of a launch, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Checks before anything is created.
    Prepare,
    /// `clone3` into new namespaces.
    Namespaces,
    /// Writing the user and group maps.
    UserMap,
    /// Becoming the target user (root only).
    User,
    /// A new session key ring.
    Keyring,
    /// Bringing `lo` up.
    Loopback,
    /// Addresses and routes.
    Routes,
    /// nf_tables rules.
    Rules,
    /// The listening sockets.
    Listeners,
    /// Passing them to the gateway.
    Handoff,
    /// Forbidding nested user namespaces.
    NestedNamespaces,
    /// Making the mount tree private, and the parts that move.
    Mounts,
    /// A fresh `/proc`.
    Proc,
    /// The home directory.
    Home,
    /// Hiding sockets, devices and secrets.
    Hide,
    /// Guarding git repositories and files that tools run.
    Git,
    /// The CA files and their bind mounts.
    Trust,
    /// The working directory.
    WorkingDirectory,
    /// Closing inherited files.
    Files,
    /// The first process and the terminal.
    Process,
    /// Dropping capabilities.
    Capabilities,
    /// The seccomp filter.
    Filter,
    /// The Landlock domain.
    Landlock,
    /// The bounds on processes.
    Bounds,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prepare => "preparation",
            Self::Namespaces => "new namespaces",
            Self::UserMap => "user map",
            Self::User => "target user",
            Self::Keyring => "session key ring",
            Self::Loopback => "loopback interface",
            Self::Routes => "local routes",
            Self::Rules => "nftables rules",
            Self::Listeners => "listening sockets",
            Self::Handoff => "handing the sockets to the gateway",
            Self::NestedNamespaces => "forbidding nested namespaces",
            Self::Mounts => "mounts",
            Self::Proc => "fresh /proc",
            Self::Home => "home",
            Self::Hide => "hiding",
            Self::Git => "guarding git",
            Self::Trust => "CA certificates",
            Self::WorkingDirectory => "working directory",
            Self::Files => "inherited files",
            Self::Process => "process",
            Self::Capabilities => "capabilities",
            Self::Filter => "seccomp filter",
            Self::Landlock => "landlock",
            Self::Bounds => "bounds",
        })
    }
}

/// A failed step, in a form that can be sent from the sandbox's first process to the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Which step.
    pub step: Step,
    /// The errno; 0 if there is none.
    pub errno: i32,
    /// The object of the step: a path, a socket's name.
    pub detail: String,
}

impl Failure {
    /// A failure that a system call reported.
    pub fn of(step: Step, error: impl Into<io::Error>, detail: impl Into<String>) -> Self {
        Self {
            step,
            errno: error.into().raw_os_error().unwrap_or(libc::EIO),
            detail: detail.into(),
        }
    }

    /// A failure that no system call reported.
    pub fn new(step: Step, detail: impl Into<String>) -> Self {
        Self {
            step,
            errno: 0,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.step, self.detail)?;
        match self.errno {
            0 => Ok(()),
            errno => write!(f, ": {}", io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Names the step at which a call failed.
pub trait At<T> {
    /// Turns an I/O error into a [`Failure`] of this step and object.
    ///
    /// # Errors
    /// The failure, if there was an error.
    fn at(self, step: Step, detail: impl Into<String>) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, step: Step, detail: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::of(step, error, detail))
    }
}

/// Why the command was not run, or did not end on its own ([`Error::Uncovered`],
/// [`Error::GatewayGone`], [`Error::Output`] and [`Error::Killed`]).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A step of creating the sandbox failed.
    #[error("cannot make the sandbox: {0}")]
    Step(Failure),
    /// The gateway process did not accept the sandbox.
    #[error("cannot make the sandbox: no gateway to serve it")]
    Gateway(#[source] enroll::Error),
    /// The gateway process did not answer in time.
    #[error("cannot make the sandbox: the gateway did not answer within {seconds} s")]
    GatewaySilent {
        /// How long the launcher waited.
        seconds: u64,
    },
    /// There is no such command.
    #[error("`{command}`: command not found")]
    NotFound {
        /// As it was given.
        command: String,
    },
    /// The command exists on the host, but the sandbox does not show it, or what it leads to.
    #[error("`{command}`: not found in the sandbox, which does not see `{}`", .place.display())]
    NotSeen {
        /// As it was given.
        command: String,
        /// What is not visible.
        place: std::path::PathBuf,
        /// The flag that shows it.
        flag: String,
    },
    /// A hidden path in a project was replaced or moved away, which uncovers it. The command has
    /// been killed.
    #[error("`{}` was replaced or moved away, so that it could no longer be hidden: the command was ended", .0.display())]
    Uncovered(std::path::PathBuf),
    /// The command exists but cannot be run.
    #[error("`{command}`: cannot be run")]
    NotExecutable {
        /// As it was given.
        command: String,
        /// What `execve` said.
        source: io::Error,
    },
    /// The gateway process ended before the command. The command has been killed.
    #[error("the gateway process was ended from outside, and the command with it")]
    GatewayGone,
    /// The sandbox's first process vanished before the command's end.
    #[error("the sandbox was killed from outside")]
    Killed,
    /// The command ran, but its output is not complete in the file.
    #[error("{stream} cannot be written")]
    Output {
        /// Which of its streams.
        stream: Stream,
        /// What the file system said.
        source: io::Error,
    },
}

impl Error {
    /// The exit code for this error: 125, 126 or 127, as `env` and `timeout` use them; 1 for lost
    /// output, as `cat` does.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } | Self::NotSeen { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Killed | Self::Uncovered(_) => 137,
            Self::Output { .. } => 1,
            Self::Step(_) | Self::Gateway(_) | Self::GatewaySilent { .. } | Self::GatewayGone => {
                125
            }
        }
    }

    /// What the person could do about it, if known. May have several lines.
    pub fn advice(&self) -> Option<String> {
        match self {
            Self::Step(failure) => super::advice::for_failure(failure),
            Self::NotSeen { flag, .. } => Some(format!("show it to the command, to be read: `{flag}`")),
            Self::GatewayGone => Some(
                "what the command left in the project was not looked through: look for new files of git and other tools \
                 before you run them there"
                    .to_owned(),
            ),
            Self::Uncovered(path) => Some(format!(
                "the command may have read or changed it for a moment: look at `{}` before you start again, and keep it \
                 outside of what the command may change",
                path.display()
            )),
            _ => None,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Step(failure)
    }
}
