//! A failed step of the launch, in a form that crosses processes.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident: $text:literal,)*) => {
        /// The steps of a launch, in order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Step {
            $($(#[$doc])* $step,)*
        }

        impl fmt::Display for Step {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$step => $text,)*
                })
            }
        }
    };
}

steps! {
    /// Checks before anything is created. Without an error number it is a flag that does not fit.
    Prepare: "preparation",
    /// `clone3` into new namespaces.
    Namespaces: "new namespaces",
    /// Writing the user and group maps.
    UserMap: "user map",
    /// Becoming the target user (root only).
    User: "target user",
    /// A new session key ring.
    Keyring: "session key ring",
    /// Bringing `lo` up.
    Loopback: "loopback interface",
    /// Addresses and routes.
    Routes: "local routes",
    /// nf_tables rules.
    Rules: "nftables rules",
    /// The listening sockets.
    Listeners: "listening sockets",
    /// Passing them to the gateway.
    Handoff: "handing the sockets to the gateway",
    /// Forbidding nested user namespaces.
    NestedNamespaces: "forbidding nested namespaces",
    /// Making the mount tree private, and the mounts that move.
    Mounts: "mounts",
    /// A fresh `/proc`.
    Proc: "fresh /proc",
    /// The home directory.
    Home: "home",
    /// Hiding sockets, devices and secrets.
    Hide: "hiding",
    /// Guarding git repositories and files that tools run.
    Git: "guarding git",
    /// The CA files and their bind mounts.
    Trust: "CA certificates",
    /// The working directory.
    WorkingDirectory: "working directory",
    /// Closing inherited files.
    Files: "inherited files",
    /// The first process and the terminal.
    Process: "process",
    /// Dropping capabilities.
    Capabilities: "capabilities",
    /// The seccomp filter.
    Filter: "seccomp filter",
    /// The Landlock domain.
    Landlock: "landlock",
    /// The bounds on processes.
    Bounds: "bounds",
}

/// A failed step, in a form that can be sent from the sandbox's first process to the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Which step.
    pub step: Step,
    /// The errno; 0 if there is none.
    pub errno: i32,
    /// The object of the step: a path, or a socket's name.
    pub detail: String,
}

impl Failure {
    /// Creates a failure that a system call reported.
    pub fn of(step: Step, error: impl Into<io::Error>, detail: impl Into<String>) -> Self {
        Self {
            step,
            errno: error.into().raw_os_error().unwrap_or(libc::EIO),
            detail: detail.into(),
        }
    }

    /// Creates a failure that no system call reported.
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
pub trait AtStep<T> {
    /// Turns an I/O error into a [`Failure`] of this step and object.
    ///
    /// # Errors
    /// The failure, if there was an error.
    fn at(self, step: Step, detail: impl Into<String>) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> AtStep<T> for Result<T, E> {
    fn at(self, step: Step, detail: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::of(step, error, detail))
    }
}
