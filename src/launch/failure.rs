//! A failed step of the launch, in a form that crosses processes.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

/// The steps of a launch, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Checks before anything is created. Without an error number it is a flag that does not fit.
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
