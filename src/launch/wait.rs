//! Waits for the processes of a sandbox, and for the children of this process.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{WaitOptions, wait};

use super::syscall;

/// A handle on a sandbox's first process. When it ends, all others end.
#[derive(Debug)]
pub struct First(OwnedFd);

impl First {
    /// Opens a handle by process number. The process must not have been reaped.
    ///
    /// # Errors
    /// `ESRCH` if it has gone.
    pub fn of(pid: i32) -> io::Result<Self> {
        let pid = rustix::process::Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = rustix::process::PidfdFlags::empty();
        Ok(Self(rustix::process::pidfd_open(pid, flags)?))
    }
}

/// Waits until no process of the sandbox is left, for at most `within`.
pub fn await_end(first: &First, within: Duration) {
    let timeout = timespec(within);
    // The first process dies with the launcher, so nothing needs to be done if this takes longer.
    let _ = poll(&mut [PollFd::new(&first.0, PollFlags::IN)], Some(&timeout));
}

/// Waits until every child of this process has ended and is reaped, for at most `within`. Returns
/// whether they have, as far as that can be known.
pub fn await_children(within: Duration) -> bool {
    let until = Instant::now() + within;
    let ends = syscall::SignalSet::of(&[libc::SIGCHLD]);
    // Blocked before the first check, so that none ends unseen between a check and the wait.
    let (Ok(before), Ok(arrivals)) = (ends.block(), ends.descriptor()) else {
        return true;
    };
    let ended = loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => continue,
            Ok(None) => {}
            Err(_) => break true,
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break false;
        }
        let timeout = timespec(left);
        // However this ends, the next check decides.
        let _ = poll(&mut [PollFd::new(&arrivals, PollFlags::IN)], Some(&timeout));
        while syscall::next_signal(&arrivals).is_some() {}
    };
    before.restore();
    ended
}

/// Converts a duration to the form that `poll` takes.
pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: duration.subsec_nanos().into(),
    }
}
