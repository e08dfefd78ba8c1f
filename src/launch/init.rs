//! The sandbox's first process: it builds everything, starts the command, and waits for it.
//!
//! It is a copy of the launcher made by `clone`, with every capability over the new namespaces and
//! none over the host's. It never executes another program: that would take away its capabilities
//! before the work is done.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::bounds;
use super::failure::{AtStep, Failure, Step};
use super::join::JoinedCommands;
use super::paths::enter_first;
use super::prepare::LaunchPlan;
use super::streams::Streams;
use super::syscall::{ForkResult, SignalSet};
use super::wait::fired;
use super::{command, confine, environment, kept_home, mounts, network, syscall, trust};
use crate::enroll::{self, Capture, Ready, SealedReady, receive_packet, send_packet};

/// What the first process reports to the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub enum InitReport {
    /// It needs its user maps written from outside.
    WantsMaps,
    /// The network is set up; its sockets are with the packet.
    Listening {
        /// How TCP is captured.
        capture: Capture,
        /// Whether there is IPv6.
        ipv6: bool,
    },
    /// The command's process exists and waits; with the packet are its handle, and the namespaces
    /// of users and of mounts.
    Started,
    /// The command has stopped, by this signal.
    Stopped(i32),
    /// The command has ended, with this raw status.
    Ended(i32),
    /// A step failed.
    Failed(Failure),
    /// The command could not be executed, for this errno.
    NotExecuted(i32),
}

/// What the launcher sends to the first process.
#[derive(Debug, Serialize, Deserialize)]
pub enum InitOrder {
    /// The maps are written.
    Mapped,
    /// The gateway serves; its answer is with the packet.
    Proceed,
    /// The command may run.
    Run,
    /// A caller wants to run a further command; its connection is with the packet.
    Enter,
}

/// Everything that the first process needs; `clone` copies it.
#[derive(Debug)]
pub struct Sandbox {
    /// The plan to carry out.
    pub plan: LaunchPlan,
    /// The program as an open file, if it is not found by the first argument.
    pub program: Option<OwnedFd>,
    /// The variables for the command, scrubbed.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether the command gets the terminal from its start.
    pub interactive: bool,
    /// Whether there is a terminal, which the command shares.
    pub terminal: bool,
}

/// Runs as the first process until the end.
pub fn live(sandbox: &Sandbox, streams: &Streams, control: OwnedFd, mask: &SignalSet) -> ! {
    let Err(failure) =
        arrange_files(sandbox, streams, &control).and_then(|program| run(sandbox, program, mask));
    let _ = send_packet(CONTROL, &InitReport::Failed(failure), &[]);
    syscall::exit_now(125)
}

enum Never {}

/// Moves the two files that it keeps to known numbers, and closes all others: an inherited socket
/// or directory of the host would be a way out.
fn arrange_files(
    sandbox: &Sandbox,
    streams: &Streams,
    control: &OwnedFd,
) -> Result<Option<BorrowedFd<'static>>, Failure> {
    streams.place()?;
    let program = match &sandbox.program {
        None => None,
        Some(program) => {
            Some(rustix::io::fcntl_dupfd_cloexec(program, FIRST_FREE).at(Step::Files, "program")?)
        }
    };
    let control =
        rustix::io::fcntl_dupfd_cloexec(control, FIRST_FREE).at(Step::Files, "control")?;
    syscall::place(syscall::borrow(control.as_raw_fd()), CONTROL_NUMBER)
        .at(Step::Files, "control")?;
    if let Some(program) = &program {
        syscall::place(syscall::borrow(program.as_raw_fd()), PROGRAM_NUMBER)
            .at(Step::Files, "program")?;
    }
    let had_program = program.is_some();
    // Both are closed below by number.
    let _ = (control.into_raw_fd(), program.map(IntoRawFd::into_raw_fd));
    let first = if had_program {
        FIRST_FREE
    } else {
        PROGRAM_NUMBER
    };
    syscall::close_range(first as u32, 0).at(Step::Files, "close inherited files")?;
    Ok(had_program.then(|| syscall::borrow(PROGRAM_NUMBER)))
}

