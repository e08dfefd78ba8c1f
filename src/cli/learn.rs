//! `gateway exec --learn`: runs the command as always, then proposes the narrowest project file
//! that would have permitted its requests.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, waitpid,
};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};

use crate::app::process::serving;
use crate::app::project::project;
use crate::app::settings::project_file;
use crate::app::{Code, Failure, Terminal};
use crate::cli::last_run::LastRun;
use crate::cli::projects::new_file;
use crate::config::Config;

/// What a run that is learned from may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LearnMode {
    /// What it may reach anyway: the rest is refused, and proposed
    Refuse,
    /// Any host, for this run alone; credentials go where they always go
    Permit,
}

/// The flag of the inner run, which no person writes.
pub(super) const INNER: &str = "--learning";

/// Runs the command, then proposes a file. Exits as the command does.
///
/// # Errors
/// Returns a [`Failure`] if the command cannot be run.
pub(super) fn run(config: &Config, yes: bool, terminal: &Terminal) -> Result<Code, Failure> {
    let before = tcgetattr(std::io::stdin()).ok();
    let (launcher, code) = serving::runtime()?.block_on(until_ended())?;
    if let Some(before) = before {
        restore(&before, terminal);
    }
    if let Err(failure) = propose(config, launcher, yes, terminal) {
        terminal.fail(&failure);
    }
    Ok(Code::Exactly(code))
}

/// Restores the terminal, since the command could otherwise hide or disguise the question and its
/// subject.
fn restore(before: &Termios, terminal: &Terminal) {
    terminal.reset();
    if std::io::stderr().is_terminal() {
        terminal.note(LAST_LINE);
    }
    // Keys that were typed before the question are not an answer, so they are dropped too.
    let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, before);
}

fn propose(config: &Config, launcher: Pid, yes: bool, terminal: &Terminal) -> Result<(), Failure> {
    let project = project()?;
    let last = LastRun::of(&project)?;
    if last.launcher != Some(launcher.as_raw_nonzero().get()) {
        return Err(Failure::new("nothing was learned from this run")
            .because("it did not begin, or another run began in this project meanwhile")
            .next("`gateway init --from-last-run` proposes a file from the last one"));
    }
    let observed = last.observed()?;
    if observed.is_nothing() {
        terminal.note("gateway: the command asked for no host, so there is nothing to propose");
        return Ok(());
    }
    let text = new_file::learned(config, &observed)?;
    new_file::offer(&project.join(project_file::NAME), &text, yes, terminal).map(drop)
}

/// Runs this command line again as the inner run, and waits for its end. Stops and continues with
/// it, as a shell's job.
async fn until_ended() -> Result<(Pid, u8), Failure> {
    let failed = |error: std::io::Error| Failure::of("the command cannot be run", &error);
    // The command gets the terminal's signals too, and decides about them.
    let quiet = [SignalKind::interrupt(), SignalKind::quit()];
    for kind in quiet {
        drop(signal(kind).map_err(failed)?);
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let child = start().map_err(failed)?;
    // The variables of this process hold secrets, which only the gateway process should have.
    serving::harden()?;
    let pid = Pid::from_child(&child);
    // Its number may be reused as soon as it was waited for.
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
    let mut waiting = tokio::task::spawn_blocking(move || ended(pid));
    let code = loop {
        let passed = tokio::select! {
            code = &mut waiting => break code,
            _ = terminate.recv() => Signal::TERM,
            _ = hangup.recv() => Signal::HUP,
        };
        let _ = pidfd_send_signal(&process, passed);
    };
    let code = code.map_err(|error| Failure::of("the command cannot be waited for", &error))?;
    Ok((pid, code.map_err(|error| failed(error.into()))?))
}

fn start() -> std::io::Result<Child> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let name = arguments.remove(0);
    let exec = arguments.iter().position(|one| one == "exec");
    arguments.insert(exec.map_or(0, |at| at + 1), INNER.into());
    let program = Path::new("/proc/self/exe");
    Command::new(program).arg0(name).args(arguments).spawn()
}

/// Waits for the end of the run, and returns its exit code as a shell would.
fn ended(pid: Pid) -> rustix::io::Result<u8> {
    loop {
        let status = match waitpid(Some(pid), WaitOptions::UNTRACED) {
            Err(rustix::io::Errno::INTR) | Ok(None) => continue,
            Err(error) => return Err(error),
            Ok(Some((_, status))) => status,
        };
        if let Some(code) = status.exit_status() {
            return Ok(u8::try_from(code).unwrap_or(u8::MAX));
        }
        if let Some(signal) = status.terminating_signal() {
            return Ok(u8::try_from(128 + signal).unwrap_or(u8::MAX));
        }
        if status.stopped() {
            // The shell sees its job stop, and lets both go on.
            let _ = kill_process(rustix::process::getpid(), Signal::STOP);
        }
    }
}

/// Goes to the last line of the screen.
const LAST_LINE: &str = "\x1b[999;1H\r";
