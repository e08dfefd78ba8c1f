//! The caller's side of a second command in a running sandbox.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::net::{SocketAddrUnix, SocketFlags};

use super::protocol::{ForwardedSignal, JoinReply, JoinRequest, packet_socket};
use crate::enroll::{self, receive_packet, send_packet};
use crate::error::Error;
use crate::exit::Exit;
use crate::failure::{AtStep, Step};
use crate::pty::Pty;
use crate::refuse;
use crate::streams::Streams;
use crate::syscall::{self, FORWARDED, SignalSet};
use crate::wait::{fired, timespec};

/// A socket at which the gateway of a sandbox connects this process to it. Dropping it removes its
/// file.
#[derive(Debug)]
pub struct JoinListener {
    socket: OwnedFd,
    path: PathBuf,
}

impl JoinListener {
    /// Listens in this folder, which only the user may access.
    ///
    /// # Errors
    /// The system's.
    pub fn open(folder: &Path) -> std::io::Result<Self> {
        let path = folder.join(format!("into-{}", std::process::id()));
        // Left by an earlier process with this number.
        let _ = std::fs::remove_file(&path);
        let socket = packet_socket(SocketFlags::empty())?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
        let listener = Self { socket, path };
        rustix::net::listen(&listener.socket, 1)?;
        Ok(listener)
    }

    /// Returns the path of its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a command in the sandbox that connects, and returns how it ended. The process must not
    /// have other threads, which would get its signals.
    ///
    /// # Errors
    /// [`Error`] if the command was not started, or could not end by itself.
    pub fn join(self, arguments: Vec<OsString>) -> Result<Exit, Error> {
        refuse::directories_as_standard_streams()?;
        let signals = SignalSet::of(&[&FORWARDED[..], &[libc::SIGWINCH, libc::SIGCONT]].concat());
        let (mask, arrivals) = signals.block().at(Step::Prepare, "signals")?;
        let socket = self.connection()?;
        // A launcher that is stopped passes no connection on.
        await_readable(&socket)?;
        let user = match answer(&socket) {
            Ok(JoinReply::Welcome(user)) => user,
            Ok(other) => return ended(other, &arguments),
            Err(Error::SandboxEnded) => {
                return Err(Error::Join(
                    "it let nobody in, or has just ended".to_owned(),
                ));
            }
            Err(error) => return Err(error),
        };
        let pty = Pty::open().at(Step::Prepare, "terminal")?;
        let mut joined = JoinedCommand {
            streams: Streams::open(user)?,
            pty,
            socket,
            arrivals,
        };
        let outcome = joined
            .begin(&arguments)
            .and_then(|()| joined.supervise())
            .and_then(|told| ended(told, &arguments));
        let written = joined.finish();
        mask.restore();
        let exit = outcome?;
        written?;
        Ok(exit)
    }

    /// Waits until the gateway has connected the sandbox.
    fn connection(&self) -> Result<OwnedFd, Error> {
        await_readable(&self.socket)?;
        let flags = SocketFlags::CLOEXEC;
        let accepted = rustix::net::accept_with(&self.socket, flags).at(Step::Prepare, "accept")?;
        let peer = rustix::net::sockopt::socket_peercred(&accepted).at(Step::Prepare, "peer")?;
        if peer.uid == rustix::process::geteuid() {
            Ok(accepted)
        } else {
            // Another user's gateway could run the command elsewhere, and read its streams.
            Err(Error::Join(format!("user {} answered", peer.uid.as_raw())))
        }
    }
}

impl Drop for JoinListener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

struct JoinedCommand {
    socket: OwnedFd,
    arrivals: OwnedFd,
    streams: Streams,
    pty: Option<Pty>,
}

impl JoinedCommand {
    /// Sends the command with its streams.
    fn begin(&mut self, arguments: &[OsString]) -> Result<(), Error> {
        let request = JoinRequest {
            arguments: arguments.to_vec(),
            directory: std::env::current_dir().ok(),
            term: std::env::var_os("TERM"),
            terminal: self.pty.as_ref().is_some_and(Pty::is_input),
        };
        let slave = self.pty.as_ref().and_then(Pty::slave);
        let files = self.streams.passed().map(|stream| match slave {
            Some(slave) if rustix::termios::isatty(stream) => slave,
            _ => stream,
        });
        send_packet(self.socket.as_fd(), &request, &files).map_err(|error| match error {
            enroll::Error::Gone => Error::SandboxEnded,
            other => Error::Join(other.to_string()),
        })?;
        self.streams.keep_own_ends();
        self.pty.iter_mut().for_each(Pty::passed);
        Ok(())
    }

