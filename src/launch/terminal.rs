//! Lending the terminal to the command and taking it back.

use std::os::fd::{AsFd, OwnedFd};

use rustix::process::Pid;

/// The controlling terminal, while the launcher's process group is the shell's foreground job.
#[derive(Debug)]
pub struct Terminal {
    file: Option<OwnedFd>,
    own_group: Pid,
}

impl Terminal {
    /// Tells whether the command may have the terminal to itself: this process is the foreground job, and no neighbour in a
    /// pipeline shares it. Else the command stays in the launcher's process group, as the neighbours are.
    pub fn is_interactive() -> bool {
        let (input, output) = (std::io::stdin(), std::io::stdout());
        rustix::termios::isatty(&input)
            && rustix::termios::isatty(&output)
            && rustix::termios::tcgetpgrp(&input) == Ok(rustix::process::getpgrp())
    }

    /// The terminal of this process.
    pub fn own() -> Self {
        Self {
            file: open(),
            own_group: rustix::process::getpgrp(),
        }
    }

    /// Makes the command's process group the foreground one.
    pub fn lend(&self, command: Pid) {
        self.give(command);
    }

    /// Makes the launcher's own process group the foreground one.
    pub fn take_back(&self) {
        self.give(self.own_group);
    }

    /// Tells whether the shell has put the launcher in the foreground.
    pub fn is_ours(&self) -> bool {
        self.file
            .as_ref()
            .is_some_and(|file| rustix::termios::tcgetpgrp(file) == Ok(self.own_group))
    }

    fn give(&self, group: Pid) {
        // If the terminal has hung up there is nothing to give, and SIGHUP says so. SIGTTOU is blocked.
        if let Some(file) = &self.file {
            let _ = rustix::termios::tcsetpgrp(file.as_fd(), group);
        }
    }
}

/// Opens the controlling terminal anew: what the command does to its standard input shall not matter here.
fn open() -> Option<OwnedFd> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NOCTTY;
    rustix::fs::open("/dev/tty", flags, rustix::fs::Mode::empty()).ok()
}
