//! Renews guards while the command runs: a program of the host that renames a file over a guarded
//! one, as `git config` does, detaches its mount in every namespace.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, WaitOptions};
use rustix::thread::move_into_link_name_space;

use super::record::Repositories;
use crate::syscall::{self, ForkResult};

/// The mounts of a running sandbox, as its launcher sees them.
#[derive(Debug)]
pub struct Renewal {
    mounts: File,
    /// The namespaces of users and of mounts, in the order in which they are entered.
    namespaces: [OwnedFd; 2],
}

impl Renewal {
    /// Watches the mounts of a sandbox's first process. Without the file of its mounts, which every
    /// kernel has, nothing is renewed, and changes are still found at the end.
    pub fn of(first: Pid, namespaces: [OwnedFd; 2], guarded: &Repositories) -> Option<Self> {
        let mounts = File::open(format!("/proc/{}/mountinfo", first.as_raw_nonzero())).ok()?;
        let renewal = Self { mounts, namespaces };
        // Some mounts may have been replaced already.
        renewal.renew(guarded);
        Some(renewal)
    }

    /// Returns the event to wait for.
    pub fn event(&self) -> PollFd<'_> {
        PollFd::new(&self.mounts, PollFlags::PRI)
    }

    /// Mounts again the guards that lost their mounts, from within the sandbox's namespaces.
    pub fn renew(&self, repositories: &Repositories) {
        match syscall::fork() {
            Ok(ForkResult::Child) => {
                let enter = |one: &OwnedFd| move_into_link_name_space(one.as_fd(), None);
                let entered = self.namespaces.iter().try_for_each(enter);
                let renewed = entered.is_ok() && repositories.guard_again().is_ok();
                syscall::exit_now(i32::from(!renewed))
            }
            Ok(ForkResult::Parent { pid, .. }) => _ = syscall::status_of(pid, WaitOptions::empty()),
            // The next change of a mount triggers another try.
            Err(_) => {}
        }
    }
}
