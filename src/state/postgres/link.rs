//! Connections to the server of the state: each is made when it is used, made anew when it breaks,
//! and checked before anything is kept there.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{AsyncMessage, Client, Socket};
use zeroize::Zeroizing;

use super::sql;
use crate::error::StateError;

/// Reads the password anew for each connection, so that it may change.
pub type Password =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Option<Zeroizing<Vec<u8>>>> + Send>> + Send + Sync>;

/// The address of a server that speaks PostgreSQL's protocol.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(tokio_postgres::Config);

impl PostgresUrl {
    /// Reads `postgres://USER@HOST[:PORT][,HOST…]/DATABASE`.
    ///
    /// # Errors
    /// Returns what is wrong with it, and what to write.
    pub fn parse(text: &str) -> Result<Self, (&'static str, &'static str)> {
        const EXAMPLE: &str = "write for example `postgres://gateway@db.example/gateway`";
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(("it is no URL of PostgreSQL", EXAMPLE));
        }
        let read = text.parse::<tokio_postgres::Config>();
        let mut config = read.map_err(|_| ("it is no URL that can be read", EXAMPLE))?;
        if config.get_password().is_some() {
            let next = "take it out, and write `password = \"file:/path\"` or another reference";
            return Err(("it holds a password", next));
        }
        if !config.get_hostaddrs().is_empty() {
            return Err(("it names an address beside its host", EXAMPLE));
        }
        if config.get_user().is_none() || config.get_hosts().is_empty() {
            return Err(("it names no user or no host", EXAMPLE));
        }
        let mut hosts = config.get_hosts().iter();
        let is_local = hosts.all(|host| matches!(host, Host::Unix(_)) || is_loopback(host));
        match config.get_ssl_mode() {
            SslMode::Disable if !is_local => {
                let next = "leave `sslmode` out: TLS is used, and the certificate verified";
                return Err(("it would be sent in clear text", next));
            }
            SslMode::Disable => {}
            _ => drop(config.ssl_mode(SslMode::Require)),
        }
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.connect_timeout(CONNECTED_WITHIN);
        config.application_name("gateway");
        Ok(Self(config))
    }

    /// Returns the hosts, for a person.
    pub fn shown(&self) -> String {
        let hosts = self.0.get_hosts().iter();
        let hosts = hosts.map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        });
        hosts.collect::<Vec<_>>().join(",")
    }

    /// Whether one of the hosts is at a port of this machine.
    pub fn is_at(&self, port: u16) -> bool {
        let ports = self.0.get_ports();
        let is_it = |at: usize| {
            let own = ports.get(at).or(ports.first()).copied().unwrap_or(5_432);
            is_loopback(&self.0.get_hosts()[at]) && own == port
        };
        (0..self.0.get_hosts().len()).any(is_it)
    }
}

impl std::fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Tcp(name) if name == "localhost" => true,
        Host::Tcp(name) => name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback()),
        Host::Unix(_) => false,
    }
}

/// How the server is reached.
#[derive(Clone)]
pub struct PostgresSettings {
    /// Its address.
    pub url: PostgresUrl,
    /// Its password, if it asks for one.
    pub password: Option<Password>,
    /// How its certificate is verified.
    pub tls: Arc<rustls::ClientConfig>,
}

/// What makes connections, on the runtime that it was made on.
#[derive(Clone)]
pub(super) struct Connector {
    settings: PostgresSettings,
    runtime: Handle,
    /// Told when the server notifies of a decision.
    woken: Arc<Notify>,
}

impl Connector {
    pub(super) fn new(settings: PostgresSettings, woken: Arc<Notify>) -> Self {
        Self {
            settings,
            runtime: Handle::current(),
            woken,
        }
    }