    /// Copies and forwards until the first process reports the end of the command.
    fn supervise(&mut self) -> Result<JoinReply, Error> {
        loop {
            let (signals, told) = self.wait()?;
            if signals {
                while let Some(arrived) = syscall::next_signal(&self.arrivals) {
                    self.forward(arrived);
                }
            }
            self.streams.copy();
            self.pty.iter_mut().for_each(Pty::copy);
            if told {
                return answer(&self.socket);
            }
        }
    }

    /// Waits for an event; returns whether there are signals, and an answer.
    fn wait(&self) -> Result<(bool, bool), Error> {
        let mut events = vec![
            PollFd::new(&self.arrivals, PollFlags::IN),
            PollFd::new(&self.socket, PollFlags::IN),
        ];
        events.extend(self.streams.events());
        events.extend(self.pty.iter().flat_map(Pty::events));
        let fired = fired(events, None)?;
        Ok((fired[0], fired[1]))
    }

    fn forward(&self, arrived: syscall::ReceivedSignal) {
        match (arrived.signal, &self.pty) {
            (libc::SIGWINCH, Some(pty)) => pty.resize(),
            (libc::SIGCONT, Some(pty)) => {
                pty.make_raw();
                pty.resize();
            }
            (libc::SIGWINCH | libc::SIGCONT, None) => {}
            (signal, _) => {
                let group = arrived.from_kernel;
                // A command that has ended needs no signal.
                let _ = send_packet(self.socket.as_fd(), &ForwardedSignal { signal, group }, &[]);
            }
        }
    }

    /// Copies the rest of the output.
    fn finish(&mut self) -> Result<(), crate::streams::LostOutput> {
        if let Some(mut pty) = self.pty.take() {
            let mut pieces = 0;
            while pieces < MOST_LEFT && pty.copy_output() {
                pieces += 1;
            }
        }
        self.streams.finish()
    }
}

/// Waits a limited time for the sandbox.
fn await_readable(socket: &OwnedFd) -> Result<(), Error> {
    let mut events = [PollFd::new(socket, PollFlags::IN)];
    let timeout = timespec(ANSWERS_WITHIN);
    rustix::event::poll(&mut events, Some(&timeout)).at(Step::Prepare, "poll")?;
    if events[0].revents().is_empty() {
        Err(silent())
    } else {
        Ok(())
    }
}

fn answer(socket: &OwnedFd) -> Result<JoinReply, Error> {
    match receive_packet::<JoinReply>(socket.as_fd()) {
        Ok((answer, _)) => Ok(answer),
        Err(enroll::Error::Gone) => Err(Error::SandboxEnded),
        Err(error) => Err(Error::Join(error.to_string())),
    }
}

fn ended(told: JoinReply, arguments: &[OsString]) -> Result<Exit, Error> {
    let command = || {
        let name = arguments.first().map(|name| name.to_string_lossy());
        name.unwrap_or_default().into_owned()
    };
    match told {
        JoinReply::Ended(status) => Ok(Exit::from_status(status)),
        JoinReply::NotExecuted(libc::ENOENT) => Err(Error::NotFound { command: command() }),
        JoinReply::NotExecuted(errno) => Err(Error::NotExecutable {
            command: command(),
            source: std::io::Error::from_raw_os_error(errno),
        }),
        JoinReply::Refused(why) => Err(Error::Join(why)),
        JoinReply::Welcome(_) => Err(Error::Join("the sandbox spoke out of turn".to_owned())),
    }
}

fn silent() -> Error {
    let seconds = ANSWERS_WITHIN.as_secs();
    Error::Join(format!(
        "it did not answer within {seconds} s; its first command may be stopped or not yet started"
    ))
}

const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// How many pieces of a terminal's output are copied after the command has ended.
const MOST_LEFT: usize = 16;
