//! The control socket and ports of a running gateway: opens them, and carries out operators'
//! commands.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::StatusCode;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::listen::change::unseen;
use crate::listen::issuers;
use crate::process::serving;
use crate::project::{project, working_directory};
use crate::reload::source::ReloadOutcome;
use crate::reload::{COMPARED_WITHIN, generation};
use crate::{Advise as _, App, Code, Context as _, Failure, Terminal, safe};
use crate::{client_environment, notify};
use gateway_config::{Hint, HostPort, state};
use gateway_control::{
    Control, CreatedSession, FleetAnswer, GatewayInfo, MintRequest, MintedToken, Operations,
    PortTls, Proven, Reloaded, ReplicaView, RevocationHits, Unusable, bind_socket,
};
use gateway_files::SocketFile;
use gateway_grant::{AllowRequest, AllowResponse, ControlRefusal, ParsedHosts};
use gateway_names::{SecretLabel, SessionId};
use gateway_policy::Source;
use gateway_server::{ClientEnvironment, chain};
use gateway_session::{Creation, SessionStatus};
use gateway_token::PrefixId;

/// The channel for the outcome of each reload.
pub type TellReload = mpsc::UnboundedSender<Result<ReloadOutcome, Failure>>;

/// The control socket and the ports, served until this is dropped.
pub struct OpenControl {
    /// Removes the socket on drop.
    _socket: Option<SocketFile>,
    /// The thread ends when this is dropped.
    _stop: oneshot::Sender<Infallible>,
}

/// The control socket and the ports, not served yet. Callers wait.
pub struct BoundControl {
    kind: &'static str,
    socket: Option<SocketFile>,
    metrics: Option<TcpListener>,
    port: Option<TcpListener>,
}

/// Binds the control socket and the ports, and then applies all revocations. A revocation is
/// written before its command looks for sockets, so a gateway that binds first misses none.
///
/// Without a configured path, a gateway that cannot create a socket runs without one and logs the
/// reason.
///
/// # Errors
/// Returns a [`Failure`] if the configured socket or port cannot be opened, or if revocations
/// cannot be read. Must be called on the runtime that serves.
pub fn bind(app: &Arc<App>, kind: &'static str) -> Result<BoundControl, Failure> {
    let settings = &app.config.control;
    let bind = |address: Option<_>, key| address.map(|at| bind_port(at, key)).transpose();
    let metrics = bind(settings.metrics_address, "metrics_address")?;
    let port = bind(settings.address(), "address")?;
    let socket = match socket(kind, settings.path.clone()) {
        Ok(socket) => socket,
        Err(unusable) if settings.path.is_some() => return Err(unopened(&unusable)),
        Err(unusable) => {
            let cause = chain(&unusable);
            tracing::warn!(%cause, "there is no control socket");
            None
        }
    };
    app.revocations.obey(&app.shared)?;
    tokio::spawn(keep_obeying(app.clone()));
    tokio::spawn(app.clone().follow_fleet());
    let of = app.clone();
    tokio::spawn(async move { of.grants.end_grants(|| of.end_granted()).await });
    Ok(BoundControl {
        kind,
        socket,
        metrics,
        port,
    })
}

/// Changes the stored revocations, which may wait for the disk.
async fn kept<T: Send + 'static>(
    keep: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, ControlRefusal> {
    let unkept = "what is revoked cannot be kept";
    let unkept = |_| ControlRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, unkept);
    let kept = tokio::task::spawn_blocking(keep).await;
    kept.map_err(unkept)?.map_err(|failure| refused(&failure))
}

/// Applies revocations that no other process announces: this gateway may have no control socket.
async fn keep_obeying(app: Arc<App>) {
    let mut told = Vec::new();
    loop {
        tokio::time::sleep(OBEYS_EVERY).await;
        let app = app.clone();
        let obeyed = tokio::task::spawn_blocking(move || {
            app.revocations.obey(&app.shared)?;
            // A reload under way checks this itself.
            let latest = app.reloading.latest.try_lock();
            let config = latest.ok().map(|latest| latest.read.config.clone());
            let own = config.map(|config| app.revocations.own_uses(&config));
            own.transpose()
        });
        match obeyed.await {
            Ok(Ok(Some(own))) if own != told => {
                for (does, from) in &own {
                    tracing::error!(
                        "`{from}` is revoked, and this gateway goes on: it {does} with it; end it"
                    );
                }
                told = own;
            }
            Ok(Err(failure)) => tracing::warn!(%failure, "revocations cannot be followed"),
            _ => {}
        }
    }
}

