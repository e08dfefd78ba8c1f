//! `gateway serve`: runs the data path behind the configured listeners, for any sandbox.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::app::App;
use super::binding::{self, BoundListener};
use super::control;
use super::draining::drain;
use super::failure::{Code, Failure};
use super::flags::RunFlags;
use super::keeping::Keeping;
use super::publishing::publish;
use super::refusal_lines::RefusalLines;
use super::reloading::{Applied, ConfigSource, RunsAs};
use super::resolve::ResolvedConfig;
use super::service_manager::ServiceManager;
use super::signals::Signals;
use super::terminal::Terminal;
use super::threads::{self, Door, Thread};
use super::{exporting, logging, serving};
use crate::config::{Config, ListenerKind};
use crate::credential::{Stores, unexpected_reach};
use crate::gateway::{ListenerMode, SessionListener, Worker};
use crate::intercept::explicit::Authentication;
use crate::launch::service;

/// Serve the listeners of a configuration: an explicit proxy, or TLS by SNI, for any sandbox
#[derive(Args)]
pub struct Serve {
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
    /// Returns a [`Failure`] if something cannot be set up. Nothing is served then.
    pub fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let passed = service::take().map_err(|error| {
            Failure::usage("what the service manager passed cannot be used")
                .because(error.to_string())
        })?;
        let runtime = serving::runtime()?;
        let signals = {
            let _entered = runtime.enter();
            Signals::catch()?
        };
        logging::start(tracing::Level::WARN);
        serving::harden()?;
        let manager = ServiceManager::connect(&passed)?;
        let config = self.config(terminal)?;
        let resolved = ResolvedConfig::of(&config, false)?;
        note_reach(&resolved, terminal);
        let bound = binding::bind(&config.listeners, passed.sockets, config.runtime.threads)?;
        let source = ConfigSource {
            run: self.run.clone(),
            known_variables: false,
            profile: None,
            granted: config.granted.clone(),
            runs_as: RunsAs::Serve,
        };
        let app = Arc::new(
            App::new(config, resolved)?
                .keeping(Keeping::Listeners)
                .reloading_from(source),
        );
        let served = Served {
            app: &app,
            terminal,
            signals,
            manager,
            quiet: self.run.quiet,
        };
        let ended = runtime.block_on(async {
            let ended = served.run(bound).await;
            serving::close(&app.shared).await;
            ended
        });
        app.shared.tell_suppressed();
        ended
    }

    fn config(&self, terminal: &Terminal) -> Result<Config, Failure> {
        let mut config = self.run.config(&super::presets::known_variable)?;
        config.granted = config.file.as_deref().map(granted_beside);
        terminal.warn(&config.warnings);
        note_former_grants(&config, terminal);
        if config.listeners.is_empty() {
            return Err(Failure::usage("there is nothing to listen on")
                .because("the configuration has no `[[listener]]`")
                .next("add one: kind = \"proxy\", address = \"127.0.0.1:8080\", session = \"agent-1\""));
        }
        Ok(config)
    }
}

/// Prints which signing keys reach further than a reader would expect.
fn note_reach(resolved: &ResolvedConfig, terminal: &Terminal) {
    for stored in &resolved.stored {
        if let Some(which) = unexpected_reach(stored) {
            terminal.note(format!(
                "gateway: `{}` signs for {which}",
                stored.binding.credential
            ));
        }
    }
}

/// A `serve` with its addresses.
struct Served<'a> {
    app: &'a Arc<App>,
    terminal: &'a Terminal,
    signals: Signals,
    manager: ServiceManager,
    quiet: bool,
}

