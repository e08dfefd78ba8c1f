//! `gateway doctor`: checks that the gateway keeps its promises on this machine.

mod checks;
mod credentials;
mod origin;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::app::App;
use super::demo;
use super::embedded::Embedded;
use super::escape;
use super::failure::{Code, Failure};
use super::reloading::RunsAs;
use super::resolve::ResolvedConfig;
use super::shell_loans::ShellLoans;
use super::terminal::Terminal;
use super::{gateway_process, launching, log};
use crate::config::Config;
use crate::launch::Launch;
use crate::launch::enroll::GatewayEnd;
use origin::{HOST, VARIABLE, answer};

/// The first argument of the command in the sandbox.
pub const CLIENTS: &str = "__doctor-clients";

/// Check that your tools work in the sandbox; with --escape, try to break out of it; with --config,
/// check that every credential can be fetched
#[derive(Args)]
pub struct Doctor {
    /// Try every known way out of the sandbox, and print each result
    #[arg(long)]
    escape: bool,
    /// Fetch each credential of this configuration, and say what is missing; nothing is sent
    #[arg(long, value_name = "FILE", conflicts_with = "escape")]
    config: Option<PathBuf>,
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
        if let Some(config) = &self.config {
            return credentials::run(config, terminal);
        }
        let secret = demo::secret()?;
        let mut arguments = vec![
            "gateway".into(),
            CLIENTS.into(),
            checks::found().join(",").into(),
        ];
        if terminal.json() {
            arguments.push("--json".into());
        }
        let launch = Launch {
            arguments,
            own_program: true,
            ..Launch::default()
        };
        launching::start(
            launching::plan(launch)?,
            None,
            &[(VARIABLE, &secret)],
            |_| Ok(()),
        )
    }

    /// Serves the clients' sandbox: the gateway process, with the origin beside it.
    ///
    /// # Errors
    /// Returns a [`Failure`] that the launcher has already been told.
    pub fn serve(self, gateway: GatewayEnd) -> Result<Code, Failure> {
        let runtime = super::serving::runtime()?;
        let secret = std::env::var(VARIABLE).map_err(|_| {
            Failure::usage("the gateway process of `doctor` is for `doctor` itself")
        })?;
        let app = runtime.block_on(async {
            let origin = Embedded::serve(HOST, Arc::new(move |request| answer(&secret, request))).await?;
            let text = format!(
                "[[credential]]\nname = \"doctor\"\nfrom = \"env:{VARIABLE}\"\norigins = [\"https://{HOST}\"]\n\
                 places = [\"header:authorization:Bearer\", \"header:authorization\", \"basic:password\"]\nenv = [\"{VARIABLE}\"]\n"
            );
            let config = Config::from_str(&text, Path::new("the doctor's configuration"))?;
            let resolved = ResolvedConfig::of(&config, &ShellLoans::default())?;
            App::with_origins(config, resolved, RunsAs::Exec, vec![origin.rule()])
        });
        app.iter()
            .for_each(|app| log::begin(&app.shared.log, log::DOCTOR));
        gateway_process::serve_on(&runtime, gateway, app, None)
    }
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
