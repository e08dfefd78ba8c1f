//! The data path of one sandbox, in its gateway process: the only process that reads secrets.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::kept_home::KeptHome;
use crate::listen::names;
use crate::listen::sandbox_ports::BoundPorts;
use crate::login::{login_files, run_logins};
use crate::process::serving;
use crate::process::signals::Signals;
use crate::reload::generation::EXEC;
use crate::reload::source::ReloadOutcome;
use crate::settings::seeds::Seed;
use crate::{App, Context as _, Failure, Terminal, control};
use gateway_config::state;
use gateway_intercept::nss;
use gateway_intercept::{SessionCa, serve_tcp, serve_udp};
use gateway_launch::enroll::{GatewayEnd, Listeners, Ready};
use gateway_launch::home_files::HomeFile;
use gateway_launch::repository::RepositoryCheck;
use gateway_launch::{FirstProcess, JoinSender};
use gateway_names::{SYSTEM_BUNDLES, SessionId};
use gateway_server::{ListenerMode, SessionListener, Worker, chain};
use gateway_session::Session;

/// Reports the outcome of a reload after a file changed. The terminal belongs to the command, so
/// only a refusal is shown.
pub fn tell(outcome: Result<ReloadOutcome, Failure>) {
    match outcome {
        Ok(applied) => tracing::info!("{applied}"),
        Err(failure) => tracing::error!("{failure}"),
    }
}

/// Serves the sandbox. Returns a handle of its first process, and the guards of what serves it.
pub async fn start(
    gateway: &GatewayEnd,
    app: &Arc<App>,
    check: &mut Option<RepositoryCheck>,
    terminal: Option<&Terminal>,
) -> Result<(FirstProcess, Arc<Worker>, control::OpenControl), Failure> {
    let id = SessionId::new(EXEC).map_err(|error| Failure::new(error.to_string()))?;
    // This precedes the issue of phantoms, which may renew a login.
    app.revocations.begin(&app.shared, &app.config)?;
    let (session, ca) = app.open(&id, &app.config.groups).await?;
    let latest = app.reloading.latest.lock().await;
    let logins = &latest.read.resolved.logins;
    let mut files = login_files::of(logins, &session.phantoms())?;
    let is_logged_in = logins.iter().any(run_logins::is_there);
    drop(latest);
    if let Some(kept) = &app.kept_home {
        kept.begin(&phantoms(app), &files, None)?;
    }
    // Kept files outlive the run, as the agent's own.
    files.extend(seeds(app, is_logged_in));
    let ports = BoundPorts::bind(&app.config.sandbox)?;
    let worker = serving::worker(&app.shared)?;
    serving::tend(&app.shared);
    let ready = ready(app, (&session, &ca), files);
    // The launcher needs longer to create the sandbox than the setup so far, so wait for it only
    // now.
    let (hello, mut listeners) = gateway.hello().context("the launcher went")?;
    let first = FirstProcess::of(hello.pid).context("the sandbox went")?;
    ports.serve(&worker, &session, &hello, &mut listeners)?;
    serve_network(app, &worker, &session, &ca, listeners)?;
    let signs = app.commits.serve(&app.shared, &session);
    signs.context("the agent that signs commits cannot be served")?;
    // Exports start before anything can reload.
    app.exports.start(&app.shared, &app.config, false)?;
    let control = control::bind(app, "exec")?.serve(app, None, terminal.copied())?;
    *check = RepositoryCheck::adopt(std::io::stdout());
    if let Some(check) = check {
        let sandbox = FirstProcess::of(hello.pid).context("the sandbox went")?;
        check
            .begin(move || sandbox.kill())
            .context("the projects cannot be watched")?;
    }
    let went = |error| Failure::new("the launcher went").because(chain(&error));
    gateway.ready(&ready).map_err(went)?;
    // Not earlier: the launcher takes the first message for the answer.
    let _ = app.join_sender.set(JoinSender::of(gateway).map_err(went)?);
    Ok((first, worker, control))
}

/// Returns the settings that the agent's ready screen needs, unless it has the user's own folder.
fn seeds(app: &App, is_logged_in: bool) -> Vec<HomeFile> {
    let source = app.reloading.source.get();
    let profile = source.and_then(|source| source.profile.as_ref());
    let (Some(profile), Some(home)) = (profile, state::home()) else {
        return Vec::new();
    };
    let kept = app.kept_home.as_ref().map(KeptHome::folder);
    let is_own = |seed: &&Seed| match seed.file.parent() {
        Some(folder) if app.kept_home.is_some() => kept.is_some_and(|at| at.join(folder).exists()),
        _ => app.config.sandbox.see_home.is_empty(),
    };
    let seeds = profile.seeds.iter().filter(is_own);
    let planted = |seed: &Seed| seed.planted(kept, &home, is_logged_in);
    seeds.filter_map(planted).collect()
}

