//! Waits for the processes of a sandbox, and for a child of this process.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions, waitpid};

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

    /// Ends all processes of the sandbox.
    pub fn kill(&self) {
        // It may have ended on its own.
        let _ = syscall::signal_through(&self.0, libc::SIGKILL);
    }
}

/// Waits until no process of the sandbox is left, for at most `within`.
pub fn await_end(first: &FirstProcess, within: Duration) {
    let timeout = timespec(within);
    // The first process dies with the launcher, so nothing needs to be done if this takes longer.
    let _ = poll(&mut [PollFd::new(&first.0, PollFlags::IN)], Some(&timeout));
}

/// How a wait for a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStatus {
    /// The child ended, in this way.
    Ended(Exit),
    /// It is no child of this process, or was waited for before.
    Unknown,
    /// It still runs.
    Runs,
}

/// Waits until a child of this process has ended and is reaped, for at most `within`.
pub fn await_child(child: i32, within: Duration) -> WaitStatus {
    let until = Instant::now() + within;
    let ends = syscall::SignalSet::of(&[libc::SIGCHLD]);
    // Blocked before the first check, so that an end between a check and the wait is not missed.
    let (Some(child), Ok((before, arrivals))) = (Pid::from_raw(child), ends.block()) else {
        return WaitStatus::Unknown;
    };
    let waited = loop {
        match waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => break WaitStatus::Ended(Exit::from_status(status.as_raw())),
            Ok(None) => {}
            Err(_) => break WaitStatus::Unknown,
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break WaitStatus::Runs;
        }
        let timeout = timespec(left);
        // Whether or not an event came, the next check decides.
        let _ = poll(&mut [PollFd::new(&arrivals, PollFlags::IN)], Some(&timeout));
        while syscall::next_signal(&arrivals).is_some() {}
    };
    before.restore();
    waited
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
