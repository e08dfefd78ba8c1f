//! The further commands of a sandbox, as its first process starts and ends them.
//!
//! Each is a fork of the first process, which has lost its capabilities and has the filter already.
//! So a further command inherits the confinement of the first one. Only the limit of processes and
//! Landlock's scopes are set again, because the first process does not have them.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::process::{Pid, Signal};

use super::protocol::{ForwardedSignal, JoinReply, JoinRequest};
use crate::bounds::Bounds;
use crate::enroll::{receive_packet, send_packet};
use crate::failure::{AtStep, Failure, Step};
use crate::identity::User;
use crate::mount_plan::MountPlan;
use crate::paths::enter_first;
use crate::syscall::{self, ForkResult, SignalSet};
use crate::wait::timespec;
use crate::{command, confine, environment};

/// The further commands, and the settings that they are started with.
pub(crate) struct JoinedCommands<'a> {
    pub user: User,
    pub plan: &'a MountPlan,
    pub bounds: Bounds,
    pub variables: &'a [(OsString, OsString)],
    pub mask: &'a SignalSet,
    pub callers: Vec<JoinCaller>,
}

/// One caller, connected to this process.
pub(crate) struct JoinCaller {
    socket: OwnedFd,
    since: Instant,
    /// Its command, once it runs.
    command: Option<(Pid, OwnedFd)>,
}

impl JoinedCommands<'_> {
    /// Accepts a connection, if there is a place.
    pub fn admit(&mut self, socket: OwnedFd) {
        let answer = if self.callers.len() < MOST {
            JoinReply::Welcome(self.user)
        } else {
            JoinReply::Refused(format!("{MOST} commands have entered it already"))
        };
        if send_packet(socket.as_fd(), &answer, &[]).is_ok() && self.callers.len() < MOST {
            self.callers.push(JoinCaller {
                socket,
                since: Instant::now(),
                command: None,
            });
        }
    }

    /// Returns the events to wait for.
    pub fn events(&self) -> impl Iterator<Item = PollFd<'_>> {
        let sockets = self.callers.iter().map(|caller| &caller.socket);
        sockets.map(|socket| PollFd::new(socket, PollFlags::IN))
    }

    /// Returns the longest time to wait.
    pub fn patience(&self) -> Option<Timespec> {
        let is_awaited = self.callers.iter().any(|caller| caller.command.is_none());
        is_awaited.then(|| timespec(LOOKS_EVERY))
    }

    /// Drops the callers that have sent no command for too long.
    pub fn drop_silent(&mut self) {
        self.callers
            .retain(|caller| caller.command.is_some() || caller.since.elapsed() < ASKED_WITHIN);
    }

    /// Serves the callers that have an event, in the order of [`JoinedCommands::events`].
    pub fn hear(&mut self, fired: &[bool]) {
        let mut fired = fired.iter();
        let callers = std::mem::take(&mut self.callers);
        for mut caller in callers {
            let stays = !fired.next().is_some_and(|fired| *fired) || self.serve(&mut caller);
            if stays {
                self.callers.push(caller);
            } else {
                caller.end();
            }
        }
    }

    /// Reports the end of a command to its caller.
    pub fn reaped(&mut self, pid: i32, status: i32) {
        let is_of = |caller: &JoinCaller| {
            let command = caller.command.as_ref();
            command.is_some_and(|(own, _)| own.as_raw_nonzero().get() == pid)
        };
        if libc::WIFSTOPPED(status) {
            return;
        }
        if let Some(at) = self.callers.iter().position(is_of) {
            let caller = self.callers.remove(at);
            // A caller that has gone needs no answer.
            let _ = send_packet(caller.socket.as_fd(), &JoinReply::Ended(status), &[]);
        }
    }

    /// Starts the caller's command, or forwards a signal; returns whether the caller stays.
    fn serve(&self, caller: &mut JoinCaller) -> bool {
        if let Some((pid, pidfd)) = &caller.command {
            let Ok((wanted, _)) = receive_packet::<ForwardedSignal>(caller.socket.as_fd()) else {
                return false;
            };
            forward(*pid, pidfd, wanted);
            return true;
        }
        let Ok((request, files)) = receive_packet::<JoinRequest>(caller.socket.as_fd()) else {
            return false;
        };
        match self.start(caller, &request, files) {
            Ok(command) => {
                caller.command = Some(command);
                true
            }
            Err(failure) => {
                let refused = JoinReply::Refused(failure.to_string());
                let _ = send_packet(caller.socket.as_fd(), &refused, &[]);
                false
            }
        }
    }

    fn start(
        &self,
        caller: &JoinCaller,
        request: &JoinRequest,
        files: Vec<OwnedFd>,
    ) -> Result<(Pid, OwnedFd), Failure> {
        let streams = <[OwnedFd; 3]>::try_from(files)
            .map_err(|_| Failure::new(Step::Files, "three streams must come with a command"))?;
        streams.iter().try_for_each(refuse_files)?;
        match syscall::fork().at(Step::Process, "fork")? {
            ForkResult::Parent { pid, pidfd } => Ok((pid, pidfd)),
            ForkResult::Child => {
                let socket = caller.socket.as_fd();
                if let Err(failure) = self.become_command(request, &streams, socket) {
                    let refused = JoinReply::Refused(failure.to_string());
                    let _ = send_packet(socket, &refused, &[]);
                }
                syscall::exit_now(125)
            }
        }
    }

    /// Returns only if the command cannot be executed.
    fn become_command(
        &self,
        request: &JoinRequest,
        streams: &[OwnedFd; 3],
        socket: BorrowedFd<'_>,
    ) -> Result<(), Failure> {
        rustix::process::setsid().at(Step::Process, "session")?;
        place(streams).at(Step::Files, "streams")?;
        if request.terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())
                .at(Step::Process, "terminal")?;
        }
        self.bounds.limit_processes()?;
        confine::scope_by_landlock()?;
        let directory = self.go_to(request)?;
        let mut variables = self.variables.to_vec();
        environment::set(&mut variables, "PWD", directory);
        if let Some(term) = &request.term {
            environment::set(&mut variables, "TERM", term);
        }
        syscall::close_range(3, libc::CLOSE_RANGE_CLOEXEC).at(Step::Files, "close on exec")?;
        self.mask.restore();
        // An ignored signal stays ignored across exec. The Rust runtime ignores the first of these;
        // the other two are ignored if the sandbox was started in the background of a script.
        for signal in [libc::SIGPIPE, libc::SIGINT, libc::SIGQUIT] {
            syscall::default_action(signal);
        }
        let error = command::execute(&request.arguments, &variables);
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        let _ = send_packet(socket, &JoinReply::NotExecuted(errno), &[]);
        syscall::exit_now(127)
    }

    /// Enters the caller's directory if that lies in a project, else the first command's.
    fn go_to<'e>(&'e self, request: &'e JoinRequest) -> Result<&'e Path, Failure> {
        let plan = self.plan;
        let wanted = request.directory.as_deref();
        let wanted = wanted.filter(|wanted| plan.in_project(wanted));
        let home = plan.home.path();
        let own = [plan.working_directory.as_path(), home];
        enter_first(wanted.into_iter().chain(own))
    }
}