impl BoundControl {
    /// Serves them on their own thread. `tell` receives the outcome of each reload by an operator,
    /// and `terminal` shows what waits for a person, where a command runs in one.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the policies for operators are refused, or no descriptor is left.
    /// Must be called on the runtime that serves.
    pub fn serve(
        self,
        app: &Arc<App>,
        tell: Option<TellReload>,
        terminal: Option<Terminal>,
    ) -> Result<OpenControl, Failure> {
        let permitted = generation::operators(app.config.control.policy.as_ref())?;
        app.operators.store(Arc::new(permitted));
        serve(app, self, (tell, terminal))
    }
}

fn serve(
    app: &Arc<App>,
    BoundControl {
        kind,
        socket,
        metrics,
        port,
    }: BoundControl,
    (tell, terminal): (Option<TellReload>, Option<Terminal>),
) -> Result<OpenControl, Failure> {
    let listener = socket.as_ref().map(SocketFile::listener).transpose();
    let listener = listener.context(NOT_SERVED)?;
    let about = GatewayInfo {
        kind,
        config: app
            .config
            .file
            .clone()
            .or_else(|| app.config.project.clone()),
        granted: app.config.granted.clone(),
        directory: std::env::current_dir().ok(),
        metrics_address: metrics.as_ref().and_then(|port| port.local_addr().ok()),
        control_address: port.as_ref().and_then(|port| port.local_addr().ok()),
        started: (SystemTime::now(), Instant::now()),
    };
    let operations = AppOperations {
        app: app.clone(),
        main: Handle::current(),
        tell,
    };
    let control = Control::new(about, app.shared.clone(), app.operators.clone(), operations);
    if let Some(notifier) = notify::notifier(&app.config, terminal, &control)? {
        let _ = app.shared.notify.set(notifier);
    }
    Ok(OpenControl {
        _socket: socket,
        _stop: start(
            control,
            listener,
            [(metrics, None), (port, app.control_tls.clone())],
        )?,
    })
}

fn bind_port(address: SocketAddr, key: &str) -> Result<TcpListener, Failure> {
    let bind = || {
        let port = TcpListener::bind(address)?;
        port.set_nonblocking(true)?;
        std::io::Result::Ok(port)
    };
    bind()
        .context(format!("cannot listen on {address}"))
        .advise(format!("choose another `[control] {key}`"))
}

fn socket(kind: &'static str, configured: Option<PathBuf>) -> Result<Option<SocketFile>, Unusable> {
    let name = format!("{kind}-{}.sock", std::process::id());
    let path = configured.or_else(|| state::run_directory().map(|folder| folder.join(name)));
    path.map(|path| bind_socket(&path)).transpose()
}

fn no_fleet() -> ControlRefusal {
    ControlRefusal::new(
        StatusCode::NOT_FOUND,
        "this gateway is no replica of a fleet",
    )
    .next("see `url` of [state]")
}

fn unopened(unusable: &Unusable) -> Failure {
    let next = match unusable {
        Unusable::Live(_) => "end that gateway, or name another `[control] path`",
        Unusable::Occupied(_) => "remove it, or name another `[control] path`",
        _ => "name a `[control] path` in a folder of your own, of mode 0700",
    };
    Failure::of("the control socket cannot be opened", unusable).next(next)
}

/// Starts the thread. It ends when the sender is dropped.
fn start(
    control: Arc<Control<AppOperations>>,
    socket: Option<UnixListener>,
    ports: [(Option<TcpListener>, Option<PortTls>); 2],
) -> Result<oneshot::Sender<Infallible>, Failure> {
    let runtime = serving::runtime()?;
    let (stop, stopped) = oneshot::channel();
    let serve = async move {
        let on_socket = async {
            if let Some(Ok(listener)) = socket.map(tokio::net::UnixListener::from_std) {
                gateway_control::serve(listener, control.clone()).await;
            }
        };
        let [metrics, operators] = ports.map(async |(port, tls)| {
            if let Some(Ok(listener)) = port.map(tokio::net::TcpListener::from_std) {
                gateway_control::serve_port(listener, control.clone(), tls).await;
            }
        });
        let serving = async {
            tokio::join!(on_socket, metrics, operators);
            // Webhooks answer a gateway that has neither.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = serving => {}
            _ = stopped => {}
        }
    };
    let run = move || {
        runtime.block_on(serve);
        // This does not wait for an operator's search of the log.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("gateway-control".to_owned());
    thread.spawn(run).context(NOT_SERVED)?;
    Ok(stop)
}

/// The program's part of operators' commands.
struct AppOperations {
    app: Arc<App>,
    /// The runtime that serves. Changes to the data path run there.
    main: Handle,
    tell: Option<TellReload>,
}

impl AppOperations {
    async fn on_main<T, F>(&self, run: impl FnOnce(Arc<App>) -> F) -> Result<T, ControlRefusal>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let done = self.main.spawn(run(self.app.clone())).await;
        let ended = ControlRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "the gateway ends");
        done.map_err(|_| ended)?
            .map_err(|failure| refused(&failure))
    }
}

