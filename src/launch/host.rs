//! The launcher: the process outside, which the shell knows as its job.
//!
//! It creates the namespaces, passes the listeners to the gateway, gives the terminal to the
//! command, forwards signals, copies standard streams that are files, and ends the way the command
//! ended.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitOptions};

use super::error::Error;
use super::exit::Exit;
use super::failure::{AtStep, Failure, Step};
use super::init::{self, InitOrder, InitReport, Sandbox};
use super::prepare::LaunchPlan;
use super::repository::Renewal;
use super::streams::Streams;
use super::syscall::{self, FORWARDED, ForkResult, ReceivedSignal, SignalSet};
use super::terminal::Terminal;
use super::wait::{fired, timespec};
use super::watch::NameWatch;
use super::{environment, join, program, refuse};
use crate::enroll::{self, LauncherEnd, Listeners, SandboxHello, receive_packet, send_packet};

/// Creates the sandbox, runs the command in it, and returns how it ended.
///
/// # Errors
/// [`Error`] if the command was never started, or could not be executed.
pub fn run(sandbox: Sandbox, gateway: &LauncherEnd) -> Result<Exit, Error> {
    refuse::threads()?;
    refuse::directories_as_standard_streams()?;
    let signals = SignalSet::of(&[&FORWARDED[..], &OBEYED].concat());
    let (mask, arrivals) = signals.block().at(Step::Prepare, "signals")?;
    let mut streams = Streams::open(sandbox.plan.user())?;
    // Before the sandbox is created, so that nothing changes unseen.
    let watch = NameWatch::begin(&sandbox.plan.mounts)?;
    let (ours, theirs) = enroll::packet_pair().map_err(Error::Gateway)?;
    if sandbox.plan.identity.is_other() {
        // Otherwise the sandbox would keep root's groups, and could not drop them itself.
        rustix::thread::set_thread_groups(&[]).at(Step::User, "drop groups")?;
    }
    let (pid, pidfd) = match syscall::clone_into_namespaces().at(Step::Namespaces, "clone3")? {
        ForkResult::Child => {
            drop((ours, arrivals, watch));
            init::live(&sandbox, &streams, theirs, &mask)
        }
        ForkResult::Parent { pid, pidfd } => (pid, pidfd),
    };
    drop(theirs);
    streams.keep_own_ends();
    let mut launcher = Launcher {
        control: Some(ours),
        init: Init {
            pid,
            pidfd,
            reaped: false,
        },
        arrivals,
        gateway,
        search: environment::value(&sandbox.environment, "PATH").map(ToOwned::to_owned),
        plan: sandbox.plan,
        watch,
        renewal: None,
        answer_due: None,
        served: false,
        lost: None,
        command: None,
        terminal: Terminal::own(),
        interactive: sandbox.interactive,
        streams,
        ended: None,
    };
    let outcome = launcher.supervise();
    launcher.terminal.restore();
    launcher.init.end();
    launcher.terminal.reclaim();
    let written = launcher.streams.finish();
    mask.restore();
    let exit = outcome?;
    written?;
    Ok(exit)
}

struct Launcher<'g> {
    /// Connected to the first process; `None` once that has closed its end.
    control: Option<OwnedFd>,
    init: Init,
    arrivals: OwnedFd,
    gateway: &'g LauncherEnd,
    /// The directories to search for the command.
    search: Option<OsString>,
    plan: LaunchPlan,
    watch: Option<NameWatch>,
    /// Set once the command runs, if a part of the projects is guarded.
    renewal: Option<Renewal>,
    /// When the gateway must have answered; `None` while no answer is due.
    answer_due: Option<Instant>,
    /// Whether the gateway serves the sandbox.
    served: bool,
    /// Until when the command may end by itself, once the gateway process has ended.
    lost: Option<Instant>,
    command: Option<Command>,
    terminal: Terminal,
    /// Whether the command has the terminal from the start.
    interactive: bool,
    streams: Streams,
    ended: Option<i32>,
}

/// The command's process, as the launcher sees it.
struct Command {
    pid: Pid,
    pidfd: OwnedFd,
}

/// The sandbox's first process. It is killed, and with it all others, when this value is dropped.
struct Init {
    pid: Pid,
    pidfd: OwnedFd,
    reaped: bool,
}

