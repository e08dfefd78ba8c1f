//! A terminal made for a command that enters a sandbox, and its connection with the caller's own.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use super::streams::write_all;
use super::syscall;

/// The command's terminal, seen from the caller's.
#[derive(Debug)]
pub(super) struct Pty {
    /// `None` once no process has the command's side open.
    master: Option<OwnedFd>,
    /// The command's side, until it is passed.
    slave: Option<OwnedFd>,
    /// The caller's terminal, for output.
    screen: OwnedFd,
    /// The caller's keyboard, if standard input is one: its settings, and the typed bytes.
    keyboard: Option<Termios>,
    typed: Vec<u8>,
}

impl Pty {
    /// Makes a terminal set like the caller's, if one of the three streams is a terminal.
    ///
    /// # Errors
    /// The kernel's, if it has no terminal left.
    pub fn open() -> rustix::io::Result<Option<Self>> {
        let streams = [
            rustix::stdio::stdin(),
            rustix::stdio::stdout(),
            rustix::stdio::stderr(),
        ];
        let Some(own) = streams
            .into_iter()
            .find(|stream| rustix::termios::isatty(stream))
        else {
            return Ok(None);
        };
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let master = rustix::fs::open("/dev/ptmx", flags, Mode::empty())?;
        let slave = syscall::terminal_of(&master)?;
        let settings = tcgetattr(own)?;
        tcsetattr(&slave, OptionalActions::Now, &settings)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let mut output = streams.into_iter().skip(1);
        let screen = output
            .find(|stream| rustix::termios::isatty(stream))
            .unwrap_or(own);
        let made = Self {
            screen: screen.try_clone_to_owned().map_err(|_| Errno::MFILE)?,
            keyboard: rustix::termios::isatty(streams[0]).then_some(settings),
            master: Some(master),
            slave: Some(slave),
            typed: Vec::new(),
        };
        made.resize();
        made.make_raw();
        Ok(Some(made))
    }

    /// Returns the command's side.
    pub fn slave(&self) -> Option<BorrowedFd<'_>> {
        self.slave.as_ref().map(AsFd::as_fd)
    }

    /// Closes the command's side here, once it is passed.
    pub fn passed(&mut self) {
        self.slave = None;
    }

    /// Whether the command's standard input is this terminal.
    pub fn is_input(&self) -> bool {
        self.keyboard.is_some()
    }

    /// Gives the command's terminal the size of the caller's.
    pub fn resize(&self) {
        if let (Some(master), Ok(size)) = (&self.master, tcgetwinsize(&self.screen)) {
            let _ = tcsetwinsize(master, size);
        }
    }

    /// Leaves the meaning of keys to the command's terminal instead of the caller's.
    pub fn make_raw(&self) {
        if let Some(mut settings) = self.keyboard.clone() {
            settings.make_raw();
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &settings);
        }
    }

    /// Returns the events to wait for.
    pub fn events(&self) -> impl Iterator<Item = PollFd<'_>> {
        let out = if self.typed.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        };
        let master = self.master.iter().map(move |file| PollFd::new(file, out));
        let listens = self.keyboard.is_some() && self.typed.is_empty() && self.master.is_some();
        master.chain(listens.then(keyboard))
    }

    /// Copies the output of the command, and typed bytes.
    pub fn copy(&mut self) {
        self.copy_output();
        if self.keyboard.is_some() && self.typed.is_empty() && is_readable() {
            let mut buffer = [0; 4096];
            match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
                Ok(count) if count > 0 => self.typed.extend_from_slice(&buffer[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                // The terminal has hung up.
                Ok(_) | Err(_) => self.keyboard = None,
            }
        }
        if let Some(master) = self.master.as_ref().filter(|_| !self.typed.is_empty()) {
            match rustix::io::write(master, &self.typed) {
                Ok(count) => drop(self.typed.drain(..count)),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => self.typed.clear(),
            }
        }
    }

    /// Copies a piece of the command's output; returns whether there may be more.
    pub fn copy_output(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        let Some(master) = &self.master else {
            return false;
        };
        match rustix::io::read(master, &mut buffer) {
            Ok(count) if count > 0 => {
                // A terminal that has hung up shows nothing; SIGHUP reports that.
                write_all(&self.screen, &buffer[..count]).is_ok()
            }
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN) => false,
            Ok(_) | Err(_) => {
                self.master = None;
                false
            }
        }
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        if let Some(settings) = &self.keyboard {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, settings);
        }
    }
}

/// Returns the event of a key press.
fn keyboard() -> PollFd<'static> {
    PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN)
}

fn is_readable() -> bool {
    let now = rustix::event::Timespec::default();
    rustix::event::poll(&mut [keyboard()], Some(&now)).is_ok_and(|ready| ready > 0)
}
