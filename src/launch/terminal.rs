//! Gives the terminal to the command and takes it back.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::Pid;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use super::syscall;

/// The controlling terminal, if there is one.
#[derive(Debug)]
pub struct Terminal {
    file: Option<OwnedFd>,
    own_group: Option<Pid>,
    /// Its modes before the command could change them.
    modes: Option<Termios>,
    is_lent: Cell<bool>,
}

impl Terminal {
    /// Whether the command may have the terminal to itself from the start. This process must be the
    /// foreground job, and no neighbour in a pipeline may share the terminal. Otherwise the command
    /// gets the terminal when it asks for it.
    pub fn is_interactive() -> bool {
        let (input, output) = (std::io::stdin(), std::io::stdout());
        rustix::termios::isatty(&input)
            && rustix::termios::isatty(&output)
            && syscall::process_group()
                .is_some_and(|own| rustix::termios::tcgetpgrp(&input) == Ok(own))
    }

    /// The terminal of this process.
    pub fn own() -> Self {
        let file = open();
        Self {
            modes: file.as_ref().and_then(|file| tcgetattr(file).ok()),
            file,
            own_group: syscall::process_group(),
            is_lent: Cell::new(false),
        }
    }

    /// Whether there is a terminal.
    pub fn exists(&self) -> bool {
        self.file.is_some()
    }

    /// Whether the command's process group was made the foreground one and has not given it back.
    pub fn is_lent(&self) -> bool {
        self.is_lent.get()
    }

    /// Makes the command's process group the foreground one.
    pub fn lend(&self, command: Pid) {
        self.give(command);
        self.is_lent.set(true);
    }

    /// Makes the launcher's own process group the foreground one, if the command's is.
    pub fn take_back(&self) {
        if self.is_lent.replace(false) {
            self.give_to_own();
        }
    }

    /// Takes the terminal back from a command that has ended, and restores its modes: a command
    /// that was killed, or is hostile, leaves it without echo or line ends.
    pub fn restore(&self) {
        let (was_lent, modes) = (self.is_lent.get(), self.modes.as_ref());
        self.take_back();
        if let (Some(file), Some(modes)) = (&self.file, modes.filter(|_| was_lent)) {
            let _ = tcsetattr(file, OptionalActions::Drain, modes);
        }
    }

    /// Takes the terminal back at the end, even from a process group that took it unasked. Once
    /// that group has ended, the terminal has no owner, and a script would stop at its next read.
    pub fn reclaim(&self) {
        let holder = self.file.as_ref().map(rustix::termios::tcgetpgrp);
        if let Some(Ok(holder)) = holder
            && rustix::process::test_kill_process_group(holder) == Err(rustix::io::Errno::SRCH)
        {
            self.give_to_own();
        }
    }

    /// Whether the shell has put the launcher in the foreground.
    pub fn is_ours(&self) -> bool {
        self.file
            .as_ref()
            .and_then(|file| rustix::termios::tcgetpgrp(file).ok())
            .is_some_and(|holder| Some(holder) == self.own_group)
    }

    fn give_to_own(&self) {
        if let Some(own) = self.own_group {
            self.give(own);
        }
    }

    fn give(&self, group: Pid) {
        // If the terminal has hung up, there is nothing to give; SIGHUP reports that. SIGTTOU is
        // blocked.
        if let Some(file) = &self.file {
            let _ = rustix::termios::tcsetpgrp(file.as_fd(), group);
        }
    }
}

/// Reopens the controlling terminal, so that the command's changes to its standard input have no
/// effect here.
fn open() -> Option<OwnedFd> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NOCTTY;
    rustix::fs::open("/dev/tty", flags, rustix::fs::Mode::empty()).ok()
}