impl Init {
    fn end(&mut self) -> Option<i32> {
        if self.reaped {
            return None;
        }
        // It may have ended on its own.
        let _ = syscall::signal_through(&self.pidfd, libc::SIGKILL);
        self.reaped = true;
        syscall::status_of(self.pid, WaitOptions::empty())
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        self.end();
    }
}

impl Launcher<'_> {
    fn supervise(&mut self) -> Result<Exit, Error> {
        loop {
            let ready = self.wait()?;
            if let Some(path) = self
                .watch
                .as_ref()
                .filter(|_| ready.watch)
                .and_then(NameWatch::uncovered)
            {
                let uncovered = Error::Uncovered(path.to_owned());
                self.init.end();
                return Err(uncovered);
            }
            if let Some(renewal) = self.renewal.as_ref().filter(|_| ready.mounts) {
                renewal.renew(&self.plan.mounts.repositories);
            }
            if ready.signals {
                while let Some(arrived) = syscall::next_signal(&self.arrivals) {
                    if let Some(exit) = self.forward(arrived) {
                        return Ok(exit);
                    }
                }
            }
            if ready.streams {
                self.streams.copy();
            }
            if ready.control {
                self.hear()?;
                continue; // Everything that it said comes before its end.
            }
            let given_up = self.lost.is_some_and(|until| until <= Instant::now());
            if self.lost.is_some() && (ready.init || given_up) {
                self.init.end();
                return Err(Error::GatewayGone(self.gateway_exit()));
            }
            if ready.init {
                return self.conclude();
            }
            // It is done as soon as the first process has ended.
            if ready.gateway {
                if self.served {
                    self.let_in()?
                } else {
                    self.pass_answer_on()?
                }
            }
        }
    }

    fn wait(&self) -> Result<Events, Error> {
        let deadline = self.answer_due.or(self.lost);
        let timeout = deadline.map(|due| timespec(due.saturating_duration_since(Instant::now())));
        let mut files: Vec<BorrowedFd<'_>> = vec![self.arrivals.as_fd(), self.init.pidfd.as_fd()];
        files.extend(self.control.as_ref().map(AsFd::as_fd));
        let hears_gateway = self.answer_due.is_some() || (self.served && self.lost.is_none());
        if hears_gateway {
            files.push(self.gateway.as_fd());
        }
        files.extend(self.watch.as_ref().map(|watch| watch.events().as_fd()));
        let events: Vec<PollFd<'_>> = files
            .iter()
            .map(|file| PollFd::from_borrowed_fd(*file, PollFlags::IN))
            .chain(self.renewal.as_ref().map(Renewal::event))
            .chain(self.streams.events())
            .collect();
        let fired = fired(events, timeout.as_ref())?;
        let is_late = self.answer_due.is_some_and(|due| due <= Instant::now());
        if is_late && !fired.contains(&true) {
            return Err(Error::GatewaySilent {
                seconds: ANSWER_WITHIN.as_secs(),
            });
        }
        // The events come in the order in which they were added.
        let mut fired = fired.into_iter();
        let mut next = |there: bool| there && fired.next().unwrap_or_default();
        Ok(Events {
            signals: next(true),
            init: next(true),
            control: next(self.control.is_some()),
            gateway: next(hears_gateway),
            watch: next(self.watch.is_some()),
            mounts: next(self.renewal.is_some()),
            streams: fired.any(|fired| fired),
        })
    }

    /// Receives one report from the first process.
    fn hear(&mut self) -> Result<(), Error> {
        let Some(control) = &self.control else {
            return Ok(());
        };
        let received = match receive_packet::<InitReport>(control.as_fd()) {
            // It ended before it read an order. The kernel reports that before the process's last
            // message.
            Err(enroll::Error::Gone) => receive_packet::<InitReport>(control.as_fd()),
            received => received,
        };
        let (report, files) = match received {
            Ok(packet) => packet,
            Err(enroll::Error::Gone) => {
                self.control = None;
                return Ok(());
            }
            Err(error) => return Err(Failure::new(Step::Process, error.to_string()).into()),
        };
        match report {
            InitReport::WantsMaps => {
                self.plan
                    .identity
                    .write_maps(&self.init.pid.as_raw_nonzero().to_string())?;
                self.order(&InitOrder::Mapped, &[])
            }
            InitReport::Listening { capture, ipv6 } => {
                let uid = self.plan.user().uid;
                let pid = self.init.pid.as_raw_nonzero().get();
                let hello = SandboxHello {
                    version: enroll::VERSION,
                    pid,
                    uid,
                    capture,
                    ipv6,
                    host_ports: self.plan.launch.ports.host.clone(),
                };
                self.introduce(&hello, files)
            }
            InitReport::Started => self.begin(files),
            InitReport::Stopped(signal) => {
                self.follow_into_stop(signal);
                Ok(())
            }
            InitReport::Ended(status) => {
                self.ended = Some(status);
                Ok(())
            }
            InitReport::Failed(failure) => Err(failure.into()),
            InitReport::NotExecuted(errno) => Err(self.not_executed(errno)),
        }
    }

    /// Passes the listeners to the gateway.
    fn introduce(&mut self, hello: &SandboxHello, files: Vec<OwnedFd>) -> Result<(), Error> {
        let listeners = Listeners::of(files, hello.host_ports.len())
            .ok_or_else(|| Failure::new(Step::Handoff, "listeners are missing"))?;
        refuse::own_network(&listeners)?;
        self.gateway
            .hello(hello, &listeners)
            .map_err(Error::Gateway)?;
        self.answer_due = Some(Instant::now() + ANSWER_WITHIN);
        Ok(())
    }

    fn pass_answer_on(&mut self) -> Result<(), Error> {
        self.answer_due = None;
        let answer = self.gateway.answer().map_err(Error::Gateway)?;
        self.served = true;
        self.order(&InitOrder::Proceed, &[answer.as_fd()])
    }

    /// Passes on a connection that the gateway admits. If it sends anything else, it has ended.
    fn let_in(&mut self) -> Result<(), Error> {
        match join::receive(self.gateway.as_fd()) {
            None => self.stop_command(),
            Some(caller) if self.command.is_some() => {
                self.order(&InitOrder::Enter, &[caller.as_fd()])?;
            }
            // Closed, so that the caller learns that there is no command yet.
            Some(_) => {}
        }
        Ok(())
    }

    /// Asks the command to end: without the gateway it has no network, and no process would check
    /// the files that it leaves.
    fn stop_command(&mut self) {
        self.lost = Some(Instant::now() + STOP_WITHIN);
        let Some(command) = &self.command else {
            self.lost = Some(Instant::now());
            return;
        };
        // It may have ended. If it is stopped, it must continue to handle the signal.
        for signal in [libc::SIGTERM, libc::SIGCONT] {
            let _ = syscall::signal_through(&command.pidfd, signal);
        }
    }

    /// Returns how the gateway process ended, if it is a child that has ended.
    fn gateway_exit(&self) -> Option<Exit> {
        let until = Instant::now() + REAPED_WITHIN;
        loop {
            let child = Pid::from_raw(self.gateway.process()?)?;
            let status = syscall::status_of(child, WaitOptions::NOHANG);
            if status.is_some() || Instant::now() > until {
                return status.map(Exit::from_status);
            }
            // Its socket closes a moment before it can be reaped.
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Learns the command's process number, gives it the terminal, and lets it run.
    fn begin(&mut self, files: Vec<OwnedFd>) -> Result<(), Error> {
        let [pidfd, users, mounts] = <[OwnedFd; 3]>::try_from(files)
            .map_err(|_| Failure::new(Step::Process, "the command's handle is missing"))?;
        let pid = pid_of(&pidfd)?;
        if self.interactive {
            self.terminal.lend(pid);
        }
        self.command = Some(Command { pid, pidfd });
        let guarded = &self.plan.mounts.repositories;
        if !guarded.guards.is_empty() {
            self.renewal = Renewal::of(self.init.pid, [users, mounts], guarded);
        }
        self.order(&InitOrder::Run, &[])
    }

    /// Lends the terminal to a command that stopped because it wants the terminal. Otherwise stops
    /// with the command, as the shell expects of its job, and continues with it.
    fn follow_into_stop(&self, signal: i32) {
        let Some(command) = self.command.as_ref().filter(|_| self.terminal.exists()) else {
            return;
        };
        let asks = matches!(signal, libc::SIGTTIN | libc::SIGTTOU);
        let lend = asks || self.terminal.is_lent();
        if !asks || !self.terminal.is_ours() {
            self.terminal.take_back();
            syscall::raise(libc::SIGSTOP);
        }
        // At this point the shell has continued this process: in the foreground, or with `bg` in
        // the background.
        if lend && self.terminal.is_ours() {
            self.terminal.lend(command.pid);
        }
        let _ = rustix::process::kill_process_group(command.pid, Signal::CONT);
    }

    /// Forwards a signal. Before the command exists, it ends the launch instead.
    fn forward(&self, arrived: ReceivedSignal) -> Option<Exit> {
        let ReceivedSignal {
            signal,
            from_kernel,
        } = arrived;
        if matches!(signal, libc::SIGCHLD | libc::SIGTTOU) {
            return None;
        }
        let Some(command) = &self.command else {
            if signal == libc::SIGTSTP {
                syscall::raise(libc::SIGSTOP);
            }
            return matches!(
                signal,
                libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT
            )
            .then_some(Exit::Signal(signal));
        };
        // Keys at the terminal, stops and continues apply to the whole job.
        let job = from_kernel || matches!(signal, libc::SIGTSTP | libc::SIGCONT);
        let _ = match Signal::from_named_raw(signal).filter(|_| job) {
            Some(signal) => {
                rustix::process::kill_process_group(command.pid, signal).map_err(Into::into)
            }
            None => syscall::signal_through(&command.pidfd, signal),
        };
        None
    }

    fn conclude(&mut self) -> Result<Exit, Error> {
        self.init.reaped = true;
        syscall::status_of(self.init.pid, WaitOptions::empty());
        self.ended.map(Exit::from_status).ok_or(Error::Killed)
    }

    fn not_executed(&self, errno: i32) -> Error {
        let command = self.command_name().to_string_lossy().into_owned();
        match errno {
            libc::ENOENT => match self.not_seen() {
                None => Error::NotFound { command },
                Some(place) => Error::NotSeen {
                    command,
                    flag: self.plan.mounts.flag_to_see(&place),
                    place,
                },
            },
            errno => Error::NotExecutable {
                command,
                source: std::io::Error::from_raw_os_error(errno),
            },
        }
    }

    /// Returns the part of the command that exists on the host but is not visible in the sandbox.
    fn not_seen(&self) -> Option<PathBuf> {
        let search = self.search.as_deref().unwrap_or_default();
        let start = &self.plan.mounts.working_directory;
        let found = program::find(self.command_name(), search, start)?;
        let at_the_top = |name: &Path| name.parent() == Some(Path::new("/"));
        let mut names = program::names(&found, search).into_iter();
        names.find(|name| !self.plan.mounts.sees(name) && !at_the_top(name))
    }

    fn command_name(&self) -> &OsStr {
        let command = self.plan.launch.arguments.first();
        command.map(OsString::as_os_str).unwrap_or_default()
    }

    fn order(&self, order: &InitOrder, files: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let Some(control) = &self.control else {
            return Ok(());
        };
        match send_packet(control.as_fd(), order, files) {
            // It has failed; its report is read from the socket first.
            Ok(()) | Err(enroll::Error::Gone) => Ok(()),
            Err(error) => Err(Failure::new(Step::Process, error.to_string()).into()),
        }
    }
}

/// Which event sources are ready.
struct Events {
    signals: bool,
    init: bool,
    control: bool,
    gateway: bool,
    streams: bool,
    watch: bool,
    mounts: bool,
}

fn pid_of(pidfd: &OwnedFd) -> Result<Pid, Failure> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let text = std::fs::read_to_string(&path).at(Step::Process, path)?;
    text.lines()
        .find_map(|line| line.strip_prefix("Pid:"))
        .and_then(|pid| Pid::from_raw(pid.trim().parse().ok()?))
        .ok_or_else(|| Failure::new(Step::Process, "the command has ended before it began"))
}

/// Signals that the launcher itself obeys, besides those that it forwards.
const OBEYED: [i32; 5] = [
    libc::SIGWINCH,
    libc::SIGCHLD,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGTTOU,
];
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How long the command may take to end when the gateway process has ended.
const STOP_WITHIN: Duration = Duration::from_secs(3);
const REAPED_WITHIN: Duration = Duration::from_secs(1);
