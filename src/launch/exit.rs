//! How the command ended, and how the launcher ends the same way.

use super::syscall;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(u8),
    /// This signal killed it.
    Signal(i32),
}

impl Exit {
    /// Converts a raw status of `wait`.
    pub(super) fn from_status(status: i32) -> Self {
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

/// The exit code of a launcher that never started the command.
pub const LAUNCHER_FAILED: u8 = 125;
