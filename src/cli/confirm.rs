//! Asks the person at the terminal, and accepts only a clear yes.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use rustix::termios::{QueueSelector, tcflush};

use crate::app::Failure;

/// Asks a question.
///
/// # Errors
/// Returns a [`Failure`] if standard input is no terminal: no person can answer.
pub(super) fn confirmed(question: &str) -> Result<bool, Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(Failure::usage("nobody can be asked")
            .because("the standard input is no terminal")
            .next("look at what is shown, then repeat the command with `--yes`"));
    }
    let mut error = std::io::stderr().lock();
    // If the question cannot be shown, the answer is no.
    let shown = write!(error, "{question} [y/N] ").and_then(|()| error.flush());
    let mut answer = String::new();
    let read = shown.and_then(|()| input.lock().read_line(&mut answer));
    Ok(read.is_ok() && is_yes(&answer))
}

/// Asks a question at the end of a run, while the launcher, which has the terminal, waits for this
/// process. `None` if there is no terminal, the launcher is not in its foreground, or no answer
/// comes.
pub(super) fn confirmed_aside(question: &str) -> Option<bool> {
    let mut error = std::io::stderr();
    let launcher = getppid().filter(|launcher| is_in_foreground(*launcher))?;
    let gone = pidfd_open(launcher, PidfdFlags::empty()).ok()?;
    if !error.is_terminal() {
        return None;
    }
    let mut options = OpenOptions::new();
    let terminal = options.read(true).custom_flags(libc::O_NOCTTY);
    let terminal = terminal.open("/proc/self/fd/2").ok()?;
    // The launcher sees by this name that a question is open, and reports no delay.
    let _ = rustix::thread::set_name(ASKS);
    // Keys that were typed before the question are not an answer.
    let _ = tcflush(&terminal, QueueSelector::IFlush);
    write!(error, "{question} [y/N] ").ok()?;
    let until = Instant::now() + LONGEST;
    loop {
        let left = until.checked_duration_since(Instant::now())?;
        let mut events = [
            PollFd::new(&terminal, PollFlags::IN),
            PollFd::new(&gone, PollFlags::IN),
        ];
        let timeout = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: 0,
        };
        let _ = poll(&mut events, Some(&timeout));
        match events.each_ref().map(|event| event.revents().is_empty()) {
            [_, false] => return None,
            [false, _] => return answer(terminal),
            _ => {}
        }
    }
}

fn answer(terminal: File) -> Option<bool> {
    let mut answer = String::new();
    BufReader::new(terminal).read_line(&mut answer).ok()?;
    Some(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Whether a process is in the foreground of its terminal (proc_pid_stat(5)).
fn is_in_foreground(process: Pid) -> bool {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    let stat = std::fs::read_to_string(path).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    fields.len() > 5 && fields[2] == fields[5]
}

/// Whether a child of this process asks a question.
pub(super) fn is_asking(child: i32) -> bool {
    let name = std::fs::read(format!("/proc/{child}/comm"));
    name.is_ok_and(|name| name.trim_ascii_end() == ASKS.to_bytes())
}

const ASKS: &std::ffi::CStr = c"gateway asks";
const LONGEST: Duration = Duration::from_secs(300);