fn run(
    sandbox: &Sandbox,
    program: Option<BorrowedFd<'static>>,
    mask: &SignalSet,
) -> Result<Never, Failure> {
    die_with_the_launcher()?;
    let kept = mounts::HostTrees::take(&sandbox.plan.mounts);
    if sandbox.plan.identity.is_other() {
        report(&InitReport::WantsMaps, &[])?;
        await_order(|order| matches!(order, InitOrder::Mapped))?;
        sandbox.plan.identity.become_user()?;
        die_with_the_launcher()?;
    } else {
        sandbox.plan.identity.write_maps("self")?;
    }
    let kept = kept?;
    // A kernel without key rings has none to leak. A container that refuses them refuses them to
    // the command as well, and so does our own filter.
    match syscall::join_new_keyring() {
        Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            return Err(error).at(Step::Keyring, "join a new one");
        }
        _ => {}
    }
    let network = network::set_up(sandbox.plan.launch.capture, &sandbox.plan.launch.ports)?;
    if !sandbox.plan.launch.allow_userns {
        std::fs::OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(MAX_USER_NAMESPACES)
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"0"))
            .at(Step::NestedNamespaces, MAX_USER_NAMESPACES)?;
    }
    bounds::share_inotify();
    hand_over(network)?;
    // The gateway prepares its answer while the mounts are created.
    mounts::build(
        &sandbox.plan.mounts,
        kept,
        sandbox.plan.launch.bounds.memory(),
    )?;
    let ready = await_ready()?;
    let java = trust::sees_java(&sandbox.plan.mounts, &sandbox.environment);
    trust::install(&ready, java, &sandbox.environment)?;
    trust::install_for_browsers(&ready, sandbox.plan.mounts.home.path());
    kept_home::write(&ready.files, &sandbox.plan.mounts)?;
    mounts::seal()?;
    let (wanted, home) = (
        &sandbox.plan.mounts.working_directory,
        sandbox.plan.mounts.home.path(),
    );
    let directory = enter_first([wanted.as_path(), home].into_iter())?;
    let variables = variables(sandbox, &ready, directory, java);
    start(sandbox, program, &variables, mask)
}

/// Requests to be killed when the launcher dies, and checks that it has not died already.
///
/// The kernel drops this request at every change of credentials.
fn die_with_the_launcher() -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .at(Step::Process, "death signal")?;
    let mut events = [PollFd::from_borrowed_fd(CONTROL, PollFlags::IN)];
    let now = rustix::event::Timespec::default();
    rustix::event::poll(&mut events, Some(&now)).at(Step::Process, "control socket")?;
    if events[0].revents().contains(PollFlags::HUP) {
        syscall::exit_now(125);
    }
    Ok(())
}

fn hand_over(network: network::Network) -> Result<(), Failure> {
    // Closes this process's copies: the gateway's death must close the last ones.
    let (capture, ipv6) = (network.capture, network.ipv6);
    let listening = InitReport::Listening { capture, ipv6 };
    report(&listening, &network.listeners.all())
}

fn await_ready() -> Result<Ready, Failure> {
    let mut files = await_order(|order| matches!(order, InitOrder::Proceed))?;
    let file = files
        .pop()
        .ok_or_else(|| Failure::new(Step::Handoff, "the gateway's answer is missing"))?;
    SealedReady::from_fd(file)
        .open()
        .map_err(|error| Failure::new(Step::Handoff, error.to_string()))
}

/// Enters the working directory by name: the inherited one may now be covered.
fn variables(
    sandbox: &Sandbox,
    ready: &Ready,
    directory: &Path,
    java: bool,
) -> Vec<(OsString, OsString)> {
    let mut variables = sandbox.environment.clone();
    environment::set(&mut variables, "HOME", sandbox.plan.mounts.home.path());
    environment::set(&mut variables, "PWD", directory);
    environment::set(
        &mut variables,
        "XDG_RUNTIME_DIR",
        mounts::runtime_directory(),
    );
    environment::set(&mut variables, "TMPDIR", "/tmp");
    trust::set_variables(&mut variables, java);
    variables.retain(|(name, _)| !ready.unset.iter().any(|unset| name == unset.as_str()));
    for (name, value) in &ready.set {
        environment::set(&mut variables, name, value);
    }
    for (name, value) in &sandbox.plan.launch.variables {
        let value = own_value(value, &variables, sandbox.plan.mounts.home.path());
        if let (Some(value), None) = (value, environment::value(&variables, name)) {
            environment::set(&mut variables, name, value);
        }
    }
    variables
}