impl Served<'_> {
    async fn run(mut self, bound: Vec<BoundListener>) -> Result<Code, Failure> {
        let app = self.app;
        let listeners = tokio::select! {
            opened = listeners(app) => opened?,
            () = self.signals.stop() => return Ok(Code::Ok),
        };
        let mut doors = doors(app, bound, &listeners);
        let mine = doors.pop().unwrap_or_default();
        let mut others = Vec::new();
        for theirs in doors {
            others.push(Thread::start(app.shared.clone(), theirs)?);
        }
        let mut workers: Vec<Arc<Worker>> =
            others.iter().map(|other| other.worker.clone()).collect();
        workers.push(threads::worker(&app.shared, mine)?);
        let sessions = listeners.iter().map(|listener| listener.session.clone());
        serving::tend(&app.shared, sessions.collect());
        let _control = control::open(app, "serve")?;
        let log = app.shared.log.path().filter(|_| !self.quiet);
        let _refusals = log.and_then(|log| RefusalLines::start(log, *self.terminal));
        let _exports = exporting::start(app)?;
        self.announce(&listeners);
        serving::settle();
        self.wait().await;
        self.manager.stopping();
        drain(&app.shared, &workers, &mut self.signals, self.terminal).await;
        drop(workers);
        others.into_iter().for_each(Thread::end);
        Ok(Code::Ok)
    }

    /// Says that everything listens, to whoever wants to know.
    fn announce(&self, listeners: &[Arc<SessionListener>]) {
        for (known, listener) in self.app.config.listeners.iter().zip(listeners) {
            if !self.quiet {
                let id = listener.session.id();
                self.terminal
                    .note(format!("gateway: session `{id}` on {}", known.address));
            }
        }
        self.manager.ready();
        tokio::spawn(self.manager.clone().reassure());
    }

    /// Waits for SIGTERM or SIGINT. SIGHUP reloads meanwhile, and so does a changed file.
    async fn wait(&mut self) {
        let (told, mut reloaded) = tokio::sync::mpsc::unbounded_channel();
        let tell = move |outcome| drop(told.send(outcome));
        tokio::spawn(self.app.clone().watch(tell));
        loop {
            tokio::select! {
                hung_up = self.signals.next() => match hung_up {
                    true => if !self.reload().await { return },
                    false => return,
                },
                Some(outcome) = reloaded.recv() => self.show(outcome),
            }
        }
    }

    /// Reloads. Returns whether the gateway goes on: a secret store may take long, and SIGTERM and
    /// SIGINT do not wait for it.
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

    /// Prints what came of a reload.
    fn show(&self, outcome: Result<Applied, Failure>) {
        match outcome {
            Ok(applied) => self.terminal.note(format!("gateway: {applied}")),
            Err(failure) => self.terminal.fail(&failure),
        }
    }
}

/// Gives each thread its sockets, with the listeners that they belong to.
fn doors(
    app: &App,
    mut bound: Vec<BoundListener>,
    listeners: &[Arc<SessionListener>],
) -> Vec<Vec<Door>> {
    let mut one_thread = || {
        let each = bound.iter_mut().zip(listeners);
        let doors = each.filter_map(|(bound, listener)| {
            Some(Door {
                socket: bound.sockets.pop()?,
                inherited: bound.inherited,
                listener: listener.clone(),
            })
        });
        doors.collect()
    };
    (0..app.config.runtime.threads.get())
        .map(|_| one_thread())
        .collect()
}

/// Opens the configured listeners, in their order, and publishes what their workloads need.
/// Listeners of one session share its phantoms and its CA.
async fn listeners(app: &App) -> Result<Vec<Arc<SessionListener>>, Failure> {
    let mut listeners: Vec<Arc<SessionListener>> = Vec::new();
    let mut opened = Vec::new();
    for listener in &app.config.listeners {
        let known = listeners
            .iter()
            .find(|known| *known.session.id() == listener.session);
        let (session, ca) = match known {
            Some(known) => (known.session.clone(), known.ca.clone()),
            None => {
                let (session, ca) = app.open(&listener.session, &listener.groups).await?;
                opened.push((session.clone(), ca.clone()));
                (session, ca)
            }
        };
        let mode = match &listener.kind {
            ListenerKind::Tls { port } => ListenerMode::Tls { port: *port },
            ListenerKind::Proxy {
                authentication: None,
            } => ListenerMode::Proxy(None),
            ListenerKind::Proxy {
                authentication: Some(asked),
            } => ListenerMode::Proxy(Some(Arc::new(authentication(asked).await?))),
        };
        listeners.push(Arc::new(SessionListener { session, ca, mode }));
    }
    // Only now, so that a start that fails changes nothing.
    for (session, ca) in opened {
        let snapshot = app.shared.current();
        let bindings = snapshot.credentials.bindings();
        publish(&app.config, bindings, &session, &ca.certificate_pem())?;
    }
    Ok(listeners)
}

/// The rules that operators grant stand in a file beside the configuration: `gateway.granted.cedar`
/// for `gateway.toml`.
fn granted_beside(config: &Path) -> PathBuf {
    config.with_extension(crate::policy::GRANTED)
}

/// Says that the file which all configurations of a folder shared is not read any more.
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

async fn authentication(asked: &crate::config::ProxyLogin) -> Result<Authentication, Failure> {
    let unusable = |why: String| Failure::new("the proxy's password cannot be had").because(why);
    let lease = Stores::new([&asked.password])
        .source(&asked.password)
        .resolve(None)
        .await
        .map_err(|error| unusable(crate::gateway::chain(&error)))?;
    Ok(lease.secret.authentication(asked.user.as_bytes()))
}
