//! `gateway doctor --escape`: tries a published list of ways out of the sandbox and prints each
//! verdict.
//!
//! The process that the user started creates the targets of the probes: servers, sockets, a secret
//! file, a process to read. It then starts a sandbox like that of `exec`. Inside, this same program
//! tries every way out.

use std::path::Path;
use std::process::Command;

use tokio::runtime::Runtime;

use crate::app::{Code, Failure, Paint, Terminal};
use crate::cli::doctor::embedded;
use crate::cli::exec::{launching, ports};
use crate::cli::log;
use crate::config::{Config, state};
use crate::escape::{self, Fixtures, TARGETS_VARIABLE, Targets};
use crate::launch::enroll::GatewayEnd;
use crate::launch::{Launch, environment};

/// Tries every way out, and reports which ones were blocked.
///
/// # Errors
/// Returns a [`Failure`] if nothing could be tried.
pub fn check(terminal: &Terminal) -> Result<Code, Failure> {
    let failed = |why: std::io::Error| {
        Failure::new("the escapes could not be tried").because(why.to_string())
    };
    let plan = launching::plan(Launch::default())?;
    let folder = &plan.mounts.working_directory;
    let mut fixtures = Fixtures::plant(state::home().as_deref(), folder).map_err(failed)?;
    fixtures.plant_ports().map_err(failed)?;
    if plan.mounts.persistent {
        // Root's probes run as another user, who must be able to write there, as in their own
        // project.
        let owner = Some(plan.user().uid).filter(|uid| *uid != rustix::process::geteuid().as_raw());
        fixtures.plant_repositories(folder, owner).map_err(failed)?;
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg(SUBCOMMAND);
    if terminal.json() {
        command.arg("--json");
    }
    fixtures.tell(&mut command).map_err(failed)?;
    let ended = command.status().map_err(failed)?;
    let breaches = fixtures.breaches();
    for breach in &breaches {
        let escaped = terminal.paint(Paint::Red, "escaped");
        terminal.note(format!("{escaped} {breach} reached the host"));
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

/// The first argument of the image that runs the probes in a sandbox.
pub const SUBCOMMAND: &str = "__probe";

/// Starts the sandbox with the probes inside. Returns only if that fails.
///
/// # Errors
/// Returns a [`Failure`] with the step that failed.
pub fn start(json: bool) -> Result<Code, Failure> {
    let config = Config::from_str(&configuration(), Path::new(log::DOCTOR))?;
    let launch = Launch {
        ports: ports::of(&config.sandbox)?,
        environment: environment::VariableRules {
            allow: vec![TARGETS_VARIABLE.to_owned()],
            ..environment::VariableRules::default()
        },
        ..Launch::default()
    };
    launching::start_own(launch, &[escape::SUBCOMMAND], json, &[], serve)
}

/// Serves that sandbox and allows nothing but two ports.
///
/// # Errors
/// Returns a [`Failure`] that was already sent to the launcher.
fn serve(runtime: &Runtime, gateway: GatewayEnd) -> Result<Code, Failure> {
    embedded::serve_sandbox(runtime, gateway, log::DOCTOR, &configuration(), None)
}

/// Returns the configuration of the sandbox: the ports of the targets.
fn configuration() -> String {
    let ports = Targets::told().unwrap_or_default().ports;
    ports.map_or_else(String::new, |ports| {
        let (host, published, inside) = (ports.host, ports.published, ports.inside);
        format!("[sandbox]\nhost_port = [\"{host}\"]\npublish = [\"{published}:{inside}\"]\n")
    })
}

/// Runs the probes, as the sandbox's command.
pub fn inside(json: bool) -> Code {
    if escape::run(&mut std::io::stdout(), json) {
        Code::Ok
    } else {
        Code::Failed
    }
}
