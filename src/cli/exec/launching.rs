//! Starts a sandbox: the gateway process and the launcher.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::app::process::signals::Signals;
use crate::app::process::{logging, serving};
use crate::app::{Advise as _, Code, Color, Context as _, Failure, Terminal};
use crate::cli::confirm::is_asking;
use crate::cli::exec::summary;
use crate::config::state;
use crate::launch::enroll::{self, GatewayEnd, LauncherEnd};
use crate::launch::repository::{Announcement, SweepFindings};
use crate::launch::{self, Exit, Launch, LaunchPlan, Step, WaitStatus, repository};
use crate::server::chain;

/// Decides everything about a launch, before anything is created.
///
/// # Errors
/// Returns a [`Failure`] that says which setting does not fit.
pub fn plan(launch: Launch) -> Result<LaunchPlan, Failure> {
    LaunchPlan::of(launch).map_err(not_launched)
}

/// Starts the gateway process, which runs `serve` and alone has `secrets` in its environment, then
/// becomes the launcher. Runs `meanwhile` as that process starts.
///
/// # Errors
/// Returns a [`Failure`] if either cannot be started, or the one of `meanwhile`. Otherwise this
/// does not return.
pub fn start(
    mut plan: LaunchPlan,
    secrets: &[(&str, &str)],
    meanwhile: impl FnOnce(&LaunchPlan) -> Result<(), Failure>,
    serve: impl FnOnce(&Runtime, GatewayEnd) -> Result<Code, Failure>,
) -> Result<Code, Failure> {
    need_kernel_files()?;
    let (launcher, gateway) = enroll::pair()
        .context("the enrolment socket cannot be made")
        .coded(launch::LAUNCHER_FAILED)?;
    let state = state_folder()?;
    private_folder(&state)?;
    let locks = repository::lock(&plan.mounts.projects).map_err(not_launched)?;
    let unstarted = |error: std::io::Error| {
        Failure::new("the gateway process cannot be started")
            .because(error.to_string())
            .coded(launch::LAUNCHER_FAILED)
    };
    let announcement = Announcement::new(&state).map_err(unstarted)?;
    let Some(process) = launch::copy(secrets).map_err(not_launched)? else {
        drop(launcher);
        let ended = become_gateway(gateway, &announcement, serve);
        let code = ended.unwrap_or_else(|failure| {
            Terminal::new(false, Color::Auto).fail(&failure);
            failure.code
        });
        std::process::exit(code.number().into())
    };
    drop(gateway);
    // This runs while the gateway process starts.
    let told = plan
        .look_at_repositories(&state)
        .map_err(not_launched)
        .and_then(|()| {
            let told = announcement.tell(&plan.mounts, &locks);
            told.map_err(unstarted)
        });
    drop(locks);
    let launcher = launcher.of(process);
    if let Err(failure) = told.and_then(|()| meanwhile(&plan)) {
        launcher.await_done(END_WITHIN);
        return Err(failure);
    }
    let error = launch::reexec(&plan, launcher);
    Err(Failure::new("the launcher cannot be started")
        .because(error.to_string())
        .coded(launch::LAUNCHER_FAILED))
}

/// Runs as the gateway process, a copy of the first one.
fn become_gateway(
    gateway: GatewayEnd,
    announcement: &Announcement,
    serve: impl FnOnce(&Runtime, GatewayEnd) -> Result<Code, Failure>,
) -> Result<Code, Failure> {
    // The program may have another name.
    let _ = rustix::thread::set_name(c"gateway");
    // The launcher decides how long this process lives; signals must not end it.
    let runtime = serving::runtime()?;
    runtime.block_on(async { Signals::catch().map(drop) })?;
    // This runs before any secret is read. From here on, other processes cannot see the
    // environment, which only this process has.
    serving::harden()?;
    // The streams are the command's.
    rustix::stdio::dup2_stdin(&gateway)
        .and_then(|()| rustix::stdio::dup2_stdout(announcement))
        .context("the command's streams cannot be left")?;
    // Unless more is requested, only internal errors of the gateway are shown.
    logging::start(tracing::Level::ERROR, true);
    serve(&runtime, gateway)
}

/// Starts a sandbox whose command is this program, with these arguments.
///
/// # Errors
/// As [`start`].
pub fn start_own(
    launch: Launch,
    arguments: &[&str],
    json: bool,
    secrets: &[(&str, &str)],
    serve: impl FnOnce(&Runtime, GatewayEnd) -> Result<Code, Failure>,
) -> Result<Code, Failure> {
    let json = json.then_some("--json");
    let arguments = ["gateway"].iter().chain(arguments).copied().chain(json);
    let launch = Launch {
        arguments: arguments.map(Into::into).collect(),
        own_program: true,
        ..launch
    };
    start(plan(launch)?, secrets, |_| Ok(()), serve)
}

/// Sweeps the projects of sandboxes whose processes were killed before they could.
///
/// # Errors
/// Returns a [`Failure`] if this fails: then nothing may start in `projects`.
pub fn recover(projects: &[PathBuf], terminal: &Terminal) -> Result<(), Failure> {
    let swept = repository::recover(&state_folder()?, projects)
        .context("what a sandbox left that was killed cannot be looked through")
        .coded(launch::LAUNCHER_FAILED)?;
    let is_told = |left: &SweepFindings| !left.found.is_empty() || !left.missed.is_empty();
    for left in swept.into_iter().filter(is_told) {
        terminal.note(
            "gateway: a sandbox was killed before what it left was looked through: now it was",
        );
        summary::print_left(terminal, &left, None);
    }
    Ok(())
}