/// Serves the sandbox's TCP and DNS sockets.
fn serve_network(
    app: &App,
    worker: &Arc<Worker>,
    session: &Arc<Session>,
    ca: &Arc<SessionCa>,
    listeners: Listeners,
) -> Result<(), Failure> {
    let unusable = |error: std::io::Error| {
        Failure::new("a socket of the sandbox cannot be used").because(error.to_string())
    };
    let responder = names::responder(&app.shared, app.config.sandbox.dns, session.id());
    let names = responder.clone();
    let mode = ListenerMode::Transparent {
        names: Arc::new(move |_| names.clone()),
        own_port: None,
    };
    let live = (session.clone(), ca.clone());
    let listener = SessionListener::new(&app.shared, live, mode);
    let tcp = nonblocking(listeners.tcp).map_err(unusable)?;
    serving::serve(&app.shared, worker, tcp, listener)?;
    let questions = nonblocking(listeners.dns_tcp)
        .and_then(tokio::net::TcpListener::from_std)
        .map_err(unusable)?;
    tokio::spawn(serve_tcp(questions, responder.clone()));
    let questions = std::net::UdpSocket::from(listeners.dns_udp);
    questions.set_nonblocking(true).map_err(unusable)?;
    tokio::spawn(serve_udp(questions, responder));
    Ok(())
}

/// Returns the phantoms of every session here.
pub fn phantoms(app: &App) -> Vec<String> {
    let sessions = app.shared.sessions.all();
    let issued = sessions.iter().flat_map(|session| {
        let held = session.phantoms();
        let all = held.all().iter();
        all.map(|phantom| phantom.reveal().to_owned())
            .collect::<Vec<_>>()
    });
    issued.collect()
}

/// Returns what the sandbox receives: its CA, its phantoms, and files with phantoms.
fn ready(app: &App, (session, ca): (&Session, &SessionCa), files: Vec<HomeFile>) -> Ready {
    let phantoms = session.phantoms();
    let snapshot = app.shared.current();
    let environment = snapshot.credentials.bindings().environment(&phantoms);
    let pem = ca.certificate_pem();
    Ready {
        ca_bundle_pem: bundle(&pem),
        ca_nss: nss::database(&pem).unwrap_or_else(|error| {
            tracing::warn!(
                error = chain(&error),
                "browsers will not trust the session's CA"
            );
            Vec::new()
        }),
        ca_pem: pem.into_bytes(),
        set: environment
            .map(|(name, phantom)| (name.to_owned(), phantom.to_owned()))
            .collect(),
        unset: Vec::new(),
        files,
    }
}

fn nonblocking(socket: OwnedFd) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns the system's bundle with the session's CA added. Clients that use it instead of their
/// own list lose nothing.
fn bundle(ca: &str) -> Vec<u8> {
    let mut bundle = SYSTEM_BUNDLES
        .iter()
        .find_map(|path| std::fs::read(path).ok())
        .unwrap_or_default();
    if !bundle.ends_with(b"\n") {
        bundle.push(b'\n');
    }
    bundle.extend_from_slice(ca.as_bytes());
    bundle
}

/// Lives until no process of the sandbox is left. SIGHUP reloads; all other signals are ignored by
/// this process, because the launcher passes them on to the command.
pub async fn live(
    first: FirstProcess,
    app: &Arc<App>,
    terminal: Option<&Terminal>,
) -> Result<(), Failure> {
    let mut signals = Signals::catch()?;
    // It ends with the launcher.
    #[expect(deprecated, reason = "unsound for what does not own its number alone")]
    let first = AsyncFd::with_interest(first.event(), Interest::READABLE);
    let first = first.context("the sandbox cannot be waited for")?;
    let reloads = async {
        loop {
            signals.reload().await;
            match (app.reload().await, terminal) {
                (Err(failure), Some(terminal)) => terminal.fail(&failure),
                (outcome, _) => tell(outcome),
            }
        }
    };
    tokio::select! {
        _ = first.readable() => Ok(()),
        () = reloads => Ok(()),
    }
}