/// Returns the value of a variable of the launch: `~/` stands for the home directory, and `$NAME`
/// for another variable, if the command has that.
fn own_value(value: &str, variables: &[(OsString, OsString)], home: &Path) -> Option<OsString> {
    if let Some(other) = value.strip_prefix('$') {
        return environment::value(variables, other).map(OsStr::to_owned);
    }
    match value.strip_prefix("~/") {
        Some(rest) => Some(home.join(rest).into_os_string()),
        None => Some(value.into()),
    }
}

fn start(
    sandbox: &Sandbox,
    program: Option<BorrowedFd<'static>>,
    variables: &[(OsString, OsString)],
    mask: &SignalSet,
) -> Result<Never, Failure> {
    let (gate, opener) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).at(Step::Process, "gate")?;
    let (pid, pidfd) = match syscall::fork().at(Step::Process, "fork")? {
        ForkResult::Child => {
            drop(opener);
            let Err(failure) = become_command(sandbox, program, variables, mask, &gate);
            let _ = send_packet(CONTROL, &InitReport::Failed(failure), &[]);
            syscall::exit_now(125);
        }
        ForkResult::Parent { pid, pidfd } => (pid, pidfd),
    };
    if sandbox.terminal {
        // Both sides do this, so that it is done before either needs it.
        let _ = rustix::process::setpgid(Some(pid), Some(pid));
    }
    let namespaces = [namespace("user")?, namespace("mnt")?];
    confine::drop_capabilities()?;
    confine::filter_system_calls(sandbox.plan.launch.allow_userns)?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .at(Step::Process, "not dumpable")?;
    die_with_the_launcher()?;
    let handles = [&pidfd, &namespaces[0], &namespaces[1]].map(AsFd::as_fd);
    report(&InitReport::Started, &handles)?;
    drop((pidfd, gate, namespaces));
    await_order(|order| matches!(order, InitOrder::Run))?;
    rustix::io::write(&opener, b"!").at(Step::Process, "gate")?;
    drop(opener);
    let joined = JoinedCommands {
        user: sandbox.plan.identity.user(),
        plan: &sandbox.plan.mounts,
        bounds: sandbox.plan.launch.bounds,
        variables,
        mask,
        callers: Vec::new(),
    };
    watch(pid.as_raw_nonzero().get(), joined)
}

/// Opens a namespace of this process, in which the launcher renews guards.
fn namespace(kind: &str) -> Result<OwnedFd, Failure> {
    let path = format!("/proc/self/ns/{kind}");
    Ok(std::fs::File::open(&path).at(Step::Process, path)?.into())
}

/// Reaps every process of the sandbox, and starts further commands, until the command's own process
/// has ended.
fn watch(command: i32, mut joined: JoinedCommands<'_>) -> Result<Never, Failure> {
    let ends = SignalSet::of(&[libc::SIGCHLD]);
    let (_, arrivals) = ends.block().at(Step::Process, "signals")?;
    loop {
        while let Some((pid, status)) = syscall::reap().at(Step::Process, "wait")? {
            match (pid == command, libc::WIFSTOPPED(status)) {
                (false, _) => joined.reaped(pid, status),
                (true, true) => report(&InitReport::Stopped(libc::WSTOPSIG(status)), &[])?,
                (true, false) => {
                    report(&InitReport::Ended(status), &[])?;
                    // With the first process, the kernel ends all others.
                    syscall::exit_now(0);
                }
            }
        }
        let fired = await_events(&arrivals, &joined)?;
        while syscall::next_signal(&arrivals).is_some() {}
        joined.hear(&fired[2..]);
        joined.drop_silent();
        if fired[1] {
            admit(&mut joined)?;
        }
    }
}