impl Operations for AppOperations {
    async fn unready(&self) -> Option<(String, &'static str)> {
        if self.app.fleet().is_some_and(|fleet| fleet.left().is_none()) {
            let why = "the state of the fleet was not heard from for too long".to_owned();
            return Some((why, "see the server of `[state] url`"));
        }
        for open in self.app.listening.open() {
            if let Some(why) = issuers::without_keys(&open) {
                return Some((
                    why,
                    "see `keys` of the listener's `jwt`, and whether its issuer runs",
                ));
            }
            if let Some((_, why)) = unseen(&open.known).await {
                return Some((why, "see `tailnet_socket` of the listener"));
            }
        }
        None
    }

    async fn listeners(&self) -> Vec<(String, String)> {
        self.app.listeners()
    }

    fn environment(&self, session: &SessionId) -> Result<ClientEnvironment, ControlRefusal> {
        client_environment::of_session(&self.app, session).map_err(|failure| refused(&failure))
    }

    async fn reload(&self) -> Result<Reloaded, ControlRefusal> {
        let tell = self.tell.clone();
        let reload = |app: Arc<App>| async move {
            let outcome = app.reload().await;
            if let Some(tell) = tell {
                // Once the gateway drains, the receiver is gone.
                let _ = tell.send(outcome.clone());
            }
            outcome
        };
        let applied = self.on_main(reload).await?;
        Ok(Reloaded {
            generation: applied.generation,
            changes: applied.changes(),
        })
    }

    async fn keep_status(
        &self,
        session: &SessionId,
        status: SessionStatus,
    ) -> Result<Vec<Proven>, ControlRefusal> {
        let id = session.clone();
        let keep = |app: Arc<App>| async move { app.keep_status(&id, status).await };
        self.on_main(keep).await
    }

    async fn keep_revoked(&self, label: &SecretLabel) -> Result<RevocationHits, ControlRefusal> {
        let (app, of) = (self.app.clone(), label.clone());
        let hits = kept(move || {
            let hits = app.revocations.keep(&of, &app.shared)?;
            let config = app.reloading.latest.blocking_lock().read.config.clone();
            let own = app.revocations.own_uses(&config)?;
            Ok(RevocationHits { own, ..hits })
        })
        .await?;
        let fleet = match self.app.fleet() {
            Some(fleet) => fleet
                .revoke(label)
                .await
                .map_err(|failure| failure.why.unwrap_or(failure.what)),
            None => Ok(Vec::new()),
        };
        Ok(RevocationHits { fleet, ..hits })
    }

    async fn restore(&self, label: &SecretLabel) -> Result<Vec<SecretLabel>, ControlRefusal> {
        let (app, of) = (self.app.clone(), label.clone());
        let mut restored = match self.app.fleet() {
            Some(fleet) => fleet
                .restore(label)
                .await
                .map_err(|failure| refused(&failure))?,
            None => Vec::new(),
        };
        restored.extend(kept(move || app.revocations.restore(&of, &app.shared)).await?);
        restored.sort();
        restored.dedup();
        Ok(restored)
    }

    async fn mint(
        &self,
        session: &SessionId,
        asked: &MintRequest,
    ) -> Result<MintedToken, ControlRefusal> {
        let minted = self.app.mint_asked(session, asked);
        minted.map_err(|failure| refused(&failure))
    }

    async fn create(
        &self,
        id: &SessionId,
        creation: Creation,
    ) -> Result<CreatedSession, ControlRefusal> {
        let of = id.clone();
        let create = |app: Arc<App>| async move { app.create_session(&of, creation).await };
        self.on_main(create).await?.ok_or_else(|| {
            let what = format!("there is or was a session `{id}`");
            ControlRefusal::new(StatusCode::CONFLICT, what)
                .because("a name is used once, so that no token of another session fits")
                .next("choose another name or key, or none")
        })
    }

    async fn learn(&self, id: &SessionId) -> Result<(), ControlRefusal> {
        let id = id.clone();
        let learn = |app: Arc<App>| async move { app.learn_session(&id).await.map(drop) };
        self.on_main(learn).await
    }

    async fn extend(
        &self,
        id: &SessionId,
        asked: MintRequest,
    ) -> Result<(MintedToken, SystemTime), ControlRefusal> {
        let id = id.clone();
        let extend = |app: Arc<App>| async move { app.extend_session(&id, asked).await };
        self.on_main(extend).await
    }

    async fn keep_revoked_token(&self, id: PrefixId) -> Result<FleetAnswer, ControlRefusal> {
        let app = self.app.clone();
        kept(move || app.revocations.keep_token(id)).await?;
        Ok(match self.app.fleet() {
            Some(fleet) => fleet
                .revoke_token(id)
                .await
                .map_err(|failure| failure.why.unwrap_or(failure.what)),
            None => Ok(Vec::new()),
        })
    }

