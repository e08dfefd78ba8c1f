//! `gateway doctor --escape`: a published list of ways out of the sandbox, each tried, each verdict
//! printed.
//!
//! The process that was typed plants what the probes look for (servers, sockets, a secret file, a
//! process to read) and starts a sandbox of the kind that `exec` makes; inside, this very program
//! tries every way out.

use std::path::Path;
use std::process::Command;

use clap::Args;

use super::assembly::Assembly;
use super::exec;
use super::expand::Expanded;
use super::failure::{Code, Failure};
use super::screen::{Paint, Screen};
use crate::config::{Config, state};
use crate::launch::enroll::GatewayEnd;
use crate::launch::escape::{self, TARGETS_VARIABLE};
use crate::launch::{self, Launch, environment};

/// The sandbox in which the probes run; for `doctor` itself
#[derive(Args)]
pub struct Probe {}

/// Tries every way out, and tells which held.
///
/// # Errors
/// A [`Failure`] where nothing could be tried.
pub fn check(screen: &Screen) -> Result<Code, Failure> {
    let failed = |why: std::io::Error| {
        Failure::new("the escapes could not be tried").because(why.to_string())
    };
    let summary = launch::summary(&Launch::default()).map_err(exec::not_launched)?;
    let (mut targets, mut guard) =
        escape::plant(state::home().as_deref(), &summary.working_directory).map_err(failed)?;
    if summary.persistent {
        // Root's probes run as another user, who must be able to write there, as in a project of
        // theirs.
        let owner =
            Some(summary.user.uid).filter(|uid| *uid != rustix::process::geteuid().as_raw());
        guard
            .plant_repositories(&mut targets, &summary.working_directory, owner)
            .map_err(failed)?;
    }
    let told = serde_json::to_string(&targets).map_err(|error| failed(error.into()))?;
    let mut command = Command::new("/proc/self/exe");
    if screen.json() {
        command.arg("--json");
    }
    let ended = command
        .arg(SUBCOMMAND)
        .envs(targets.environment())
        .env(TARGETS_VARIABLE, told)
        .stdin(guard.input().map_err(failed)?)
        .status()
        .map_err(failed)?;
    let breaches = guard.breaches();
    for breach in &breaches {
        screen.note(format!(
            "{} {breach} reached the host",
            screen.paint(Paint::Red, "escaped")
        ));
    }
    match ended.code() {
        Some(0) if breaches.is_empty() => Ok(Code::Ok),
        Some(0 | 1) => Ok(Code::Failed),
        _ => {
            Err(Failure::new("the escapes could not be tried")
                .because("the sandbox was not started"))
        }
    }
}

/// The hidden command that runs the probes in a sandbox.
pub const SUBCOMMAND: &str = "__probe";

impl Probe {
    /// Starts the sandbox and, inside, the probes; returns only where that fails.
    ///
    /// # Errors
    /// A [`Failure`] with the step that failed.
    pub fn run(self, screen: &mut Screen) -> Result<Code, Failure> {
        let mut arguments = vec!["gateway".into(), escape::SUBCOMMAND.into()];
        if screen.json() {
            arguments.push("--json".into());
        }
        let launch = Launch {
            arguments,
            own_program: true,
            environment: environment::Rules {
                allow: vec![TARGETS_VARIABLE.to_owned()],
            },
            ..Launch::default()
        };
        exec::start(launch, &[])
    }

    /// Serves that sandbox: nothing is allowed.
    ///
    /// # Errors
    /// A [`Failure`], which the launcher was told.
    pub fn serve(self, gateway: GatewayEnd) -> Result<Code, Failure> {
        let assembly = Config::from_str("", Path::new("no configuration"))
            .map_err(Failure::from)
            .and_then(|config| {
                let expanded = Expanded::of(&config, false)?;
                Assembly::new(config, expanded)
            });
        exec::serve_on(&super::serving::runtime()?, gateway, assembly, None)
    }
}

/// Runs the probes: the sandbox's command.
pub fn inside(json: bool) -> Code {
    if escape::run(&mut std::io::stdout(), json) {
        Code::Ok
    } else {
        Code::Failed
    }
}
