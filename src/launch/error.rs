//! Why the command did not run, or did not end by itself, and what would help.

use std::io;

use super::advice;
use super::exit::Exit;
use super::failure::Failure;
use super::streams::LostOutput;
use crate::enroll;

/// Why the command was not run, or did not end by itself ([`Error::Uncovered`],
/// [`Error::GatewayGone`], [`Error::SandboxEnded`], [`Error::Output`] and [`Error::Killed`]).
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
        /// The command as given.
        command: String,
    },
    /// The command exists on the host, but it or its link's target is not visible in the sandbox.
    #[error("`{command}`: not found in the sandbox, which does not see `{}`", .place.display())]
    NotSeen {
        /// The command as given.
        command: String,
        /// The path that is not visible.
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
        /// The command as given.
        command: String,
        /// The error of `execve`.
        source: io::Error,
    },
    /// The gateway process ended before the command did, in this way if that is known. The command
    /// has been stopped.
    #[error("the gateway process ended{}; the command was stopped", how(*.0))]
    GatewayGone(Option<Exit>),
    /// The gateway process ended after the command, before it had finished its own work.
    #[error("the gateway process ended{}; its last records may be missing", how(Some(*.0)))]
    GatewayBroke(Exit),
    /// The sandbox's first process vanished before the command ended.
    #[error("the sandbox was killed from outside")]
    Killed,
    /// A further command was not started in a running sandbox.
    #[error("cannot enter the sandbox: {0}")]
    Join(String),
    /// The sandbox ended, and with it a further command in it.
    #[error("the sandbox ended, and the command with it")]
    SandboxEnded,
    /// The command ran, but its output in the file is incomplete.
    #[error(transparent)]
    Output(#[from] LostOutput),
}

impl Error {
    /// Returns the exit code for this error: 125, 126 or 127, as `env` and `timeout` use them. For
    /// lost output it is 1, as for `cat`.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } | Self::NotSeen { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Killed | Self::Uncovered(_) | Self::SandboxEnded => 137,
            Self::Output(_) => 1,
            Self::Step(_)
            | Self::Gateway(_)
            | Self::GatewaySilent { .. }
            | Self::Join(_)
            | Self::GatewayGone(_)
            | Self::GatewayBroke(_) => 125,
        }
    }

    /// Returns what the user could do about it, if known. May have several lines.
    pub fn advice(&self) -> Option<String> {
        match self {
            Self::Step(failure) => advice::for_failure(failure),
            Self::NotSeen { flag, .. } => {
                Some(format!("show it to the command, to be read: `{flag}`"))
            }
            Self::Uncovered(path) => Some(format!(
                "the command may have read or changed it for a moment: look at `{}` before you start again, and keep it \
                 outside of what the command may change",
                path.display()
            )),
            _ => None,
        }
    }
}

fn how(exit: Option<Exit>) -> String {
    match exit {
        None => String::new(),
        Some(Exit::Code(code)) => format!(" (exit code {code})"),
        Some(Exit::Signal(signal)) => format!(" (killed by signal {signal})"),
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Step(failure)
    }
}