impl JoinCaller {
    /// Ends the command of a caller that has gone.
    fn end(self) {
        if let Some((pid, pidfd)) = &self.command {
            let killed = ForwardedSignal {
                signal: libc::SIGKILL,
                group: true,
            };
            forward(*pid, pidfd, killed);
            let _ = syscall::signal_through(pidfd, libc::SIGKILL);
        }
    }
}

/// Sends a signal; the command may have ended, or not yet have a group of its own.
fn forward(pid: Pid, pidfd: &OwnedFd, wanted: ForwardedSignal) {
    let group = Signal::from_named_raw(wanted.signal).filter(|_| wanted.group);
    let sent = group.is_some_and(|signal| rustix::process::kill_process_group(pid, signal).is_ok());
    if !sent {
        let _ = syscall::signal_through(pidfd, wanted.signal);
    }
}

/// Refuses every file, folder and disk of the host as a stream of the command.
fn refuse_files(stream: &OwnedFd) -> Result<(), Failure> {
    let found = rustix::fs::fstat(stream).at(Step::Files, "stream")?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile | FileType::BlockDevice | FileType::Directory => Err(Failure::new(
            Step::Files,
            "a stream of the command is a file of the host",
        )),
        _ => Ok(()),
    }
}

fn place([input, output, error]: &[OwnedFd; 3]) -> rustix::io::Result<()> {
    rustix::stdio::dup2_stdin(input)?;
    rustix::stdio::dup2_stdout(output)?;
    rustix::stdio::dup2_stderr(error)
}

/// How long a caller may take to send its command.
const ASKED_WITHIN: Duration = Duration::from_secs(10);
/// How often silent callers are dropped.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// How many further commands a sandbox may have.
const MOST: usize = 16;