    /// Connects with settings of the session such as `LISTEN`. What it returns is served until the
    /// client is dropped.
    pub(super) async fn connect(&self, begin: &'static str) -> Result<Client, StateError> {
        let (settings, woken) = (self.settings.clone(), self.woken.clone());
        // A socket belongs to the runtime that made it, and callers may have others.
        let made = self.runtime.spawn(async move {
            let mut config = settings.url.0.clone();
            if let Some(password) = &settings.password {
                let secret = password().await;
                let why =
                    || StateError::Away("the password of `[state]` cannot be read".to_owned());
                config.password(&secret.ok_or_else(why)?[..]);
            }
            let tls = Tls(settings.tls.clone());
            let (client, mut connection) = config.connect(tls).await.map_err(away)?;
            tokio::spawn(async move {
                loop {
                    match poll_fn(|cx| connection.poll_message(cx)).await {
                        Some(Ok(AsyncMessage::Notification(_))) => woken.notify_one(),
                        Some(Ok(_)) => {}
                        Some(Err(_)) | None => return,
                    }
                }
            });
            client.batch_execute(sql::SESSION).await.map_err(away)?;
            client.batch_execute(begin).await.map_err(away)?;
            Ok(client)
        });
        let made = tokio::time::timeout(CONNECTED_WITHIN + ANSWERED_WITHIN, made).await;
        let late = |_| StateError::Away("it does not answer".to_owned());
        made.map_err(late)?.map_err(|_| StateError::Gone)?
    }

    /// Checks that the server keeps what it answers. Returns whether it has notices, and what a
    /// person should know.
    pub(super) async fn check(&self) -> Result<(bool, Vec<String>), StateError> {
        let client = self.connect("").await?;
        let mut told = Vec::new();
        let fact = async |sql: &str| -> Result<String, StateError> {
            let row = client.query_typed(sql, &[]).await.map_err(away)?;
            Ok(row.first().map_or_else(String::new, |row| row.get(0)))
        };
        let version = fact("SHOW server_version_num").await?;
        if version.parse::<u32>().is_ok_and(|version| version < OLDEST) {
            return Err(StateError::Unfitting("it is older than PostgreSQL 13"));
        }
        let commit = fact("SHOW synchronous_commit").await?;
        if commit == "off" {
            return Err(StateError::Unfitting(
                "`synchronous_commit` is off there: a decision that it answered may be lost",
            ));
        }
        if fact("SELECT pg_is_in_recovery()::text").await? == "true" {
            return Err(StateError::Unfitting(
                "it is in recovery, and takes no decision",
            ));
        }
        let theirs =
            fact("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint::text").await?;
        let ours = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let theirs = Duration::from_millis(theirs.parse().unwrap_or(0));
        if ours.abs_diff(theirs) > CLOCKS_WITHIN {
            return Err(StateError::Unfitting(
                "its clock and the one of this machine differ by more than 5 seconds",
            ));
        }
        if self.is_pooled(&client).await? {
            return Err(StateError::Unfitting(
                "a pooler stands before it that changes the connection between two statements",
            ));
        }
        let has_notices = client
            .batch_execute("LISTEN gateway; UNLISTEN gateway")
            .await
            .is_ok();
        if !has_notices {
            told.push("it has no LISTEN: decisions are looked for four times a second".to_owned());
        }
        // Where the server does not show its standbys, nothing is told.
        for row in client
            .query_typed(sql::ASYNCHRONOUS, &[])
            .await
            .unwrap_or_default()
        {
            let name: String = row.get(0);
            told.push(format!(
                "its standby `{name}` is asynchronous: once promoted, it may lack decisions that \
                 were answered; see `synchronous_standby_names`"
            ));
        }
        Ok((has_notices, told))
    }

