//! `gateway serve`: runs the data path behind the configured listeners, for any sandbox.

use std::sync::Arc;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::app::App;
use super::failure::{Code, Failure};
use super::flags::RunFlags;
use super::logging;
use super::publish;
use super::reload::{Applied, ConfigSource, Served};
use super::resolve::ResolvedConfig;
use super::serving;
use super::terminal::Terminal;
use crate::config::ListenerKind;
use crate::credential::{Stores, unexpected_reach};
use crate::gateway::{ListenerMode, SessionListener};
use crate::intercept::explicit::Authentication;

/// Serve the listeners of a configuration: an explicit proxy, or TLS by SNI, for any sandbox
#[derive(Args)]
pub struct Serve {
    #[command(flatten)]
    run: RunFlags,
}

impl Serve {
    /// Serves until a signal ends it.
    ///
    /// # Errors
    /// Returns a [`Failure`] if something cannot be set up. Nothing is served then.
    pub fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        logging::start(tracing::Level::WARN);
        let config = self.run.config(&super::presets::known_variable)?;
        terminal.warn(&config.warnings);
        if config.listeners.is_empty() {
            return Err(Failure::usage("there is nothing to listen on")
                .because("the configuration has no `[[listener]]`")
                .next("add one: kind = \"proxy\", address = \"127.0.0.1:8080\", session = \"agent-1\""));
        }
        let resolved = ResolvedConfig::of(&config, false)?;
        for stored in &resolved.stored {
            if let Some(which) = unexpected_reach(stored) {
                terminal.note(format!(
                    "gateway: `{}` signs for {which}",
                    stored.binding.credential
                ));
            }
        }
        let runtime = serving::runtime()?;
        serving::harden()?;
        let source = ConfigSource {
            run: self.run.clone(),
            known_variables: false,
            command: Served::Listeners,
        };
        let app = Arc::new(App::new(config, resolved)?.reloading_from(source));
        let ended = runtime.block_on(async {
            let ended = serve(&app, terminal, self.run.quiet).await;
            serving::close(&app.shared).await;
            ended
        });
        app.shared.tell_suppressed();
        ended
    }
}

async fn serve(app: &Arc<App>, terminal: &Terminal, quiet: bool) -> Result<Code, Failure> {
    let listeners = listeners(app).await?;
    let threads = app.config.runtime.threads.get();
    let mut sockets = Vec::new();
    for _ in 0..threads {
        let mut one = Vec::new();
        for (address, listener) in &listeners {
            one.push((serving::bind(*address, threads > 1)?, listener.clone()));
        }
        sockets.push(one);
    }
    let mine = sockets.pop().unwrap_or_default();
    for theirs in sockets {
        thread(app, theirs)?;
    }
    let worker = serving::worker(&app.shared)?;
    let sessions = listeners.iter().map(|(_, known)| known.session.clone());
    serving::tend(&app.shared, sessions.collect());
    for (socket, listener) in mine {
        serving::serve(&worker, socket, listener)?;
    }
    if !quiet {
        for (address, listener) in &listeners {
            terminal.note(format!(
                "gateway: session `{}` on {address}",
                listener.session.id()
            ));
        }
    }
    serving::settle();
    wait(app, terminal).await
}

/// Waits for a signal: SIGHUP reloads the configuration, SIGTERM and SIGINT end the program. A
/// changed file reloads it too.
async fn wait(app: &Arc<App>, terminal: &Terminal) -> Result<Code, Failure> {
    let unusable = |error: std::io::Error| {
        Failure::new("signals cannot be waited for").because(error.to_string())
    };
    let mut hangup = signal(SignalKind::hangup()).map_err(unusable)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(unusable)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unusable)?;
    let (told, mut reloaded) = tokio::sync::mpsc::unbounded_channel();
    let tell = move |outcome| drop(told.send(outcome));
    tokio::spawn(app.clone().watch(tell));
    loop {
        tokio::select! {
            _ = hangup.recv() => show(terminal, app.reload().await),
            Some(outcome) = reloaded.recv() => show(terminal, outcome),
            _ = terminate.recv() => return Ok(Code::Ok),
            _ = interrupt.recv() => return Ok(Code::Ok),
        }
    }
}

/// Prints what came of a reload.
fn show(terminal: &Terminal, outcome: Result<Applied, Failure>) {
    match outcome {
        Ok(applied) => terminal.note(format!("gateway: {applied}")),
        Err(failure) => terminal.fail(&failure),
    }
}

/// Starts a thread with its own runtime, worker and sockets.
fn thread(
    app: &Arc<App>,
    sockets: Vec<(std::net::TcpListener, Arc<SessionListener>)>,
) -> Result<(), Failure> {
    let (tell, told) = std::sync::mpsc::channel();
    let shared = app.shared.clone();
    let run = move || {
        let runtime = match serving::runtime() {
            Ok(runtime) => runtime,
            Err(failure) => return drop(tell.send(Err(failure))),
        };
        runtime.block_on(async move {
            let started = serving::worker(&shared).and_then(|worker| {
                sockets
                    .into_iter()
                    .try_for_each(|(socket, listener)| serving::serve(&worker, socket, listener))
            });
            let serves = started.is_ok();
            if tell.send(started).is_ok() && serves {
                std::future::pending::<()>().await;
            }
        });
    };
    let unusable = |why: String| Failure::new("a thread cannot be started").because(why);
    std::thread::Builder::new()
        .name("gateway-worker".to_owned())
        .spawn(run)
        .map_err(|error| unusable(error.to_string()))?;
    told.recv().map_err(|error| unusable(error.to_string()))?
}

/// Opens the configured listeners. Listeners of one session share its phantoms and its CA.
async fn listeners(
    app: &App,
) -> Result<Vec<(std::net::SocketAddr, Arc<SessionListener>)>, Failure> {
    let mut listeners: Vec<(std::net::SocketAddr, Arc<SessionListener>)> = Vec::new();
    for listener in &app.config.listeners {
        let known = listeners
            .iter()
            .find(|(_, known)| *known.session.id() == listener.session);
        let (session, ca) = match known {
            Some((_, known)) => (known.session.clone(), known.ca.clone()),
            None => {
                let (session, ca) = app.open(&listener.session, &listener.groups).await?;
                let snapshot = app.shared.current();
                let bindings = snapshot.credentials.bindings();
                publish::certificate(&app.config, session.id(), &ca.certificate_pem())?;
                publish::phantoms(&app.config, bindings, &session)?;
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
        listeners.push((
            listener.address,
            Arc::new(SessionListener { session, ca, mode }),
        ));
    }
    Ok(listeners)
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
