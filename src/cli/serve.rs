//! `gateway serve`: runs the data path behind the configured listeners, for any sandbox.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::app::control::{self, TellReload};
use crate::app::listen::bind;
use crate::app::listen::bind::BoundListener;
use crate::app::listen::change::refuse_none;
use crate::app::process::drain::drain;
use crate::app::process::service_manager::ServiceManager;
use crate::app::process::signals::Signals;
use crate::app::process::thread::Thread;
use crate::app::process::{logging, serving};
use crate::app::reload::generation;
use crate::app::reload::source::{ConfigSource, ReloadOutcome, RunMode};
use crate::app::session::store::Persistence;
use crate::app::settings::resolve::ResolvedConfig;
use crate::app::settings::shell_secrets::ShellLoans;
use crate::app::terminal::standard_error::BackgroundOutput;
use crate::app::{App, Code, Context as _, Failure, RunFlags, Terminal, audit_heads};
use crate::cli::refusal_lines::RefusalLines;
use crate::config::{Config, Listener, SandboxFlags, state};
use crate::credential::unexpected_reach;
use crate::intercept::Evidence;
use crate::launch::service;
use crate::server::Worker;

/// Serve the listeners of a configuration, for any sandbox
///
/// They are proxies, what is captured, and base URLs.
#[derive(Args)]
pub struct Serve {
    /// Listen as a proxy, on loopback, beside the listeners of the file
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = loopback)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    run: RunFlags,
}

impl Serve {
    /// Serves until a signal ends it.
    ///
    /// The order matters: signals are caught first, and addresses are bound before anything is
    /// published or recorded.
    ///
    /// # Errors
    /// Returns a [`Failure`] if a part cannot be set up. Nothing is served then.
    pub fn run(mut self, terminal: &mut Terminal) -> Result<Code, Failure> {
        self.run.listen(self.listen);
        let passed = service::take().map_err(|error| {
            Failure::usage("what the service manager passed cannot be used")
                .because(error.to_string())
        })?;
        // This precedes everything that it must outlive.
        let _written = BackgroundOutput::start().context("standard error cannot be written")?;
        let runtime = serving::runtime()?;
        let signals = {
            let _entered = runtime.enter();
            Signals::catch()?
        };
        logging::start(tracing::Level::WARN, false);
        serving::harden()?;
        let manager = ServiceManager::connect(&passed)?;
        let config = self.config(terminal)?;
        let resolved = ResolvedConfig::of(&config, &ShellLoans::default())?;
        note_reach(&resolved, terminal);
        let bound = bind::bind(&config.listeners, passed.sockets, config.runtime.threads)?;
        let source = ConfigSource {
            run: self.run.clone(),
            sandbox: SandboxFlags::default(),
            shell: ShellLoans::default(),
            profile: None,
            project: None,
            open: false,
            commit_key: None,
            granted: config.granted.clone(),
            runs_as: RunMode::Serve,
        };
        let app = App::new(config, resolved, RunMode::Serve, Vec::new())?
            .obeying(state::revoked_file())
            .keeping(Persistence::Listeners)
            .reloading_from(source);
        let served = ServeRun {
            app: &app,
            terminal,
            signals,
            manager,
            quiet: self.run.quiet,
        };
        if app.config.audit.path.is_none() {
            // Without the thread, a later start removes them.
            let _ = std::thread::Builder::new().spawn(crate::cli::log::archive::prune_kept);
        }
        let ended = runtime.block_on(async {
            let ended = served.run(bound).await;
            serving::close(&app.shared).await;
            serving::give_back(&app.shared).await;
            ended
        });
        if let Some(fleet) = app.fleet() {
            runtime.block_on(fleet.leave());
        }
        app.close();
        audit_heads::keep_last(&app.shared.log);
        // This does not wait for a file system that hangs.
        runtime.shutdown_background();
        ended
    }

    fn config(&self, terminal: &Terminal) -> Result<Config, Failure> {
        let mut config = self.run.config(&SandboxFlags::default())?;
        config.granted = config.file.as_deref().map(generation::granted_beside);
        terminal.warn(&config.warnings);
        note_former_grants(&config, terminal);
        refuse_none(&config)?;
        Ok(config)
    }
}

/// Reads `--listen`. A proxy there asks for no password.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| String::from("write an address and a port, such as `127.0.0.1:8080`"))?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err(String::from(
            "whoever reaches that address would spend the credentials: write 127.0.0.1, or a `[[listener]]` with `who` in a file",
        ))
    }
}

/// Prints the signing keys that reach further than a reader would expect.
fn note_reach(resolved: &ResolvedConfig, terminal: &Terminal) {
    for stored in &resolved.stored {
        if let Some(which) = unexpected_reach(stored) {
            let name = &stored.binding.credential;
            terminal.note(format!("gateway: `{name}` signs for {which}"));
        }
    }
}

