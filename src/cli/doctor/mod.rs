//! `gateway doctor`: checks that the gateway keeps its promises on this machine.

pub(crate) mod demo;
pub(crate) mod embedded;
pub(crate) mod escape;

mod checks;
mod credentials;
pub(crate) mod keys;
mod listeners;
mod origin;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use tokio::runtime::Runtime;

use crate::app::{Code, Failure, Terminal};
use crate::cli::doctor::embedded::Handler;
use crate::cli::exec::launching;
use crate::cli::log;
use crate::config::Config;
use crate::launch::Launch;
use crate::launch::enroll::GatewayEnd;
use origin::{HOST, VARIABLE, answer};

/// The first argument of the command in the sandbox.
pub const CLIENTS: &str = "__doctor-clients";

/// Check that your tools work in the sandbox
///
/// With --escape, try to break out of it; with --config, check that every credential can be
/// fetched, and that every listener can listen and know its callers.
#[derive(Args)]
pub struct Doctor {
    /// Try every known way out of the sandbox, and print each result
    #[arg(long)]
    escape: bool,
    /// Fetch each credential of this configuration, look at what its listeners need, and say what
    /// is missing; no secret is sent
    #[arg(long, value_name = "FILE", conflicts_with = "escape")]
    config: Option<PathBuf>,
    /// Ask the service of each of its credentials whether it works, by a harmless request of the
    /// preset, through the gateway; no key is shown
    #[arg(long, requires = "config")]
    keys: bool,
    /// Ask the same about one secret of the key ring, by its name there
    #[arg(long, value_name = "NAME", conflicts_with_all = ["escape", "config"])]
    key: Option<String>,
}

impl Doctor {
    /// Runs the requested check.
    ///
    /// # Errors
    /// Returns a [`Failure`] if nothing could be checked.
    pub fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        if self.escape {
            return escape::check(terminal);
        }
        if let Some(name) = &self.key {
            return keys::run(&keys::of_ring(name)?, terminal.json());
        }
        if let Some(config) = self.config.as_ref().filter(|_| self.keys) {
            let config = Config::load(config)?;
            terminal.warn(&config.warnings);
            return keys::run(&config, terminal.json());
        }
        if let Some(config) = &self.config {
            return credentials::run(config, terminal);
        }
        let secret = demo::secret()?;
        let (found, json) = (checks::found().join(","), terminal.json());
        let secrets = [(VARIABLE, secret.as_str())];
        launching::start_own(Launch::default(), &[CLIENTS, &found], json, &secrets, serve)
    }
}

/// Serves the clients' sandbox in the gateway process, together with its origin.
///
/// # Errors
/// Returns a [`Failure`] that was already sent to the launcher.
fn serve(runtime: &Runtime, gateway: GatewayEnd) -> Result<Code, Failure> {
    let secret = std::env::var(VARIABLE)
        .map_err(|_| Failure::usage("the gateway process of `doctor` is for `doctor` itself"))?;
    let text = format!(
        "[[credential]]\nname = \"doctor\"\nfrom = \"env:{VARIABLE}\"\norigins = [\"https://{HOST}\"]\n\
         places = [\"header:authorization:Bearer\", \"header:authorization\", \"basic:password\"]\nenv = [\"{VARIABLE}\"]\n"
    );
    let answer: Handler = Arc::new(move |request| answer(&secret, request));
    embedded::serve_sandbox(runtime, gateway, log::DOCTOR, &text, Some((HOST, answer)))
}

/// Runs every installed client, as the sandbox's command.
///
/// `outside` names the clients found outside the sandbox, separated by commas.
///
/// # Errors
/// Returns a [`Failure`] if `doctor` did not start it.
pub fn clients(terminal: &Terminal, outside: &str) -> Result<Code, Failure> {
    if std::env::var_os(VARIABLE).is_none() {
        return Err(Failure::usage(format!(
            "`{CLIENTS}` is for `doctor` itself"
        )));
    }
    checks::run(terminal, &outside.split(',').collect::<Vec<_>>())
}