fn state_folder() -> Result<PathBuf, Failure> {
    state::directory().ok_or_else(|| {
        Failure::no_state_folder("there is no place for what is put away in a project")
            .coded(launch::LAUNCHER_FAILED)
    })
}

/// Creates a folder of the state, unless it exists.
fn private_folder(folder: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.context(format!("the folder `{}` cannot be made", folder.display()))
        .advise("let `XDG_STATE_HOME` or `HOME` name a folder that you can write to")
        .coded(launch::LAUNCHER_FAILED)
}

/// The files that a sandbox needs, and the command that creates each missing one.
const KERNEL_FILES: [(&str, &str); 3] = [
    ("/proc/self/exe", "mount -t proc proc /proc"),
    ("/dev/null", "mount -t devtmpfs dev /dev"),
    ("/sys", "mkdir /sys"),
];

/// Checks for files that a bare root lacks: a chroot, an initial RAM disk, an image.
fn need_kernel_files() -> Result<(), Failure> {
    let absent = |path: &str| !std::path::Path::new(path).exists();
    match KERNEL_FILES.into_iter().find(|(path, _)| absent(path)) {
        None => Ok(()),
        Some((path, remedy)) => Err(Failure::new("cannot make the sandbox")
            .because(format!("this root has no {path}"))
            .next(format!("as root: `{remedy}`"))
            .coded(launch::LAUNCHER_FAILED)),
    }
}

/// Runs as the launcher's own image: creates the sandbox, runs the command, and exits as it does.
pub fn resume(arguments: &[OsString], terminal: &Terminal) -> Result<Code, Failure> {
    let _ = rustix::thread::set_name(c"gateway");
    let (plan, gateway) = launch::resume(arguments).map_err(|error| {
        Failure::usage(format!(
            "`{}` is for the gateway itself",
            launch::SUBCOMMAND
        ))
        .because(error.to_string())
    })?;
    let projects = plan.mounts.projects.clone();
    let ended = launch::run(plan, &gateway);
    let broken = await_gateway(&gateway, terminal);
    let broken = broken.filter(|exit| match exit {
        Exit::Signal(_) => true,
        // If the command was not started, its exit code says so already.
        Exit::Code(code) => *code != 0 && ended.is_ok(),
    });
    let is_gone = broken.is_some() || matches!(ended, Err(launch::Error::GatewayGone(_)));
    if let Some(Err(failure)) = is_gone.then(|| recover(&projects, terminal)) {
        terminal.fail(&failure);
    }
    let left = broken.map_or(Ok(()), |exit| Err(launch::Error::GatewayBroke(exit)));
    match (ended, left) {
        (Ok(exit), Ok(())) => exit.resume(),
        (Err(error), Ok(())) | (Ok(_), Err(error)) => fail([error], terminal),
        (Err(error), Err(left)) => fail([error, left], terminal),
    }
}

/// Prints each error, and exits with the code of the last one.
fn fail<const N: usize>(errors: [launch::Error; N], terminal: &Terminal) -> ! {
    let failures = errors.map(not_launched);
    failures.iter().for_each(|failure| terminal.fail(failure));
    let code = failures.last().map(|failure| failure.code.number());
    std::process::exit(code.unwrap_or(launch::LAUNCHER_FAILED).into())
}

/// Waits until the gateway process has written its last records and swept the command's changes.
/// Until then, git outside may obey them. Returns how that process ended, if it did before.
fn await_gateway(gateway: &LauncherEnd, terminal: &Terminal) -> Option<Exit> {
    let process = gateway.process()?;
    let mut waited = gateway.await_done(END_WITHIN);
    if waited == WaitStatus::Runs && !is_asking(process) {
        terminal
            .note("gateway: what the command left is still looked through: run no git there yet");
    }
    if waited == WaitStatus::Runs {
        waited = gateway.await_done(LOOKED_THROUGH_WITHIN);
    }
    match waited {
        WaitStatus::Ended(exit) => Some(exit),
        WaitStatus::Done | WaitStatus::Unknown => None,
        WaitStatus::Runs => {
            terminal.note(
                "gateway: what the command left was not looked through: look before git or another tool runs there",
            );
            None
        }
    }
}

/// Turns a launch error into a failure, with advice.
///
/// Wrong flags or configuration are wrong usage, as elsewhere. A failure of the gateway process is
/// shown as that process reported it.
pub fn not_launched(error: launch::Error) -> Failure {
    let code = error.exit_code();
    let advice = error.advice();
    let mut failure = match &error {
        launch::Error::Step(failed) if failed.step == Step::Prepare => unprepared(failed, code),
        launch::Error::Gateway(enroll::Error::Refused(told)) => match Failure::received(told) {
            refused if refused.code == Code::Usage => refused,
            refused => refused.coded(code),
        },
        _ => Failure::new(chain(&error)).coded(code),
    };
    failure.next = advice.or(failure.next);
    failure
}

/// Reports a check that failed before anything was created: a flag or the folder does not fit, or
/// the system refused an operation.
fn unprepared(failed: &launch::Failure, code: u8) -> Failure {
    match failed.errno {
        0 => Failure::usage(failed.detail.clone()),
        errno => Failure::new(failed.detail.clone())
            .because(std::io::Error::from_raw_os_error(errno).to_string())
            .coded(code),
    }
}

/// How long the launcher waits for the gateway process to write its last records and to sweep the
/// command's changes, before it reports the delay.
const END_WITHIN: Duration = Duration::from_secs(10);
/// How long it waits in all. It does not wait for a process that hangs.
const LOOKED_THROUGH_WITHIN: Duration = Duration::from_secs(600);