    async fn fleet(&self) -> Result<Vec<ReplicaView>, ControlRefusal> {
        let fleet = self.app.fleet().ok_or_else(no_fleet)?;
        fleet.replicas().await.map_err(|failure| refused(&failure))
    }

    async fn drain(&self, replica: &str) -> Result<(), ControlRefusal> {
        let fleet = self.app.fleet().ok_or_else(no_fleet)?;
        fleet
            .ask_to_drain(replica)
            .await
            .map_err(|failure| refused(&failure))
    }

    fn kept_within(&self) -> Duration {
        self.app
            .fleet()
            .map_or(KEPT_WITHIN, |fleet| fleet.proven_within())
    }

    async fn enter(&self, _session: &SessionId, socket: &Path) -> Result<(), ControlRefusal> {
        // A gateway with a sandbox has one session.
        let join_sender = self.app.join_sender.get().ok_or_else(|| {
            ControlRefusal::new(StatusCode::CONFLICT, "the session has no sandbox to enter")
                .because("it is one of `gateway serve`, or its command is not yet started")
        })?;
        join_sender.admit(socket).map_err(|error| {
            let what = "the sandbox cannot be entered";
            ControlRefusal::new(StatusCode::SERVICE_UNAVAILABLE, what).because(chain(&error))
        })
    }

    async fn rule(&self, asked: AllowRequest) -> Result<AllowResponse, ControlRefusal> {
        let app = self.app.clone();
        // A long log takes long to search.
        let find = move || {
            let rule = app.grants.rule(&asked, parse_host)?;
            let widens = widened(&app, &rule.policy);
            Ok(AllowResponse { widens, ..rule })
        };
        let found = tokio::task::spawn_blocking(find).await;
        found.map_err(|_| {
            let what = "the log cannot be searched";
            ControlRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, what)
        })?
    }

    async fn apply(&self, rule: AllowResponse) -> Result<AllowResponse, ControlRefusal> {
        let apply = |app: Arc<App>| async move {
            let of = granted_for(&app);
            let reload = |rule| async { Ok(app.reload_granting(Some(rule)).await?.generation) };
            app.grants.apply(rule, &of, reload).await
        };
        let applied = self.on_main(apply).await?;
        let app = self.app.clone();
        // A proposal stays waiting if its state cannot be determined.
        let _ = tokio::task::spawn_blocking(move || app.grants.settle()).await;
        Ok(applied)
    }
}

/// Returns what a rule would have permitted besides what it says itself.
fn widened(app: &App, rule: &str) -> Vec<String> {
    let mut sources = app.reloading.latest.blocking_lock().read.sources.clone();
    sources.push(Source::new("the rule", rule));
    let now = app.shared.current();
    let next = now
        .policies
        .next(&sources, (**now.policies.declared()).clone());
    // One that does not load is refused where it is applied.
    let told = next.map(|next| {
        let next = next.generation();
        next.widened(now.policies.generation(), COMPARED_WITHIN)
    });
    let mut told = told.unwrap_or_default();
    told.retain(|line| !line.starts_with("newly allowed"));
    told
}

/// Returns the folder or the configuration that the gateway's granted rules are for.
fn granted_for(app: &App) -> String {
    let config = app.config.file.as_deref();
    let is_kept = |folder: &PathBuf| state::granted_for(folder, config) == app.config.granted;
    let here = working_directory().ok().filter(is_kept);
    let of = config.map(Path::to_owned).or(here);
    let of = of.or_else(|| project().ok()).unwrap_or_default();
    of.display().to_string()
}

/// Parses the hosts and the port of a rule.
pub fn parse_host(text: &str) -> ParsedHosts {
    let refused = |hint: Hint| {
        let what = format!("`{}` cannot be allowed", safe(text));
        ControlRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, what)
            .because(hint.why)
            .next(hint.remedy)
    };
    let allowed = HostPort::parse(text).map_err(refused)?;
    Ok((allowed.host, allowed.port))
}

/// Turns a failure into a refusal.
fn refused(failure: &Failure) -> ControlRefusal {
    let status = match failure.code {
        Code::Usage => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mistakes = failure.mistakes.iter().map(ToString::to_string);
    let why: Vec<String> = mistakes.chain(failure.why.clone()).collect();
    ControlRefusal {
        status,
        what: failure.what.clone(),
        why: (!why.is_empty()).then(|| why.join("\n")),
        next: failure.next.clone(),
    }
}

/// How long a revocation, pause or end waits to be stored for the next start.
const KEPT_WITHIN: Duration = Duration::from_secs(5);
const OBEYS_EVERY: Duration = Duration::from_secs(1);
const NOT_SERVED: &str = "the control socket cannot be served";
