//! `gateway serve`: the data path behind listeners of the configuration, for any sandbox.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::assembly::Assembly;
use super::expand::{Expanded, unnamed_buckets};
use super::failure::{Code, Failure};
use super::flags::RunFlags;
use super::journal;
use super::screen::Screen;
use super::serving;
use crate::config::ListenerKind;
use crate::credential::Stores;
use crate::gateway::{Door, Doorway, Worker};
use crate::intercept::explicit::Authentication;
use crate::session::Session;

/// Serve the listeners of a configuration: an explicit proxy, or TLS by SNI, for any sandbox
#[derive(Args)]
pub struct Serve {
    #[command(flatten)]
    run: RunFlags,
}

impl Serve {
    /// Serves until it is told to end.
    ///
    /// # Errors
    /// A [`Failure`] where something cannot be set up; nothing is served then.
    pub fn run(self, screen: &mut Screen) -> Result<Code, Failure> {
        journal::start(tracing::Level::WARN);
        let config = self.run.config(&super::presets::known_variable)?;
        screen.warn(&config.warnings);
        if config.listeners.is_empty() {
            return Err(Failure::usage("there is nothing to listen on")
                .because("the configuration has no `[[listener]]`")
                .next("add one: kind = \"proxy\", address = \"127.0.0.1:8080\", session = \"agent-1\""));
        }
        let expanded = Expanded::of(&config, false)?;
        for stored in &expanded.stored {
            if let Some(which) = unnamed_buckets(stored) {
                screen.note(format!(
                    "gateway: `{}` signs for {which}",
                    stored.binding.credential
                ));
            }
        }
        let runtime = serving::runtime()?;
        serving::harden()?;
        let assembly = Arc::new(Assembly::new(config, expanded)?);
        let ended = runtime.block_on(async {
            let ended = serve(&assembly, screen, self.run.quiet).await;
            serving::close(&assembly.shared).await;
            ended
        });
        assembly.shared.tell_suppressed();
        ended
    }
}

async fn serve(assembly: &Arc<Assembly>, screen: &Screen, quiet: bool) -> Result<Code, Failure> {
    let doors = doors(assembly).await?;
    let threads = assembly.config.runtime.threads.get();
    let mut sockets = Vec::new();
    for _ in 0..threads {
        let mut one = Vec::new();
        for (address, door) in &doors {
            one.push((serving::bind(*address, threads > 1)?, door.clone()));
        }
        sockets.push(one);
    }
    let mine = sockets.pop().unwrap_or_default();
    let mut others = Vec::new();
    for theirs in sockets {
        others.push(thread(assembly, theirs)?);
    }
    let worker = serving::worker(&assembly.shared)?;
    let sessions = doors.iter().map(|(_, door)| door.session.clone());
    serving::tend(&assembly.shared, sessions.collect());
    for (socket, door) in mine {
        serving::serve(&worker, socket, door)?;
    }
    if !quiet {
        for (address, door) in &doors {
            screen.note(format!(
                "gateway: session `{}` on {address}",
                door.session.id()
            ));
        }
    }
    serving::settle();
    wait(assembly, &worker, &others, screen).await
}

/// Waits for a signal: SIGHUP reads the policies anew, SIGTERM and SIGINT end.
async fn wait(
    assembly: &Assembly,
    worker: &Worker,
    others: &[Arc<Worker>],
    screen: &Screen,
) -> Result<Code, Failure> {
    let unusable = |error: std::io::Error| {
        Failure::new("signals cannot be waited for").because(error.to_string())
    };
    let mut hangup = signal(SignalKind::hangup()).map_err(unusable)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(unusable)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unusable)?;
    loop {
        tokio::select! {
            _ = hangup.recv() => match assembly.reload() {
                Ok(generation) => {
                    worker.policy_changed();
                    others.iter().for_each(|worker| worker.policy_changed());
                    screen.note(format!("gateway: policies reloaded, generation {generation}"));
                }
                Err(failure) => screen.fail(&failure),
            },
            _ = terminate.recv() => return Ok(Code::Ok),
            _ = interrupt.recv() => return Ok(Code::Ok),
        }
    }
}

/// Starts a thread with a runtime, a worker and sockets of its own.
fn thread(
    assembly: &Arc<Assembly>,
    sockets: Vec<(std::net::TcpListener, Arc<Door>)>,
) -> Result<Arc<Worker>, Failure> {
    let (tell, told) = std::sync::mpsc::channel();
    let shared = assembly.shared.clone();
    let run = move || {
        let runtime = match serving::runtime() {
            Ok(runtime) => runtime,
            Err(failure) => return drop(tell.send(Err(failure))),
        };
        runtime.block_on(async move {
            let started = serving::worker(&shared).and_then(|worker| {
                sockets
                    .into_iter()
                    .try_for_each(|(socket, door)| serving::serve(&worker, socket, door))?;
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

/// A door for each listener; listeners of one session share its phantoms and its CA.
async fn doors(assembly: &Assembly) -> Result<Vec<(std::net::SocketAddr, Arc<Door>)>, Failure> {
    let mut doors: Vec<(std::net::SocketAddr, Arc<Door>)> = Vec::new();
    for listener in &assembly.config.listeners {
        let known = doors
            .iter()
            .find(|(_, door)| *door.session.id() == listener.session);
        let (session, ca) = match known {
            Some((_, door)) => (door.session.clone(), door.ca.clone()),
            None => {
                let (session, ca) = assembly.open(&listener.session, &listener.groups).await?;
                publish(assembly, &session, &ca.certificate_pem())?;
                (session, ca)
            }
        };
        let way = match &listener.kind {
            ListenerKind::Tls { port } => Doorway::Tls { port: *port },
            ListenerKind::Proxy {
                authentication: None,
            } => Doorway::Proxy(None),
            ListenerKind::Proxy {
                authentication: Some(asked),
            } => Doorway::Proxy(Some(Arc::new(authentication(asked).await?))),
        };
        doors.push((listener.address, Arc::new(Door { session, ca, way })));
    }
    Ok(doors)
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
fn publish(assembly: &Assembly, session: &Session, certificate: &str) -> Result<(), Failure> {
    if let Some(path) = assembly.config.ca.certificate_of(session.id()) {
        write(&path, certificate.as_bytes(), 0o644)?;
    }
    if let Some(path) = assembly.config.phantoms.file_of(session.id()) {
        let lines: String = session
            .bindings()
            .environment(&session.phantoms())
            .map(|(name, phantom)| super::env::quoted(name, phantom))
            .collect();
        write(&path, lines.as_bytes(), 0o600)?;
    }
    Ok(())
}

/// Replaces a file as a whole: a reader sees the old one or the new one.
fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), Failure> {
    let mut random = [0; 8];
    let mut beside = path.as_os_str().to_owned();
    let written = (|| {
        // A name of its own: what an earlier process of the same number left behind, as in a
        // container, is not in the way.
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
        // It may not be there; what it holds then is less than the failure says.
        let _ = std::fs::remove_file(&beside);
        Failure::new(format!("`{}` cannot be written", path.display())).because(error.to_string())
    })
}
