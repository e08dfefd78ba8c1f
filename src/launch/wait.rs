//! Waits for the processes of a sandbox.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, Timespec, poll};
use rustix::process::Pid;

use super::exit::Exit;
use super::failure::{AtStep, Failure, Step};
use super::syscall;

/// A handle on a sandbox's first process. When it ends, all others end.
#[derive(Debug)]
pub struct FirstProcess(OwnedFd);

impl FirstProcess {
    /// Opens a handle by process number. The process must not have been reaped.
    ///
    /// # Errors
    /// `ESRCH` if it has gone.
    pub fn of(pid: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = rustix::process::PidfdFlags::empty();
        Ok(Self(rustix::process::pidfd_open(pid, flags)?))
    }

    /// Returns the event of its end.
    pub fn event(self) -> OwnedFd {
        self.0
    }

    /// Ends all processes of the sandbox.
    pub fn kill(&self) {
        // It may have ended on its own.
        let _ = syscall::signal_through(&self.0, libc::SIGKILL);
    }
}

/// How a wait for the gateway process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStatus {
    /// It has done what somebody waits for.
    Done,
    /// It ended before, in this way.
    Ended(Exit),
    /// It ended before, and is no child of this process, or was waited for already.
    Unknown,
    /// It still runs.
    Runs,
}

/// Converts a duration to the form that `poll` takes.
pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Waits for events; returns, in their order, which have occurred. A signal may interrupt the wait.
///
/// # Errors
/// A [`Step::Process`] failure if the kernel refuses.
pub(super) fn fired(
    mut events: Vec<PollFd<'_>>,
    timeout: Option<&Timespec>,
) -> Result<Vec<bool>, Failure> {
    match poll(&mut events, timeout) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error).at(Step::Process, "poll"),
    }
    let fired = events.iter().map(|event| !event.revents().is_empty());
    Ok(fired.collect())
}

/// Whether process 1 is an init, which reaps what others leave. What else a container begins with
/// would leave a zombie of each.
pub(super) fn is_reaped_by_init() -> bool {
    let name = std::fs::read_to_string("/proc/1/comm").unwrap_or_default();
    INITS.contains(&name.trim_end())
}

const INITS: [&str; 9] = [
    "systemd",
    "init",
    "tini",
    "dumb-init",
    "catatonit",
    "docker-init",
    "podman-init",
    "s6-svscan",
    "runit",
];