/// Accepts a connection from the launcher.
fn admit(joined: &mut JoinedCommands<'_>) -> Result<(), Failure> {
    match receive_packet::<InitOrder>(CONTROL) {
        // The command can lower this process's limit of descriptors. That shuts out only further
        // commands.
        Err(enroll::Error::Malformed(_)) => Ok(()),
        received => {
            let mut files = ordered(received, |order| matches!(order, InitOrder::Enter))?;
            files.pop().into_iter().for_each(|one| joined.admit(one));
            Ok(())
        }
    }
}

/// Waits for children, the launcher and callers; returns, in this order, which have an event.
fn await_events(arrivals: &OwnedFd, joined: &JoinedCommands<'_>) -> Result<Vec<bool>, Failure> {
    let mut events = vec![
        PollFd::new(arrivals, PollFlags::IN),
        PollFd::from_borrowed_fd(CONTROL, PollFlags::IN),
    ];
    events.extend(joined.events());
    fired(events, joined.patience().as_ref())
}

fn become_command(
    sandbox: &Sandbox,
    program: Option<BorrowedFd<'static>>,
    variables: &[(OsString, OsString)],
    mask: &SignalSet,
    gate: &OwnedFd,
) -> Result<Never, Failure> {
    // In the launcher's group, `kill(0)` and `setpriority` of the group would reach the user's own
    // processes. In its session, `/proc/self/autogroup` would take the processor from them. Only a
    // terminal requires sharing the session.
    if sandbox.terminal {
        rustix::process::setpgid(None, None).at(Step::Process, "process group")?;
    } else {
        rustix::process::setsid().at(Step::Process, "session")?;
    }
    confine::drop_capabilities()?;
    sandbox.plan.launch.bounds.limit_processes()?;
    confine::scope_by_landlock()?;
    confine::filter_system_calls(sandbox.plan.launch.allow_userns)?;
    let mut byte = [0];
    if rustix::io::read(gate, &mut byte[..]) != Ok(1) {
        syscall::exit_now(125); // The first process has failed, and says so itself.
    }
    syscall::close_range(3, libc::CLOSE_RANGE_CLOEXEC).at(Step::Files, "close on exec")?;
    mask.restore();
    // The Rust runtime ignores this signal, and an ignored signal stays ignored across exec.
    syscall::default_action(libc::SIGPIPE);
    let error = match program {
        None => command::execute(&sandbox.plan.launch.arguments, variables),
        Some(file) => match command::prepared(&sandbox.plan.launch.arguments, variables) {
            Ok((arguments, environment)) => syscall::execute_open(file, &arguments, &environment),
            Err(error) => error,
        },
    };
    report(
        &InitReport::NotExecuted(error.raw_os_error().unwrap_or(libc::EIO)),
        &[],
    )?;
    syscall::exit_now(127)
}

fn report(report: &InitReport, fds: &[BorrowedFd<'_>]) -> Result<(), Failure> {
    send_packet(CONTROL, report, fds)
        .map_err(|error| Failure::new(Step::Process, error.to_string()))
}

fn await_order(expected: impl Fn(&InitOrder) -> bool) -> Result<Vec<OwnedFd>, Failure> {
    ordered(receive_packet(CONTROL), expected)
}

fn ordered(
    received: Result<(InitOrder, Vec<OwnedFd>), enroll::Error>,
    expected: impl Fn(&InitOrder) -> bool,
) -> Result<Vec<OwnedFd>, Failure> {
    match received {
        Ok((order, files)) if expected(&order) => Ok(files),
        Ok(_) => Err(Failure::new(
            Step::Process,
            "the launcher spoke out of turn",
        )),
        // The launcher has given up, and reported why.
        Err(_) => syscall::exit_now(125),
    }
}

const CONTROL_NUMBER: RawFd = 3;
const PROGRAM_NUMBER: RawFd = 4;
const FIRST_FREE: RawFd = 5;
// SAFETY: `arrange_files` places the control socket there before any use, for the whole life of the
// process.
const CONTROL: BorrowedFd<'static> = unsafe { BorrowedFd::borrow_raw(CONTROL_NUMBER) };
const MAX_USER_NAMESPACES: &str = "/proc/sys/user/max_user_namespaces";
