//! `gateway serve`: runs the data path behind the configured listeners, for any sandbox.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::app::App;
use super::failure::{Code, Failure};
use super::flags::RunFlags;
use super::keeping::Keeping;
use super::logging;
use super::resolve::ResolvedConfig;
use super::serving;
use super::terminal::Terminal;
use crate::config::ListenerKind;
use crate::credential::{Stores, unexpected_reach};
use crate::gateway::{ListenerMode, SessionListener, Worker};
use crate::intercept::explicit::Authentication;
use crate::session::Session;

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
        let app = Arc::new(App::new(config, resolved)?.keeping(Keeping::Listeners));
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
    let mut others = Vec::new();
    for theirs in sockets {
        others.push(thread(app, theirs)?);
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
    wait(app, &worker, &others, terminal).await
}

/// Waits for a signal: SIGHUP reloads the policies, SIGTERM and SIGINT end the program.
async fn wait(
    app: &App,
    worker: &Worker,
    others: &[Arc<Worker>],
    terminal: &Terminal,
) -> Result<Code, Failure> {
    let unusable = |error: std::io::Error| {
        Failure::new("signals cannot be waited for").because(error.to_string())
    };
    let mut hangup = signal(SignalKind::hangup()).map_err(unusable)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(unusable)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unusable)?;
    loop {
        tokio::select! {
            _ = hangup.recv() => match app.reload() {
                Ok(generation) => {
                    worker.policy_changed();
                    others.iter().for_each(|worker| worker.policy_changed());
                    terminal.note(format!("gateway: policies reloaded, generation {generation}"));
                }
                Err(failure) => terminal.fail(&failure),
            },
            _ = terminate.recv() => return Ok(Code::Ok),
            _ = interrupt.recv() => return Ok(Code::Ok),
        }
    }
}

/// Starts a thread with its own runtime, worker and sockets.
fn thread(
    app: &Arc<App>,
    sockets: Vec<(std::net::TcpListener, Arc<SessionListener>)>,
) -> Result<Arc<Worker>, Failure> {
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
                    .try_for_each(|(socket, listener)| serving::serve(&worker, socket, listener))?;
                Ok(worker)
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
                publish(app, &session, &ca.certificate_pem())?;
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

/// Writes what the workload needs: the CA's certificate, and its phantoms.
fn publish(app: &App, session: &Session, certificate: &str) -> Result<(), Failure> {
    if let Some(path) = app.config.ca.certificate_of(session.id()) {
        write(&path, certificate.as_bytes(), 0o644)?;
    }
    if let Some(path) = app.config.phantoms.file_of(session.id()) {
        let lines: String = session
            .bindings()
            .environment(&session.phantoms())
            .map(|(name, phantom)| super::env::quoted(name, phantom))
            .collect();
        write(&path, lines.as_bytes(), 0o600)?;
    }
    Ok(())
}

/// Replaces a file atomically: a reader sees either the old one or the new one.
fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), Failure> {
    let mut random = [0; 8];
    let mut beside = path.as_os_str().to_owned();
    let written = (|| {
        // A random name, so that a leftover of an earlier process with the same number is not in
        // the way. In a container, process numbers repeat.
        getrandom::fill(&mut random).map_err(|error| std::io::Error::other(error.to_string()))?;
        beside.push(format!(".{:016x}", u64::from_le_bytes(random)));
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&beside)?;
        file.write_all(content)?;
        std::fs::rename(&beside, path)
    })();
    written.map_err(|error: std::io::Error| {
        // The file may not exist. The failure below says more than an error here would.
        let _ = std::fs::remove_file(&beside);
        Failure::new(format!("`{}` cannot be written", path.display())).because(error.to_string())
    })
}