/// How a client is pointed at the listeners, if a command does that.
fn next_step(listeners: &[Listener]) -> Option<String> {
    let proxies = listeners.iter().filter(|one| one.has_proxy_url());
    let sessions: BTreeSet<_> = proxies
        .clone()
        .filter_map(|one| one.session.one())
        .collect();
    let mut sessions = sessions.into_iter();
    match (sessions.next(), sessions.next()) {
        (Some(_), None) => Some("`eval \"$(gateway env)\"` in the shell of a client".to_owned()),
        (Some(first), Some(_)) => Some(format!(
            "`eval \"$(gateway env --session {first})\"` in the shell of a client"
        )),
        (None, _)
            if proxies
                .into_iter()
                .any(|one| one.who.contains(&Evidence::Token)) =>
        {
            Some("`gateway session create NAME --env` for each client".to_owned())
        }
        _ => None,
    }
}

/// A `serve` with its addresses.
struct ServeRun<'a> {
    app: &'a Arc<App>,
    terminal: &'a Terminal,
    signals: Signals,
    manager: ServiceManager,
    quiet: bool,
}

impl ServeRun<'_> {
    async fn run(mut self, bound: Vec<BoundListener>) -> Result<Code, Failure> {
        let app = self.app;
        let mut others = Vec::new();
        for _ in 1..app.threads().get() {
            others.push(Thread::start(app.shared.clone())?);
        }
        let mut workers = vec![serving::worker(&app.shared)?];
        workers.extend(others.iter().map(|other| other.worker.clone()));
        app.listening.on(workers.clone());
        let ended = self.serve(bound, &workers).await;
        app.listening.end();
        drop(workers);
        others.into_iter().for_each(Thread::end);
        ended
    }

    async fn serve(
        &mut self,
        bound: Vec<BoundListener>,
        workers: &[Arc<Worker>],
    ) -> Result<Code, Failure> {
        let app = self.app;
        // Before the first request, so that no revocation is missed: see `control::bind`.
        let bind = || control::bind(app, "serve");
        let control = tokio::select! {
            opened = app.open_listeners(bound, bind) => opened?,
            () = self.signals.stop() => return Ok(Code::Ok),
        };
        serving::tend(&app.shared);
        tokio::spawn(app.clone().serve_callers());
        tokio::spawn(app.clone().ask_issuers());
        // Exports start before anything can reload.
        app.exports.start(&app.shared, &app.config, true)?;
        let (tell, told) = mpsc::unbounded_channel();
        let _control = control.serve(app, Some(tell.clone()), None)?;
        let lines = || RefusalLines::start(&app.shared.log, *self.terminal);
        let _refusals = (!self.quiet).then(lines).flatten();
        self.announce();
        serving::settle();
        self.wait(tell, told).await;
        self.manager.stopping();
        drain(&app.shared, workers, &mut self.signals, self.terminal).await;
        Ok(Code::Ok)
    }

    /// Reports, to the terminal and the service manager, that all listeners are open.
    fn announce(&self) {
        for known in &self.app.config.listeners {
            if !self.quiet {
                let (id, address) = (&known.session, &known.address);
                self.terminal
                    .note(format!("gateway: session `{id}` on {address}"));
            }
        }
        if let Some(next) = next_step(&self.app.config.listeners).filter(|_| !self.quiet) {
            self.terminal.note(format!("gateway: next: {next}"));
        }
        self.manager.ready();
        tokio::spawn(self.manager.clone().reassure());
    }

    /// Waits for SIGTERM or SIGINT. Meanwhile SIGHUP, a changed file or an operator reloads; `told`
    /// receives the outcomes.
    async fn wait(
        &mut self,
        tell: TellReload,
        mut told: UnboundedReceiver<Result<ReloadOutcome, Failure>>,
    ) {
        let tell = move |outcome| drop(tell.send(outcome));
        tokio::spawn(self.app.clone().watch(tell));
        loop {
            tokio::select! {
                hung_up = self.signals.next() => if hung_up { if !self.reload().await { return } } else { return },
                Some(outcome) = told.recv() => self.show(outcome),
                () = drain_asked(self.app) => return,
            }
        }
    }

    /// Reloads. Returns whether the gateway goes on: SIGTERM and SIGINT do not wait for a secret
    /// store, which may take long.
    async fn reload(&mut self) -> bool {
        self.manager.reloading();
        let outcome = tokio::select! {
            outcome = self.app.reload() => outcome,
            () = self.signals.stop() => return false,
        };
        self.show(outcome);
        self.manager.ready();
        true
    }

    /// Prints the outcome of a reload.
    fn show(&self, outcome: Result<ReloadOutcome, Failure>) {
        match outcome {
            Ok(applied) => self.terminal.note(format!("gateway: {applied}")),
            Err(failure) => self.terminal.fail(&failure),
        }
    }
}

/// Completes when an operator of the fleet asks this replica to stop.
async fn drain_asked(app: &App) {
    match app.fleet() {
        Some(fleet) => fleet.drain.notified().await,
        None => std::future::pending().await,
    }
}

/// Reports that the file which all configurations of a folder shared is not read any more.
fn note_former_grants(config: &Config, terminal: &Terminal) {
    let Some(granted) = &config.granted else {
        return;
    };
    let former = granted.with_file_name("granted.cedar");
    if former.exists() && !config.policy.paths().contains(&former) {
        terminal.note(format!(
            "gateway: {} is no longer read, since every configuration there shared it. If its rules are for this one, move it to {}",
            former.display(),
            granted.display()
        ));
    }
}