    /// Whether two statements of one connection may run in two sessions of the server.
    async fn is_pooled(&self, one: &Client) -> Result<bool, StateError> {
        let other = self.connect("").await?;
        for _ in 0..POOLER_ROUNDS {
            one.batch_execute("SET gateway.probe = 'one'")
                .await
                .map_err(away)?;
            // A pooler gives this the session that the other connection has just left.
            other.batch_execute("BEGIN").await.map_err(away)?;
            let seen = one
                .query_typed("SELECT current_setting('gateway.probe', true)", &[])
                .await;
            let seen = seen
                .map_err(away)?
                .first()
                .and_then(|row| row.get::<_, Option<String>>(0));
            other.batch_execute("ROLLBACK").await.map_err(away)?;
            if seen.as_deref() != Some("one") {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A connection of one use at a time, or of statements that need no order.
pub(super) struct Line {
    connector: Connector,
    begin: &'static str,
    client: Mutex<Option<Arc<Client>>>,
    /// Held while the connection is made.
    making: tokio::sync::Mutex<()>,
}

impl Line {
    pub(super) fn new(connector: &Connector, begin: &'static str) -> Self {
        Self {
            connector: connector.clone(),
            begin,
            client: Mutex::default(),
            making: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the connection, which is made if it is not there.
    pub(super) async fn client(&self) -> Result<Arc<Client>, StateError> {
        let open = || {
            self.client
                .lock()
                .clone()
                .filter(|client| !client.is_closed())
        };
        if let Some(client) = open() {
            return Ok(client);
        }
        let _alone = self.making.lock().await;
        if let Some(client) = open() {
            return Ok(client);
        }
        let made = Arc::new(self.connector.connect(self.begin).await?);
        *self.client.lock() = Some(made.clone());
        Ok(made)
    }

    /// Gives the connection up, with what was begun on it.
    pub(super) fn give_up(&self) {
        *self.client.lock() = None;
    }

    /// Runs a statement or a few.
    pub(super) async fn run<T, F>(&self, of: impl FnOnce(Arc<Client>) -> F) -> Result<T, StateError>
    where
        F: Future<Output = Result<T, StateError>>,
    {
        self.run_many(1, of).await
    }

    /// Runs statements for so many rows. A connection that is late is given up.
    pub(super) async fn run_many<T, F>(
        &self,
        rows: usize,
        of: impl FnOnce(Arc<Client>) -> F,
    ) -> Result<T, StateError>
    where
        F: Future<Output = Result<T, StateError>>,
    {
        let client = self.client().await?;
        let more = EACH_WITHIN.saturating_mul(u32::try_from(rows).unwrap_or(u32::MAX));
        let whole = GiveUp(self, Some(client.clone()));
        let done = tokio::time::timeout(ANSWERED_WITHIN + more, of(client)).await;
        let late = |_| StateError::Away("it does not answer".to_owned());
        let done = done.map_err(late)?;
        whole.keep();
        done
    }
}

/// Gives a connection up unless its statements have ended: what was begun on it is undone, and no
/// later call goes on with it.
struct GiveUp<'l>(&'l Line, Option<Arc<Client>>);

impl GiveUp<'_> {
    fn keep(mut self) {
        self.1 = None;
    }
}

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        let mut held = self.0.client.lock();
        let is_it = |client: &Arc<Client>| {
            let own = self.1.as_ref();
            own.is_some_and(|own| Arc::ptr_eq(own, client))
        };
        if held.as_ref().is_some_and(is_it) {
            *held = None;
        }
    }
}

/// Turns an error of the server into one of the state, without its texts: they may hold rows.
pub(super) fn away(error: tokio_postgres::Error) -> StateError {
    let Some(code) = error.code() else {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        return StateError::Away(cause.to_string());
    };
    match code.code() {
        "40001" | "40P01" | "57P01" | "57P02" | "57P03" | "55P03" | "57014" | "25006" | "53300" => {
            StateError::Away(format!("the server answered SQLSTATE {}", code.code()))
        }
        "28P01" | "28000" => StateError::Unfitting("it refuses the user or the password"),
        "3D000" => StateError::Unfitting("it has no such database"),
        "42501" => StateError::Unfitting("the user may not use the tables of the gateway there"),
        other => StateError::Damaged(format!("the server answered SQLSTATE {other}")),
    }
}

/// TLS of the gateway's own library for the client of PostgreSQL.
#[derive(Clone)]
struct Tls(Arc<rustls::ClientConfig>);

struct TlsTo(Arc<rustls::ClientConfig>, ServerName<'static>);

struct Secured(tokio_rustls::client::TlsStream<Socket>);

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Secured;
    type TlsConnect = TlsTo;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<TlsTo, Self::Error> {
        // A Unix socket has no name, and no TLS.
        let name = if domain.is_empty() {
            "localhost"
        } else {
            domain
        };
        let name = ServerName::try_from(name)?.to_owned();
        Ok(TlsTo(self.0.clone(), name))
    }
}

impl TlsConnect<Socket> for TlsTo {
    type Stream = Secured;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Secured>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        let connector = tokio_rustls::TlsConnector::from(self.0);
        Box::pin(async move { Ok(Secured(connector.connect(self.1, stream).await?)) })
    }
}

impl TlsStream for Secured {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// The oldest server whose statements are known to work.
const OLDEST: u32 = 130_000;
const CONNECTED_WITHIN: Duration = Duration::from_secs(2);
/// How long the statements of one call may take. The server's own limit is shorter.
const ANSWERED_WITHIN: Duration = Duration::from_millis(2_500);
/// How much longer for each row of many.
const EACH_WITHIN: Duration = Duration::from_millis(5);
const CLOCKS_WITHIN: Duration = Duration::from_secs(5);
const POOLER_ROUNDS: usize = 3;
