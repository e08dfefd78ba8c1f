//! Serves the control socket, the control port and the metrics port. Everything about a connection
//! is bounded, so that none can shut out others.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use gateway_intercept::{Caller, ClientStream, Evidence, ProxyTls, TlsRefused, enter};
use gateway_policy::{Operation, Operator, Operators};
use gateway_server::{SharedState, chain};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::operations::Operations;
use super::view::GatewayInfo;

/// What the control socket serves.
pub struct Control<O> {
    pub(super) about: GatewayInfo,
    pub(super) shared: Arc<SharedState>,
    pub(super) operators: Arc<ArcSwap<Operators>>,
    pub(super) operations: O,
    /// The permits for streams of records.
    pub(super) streams: Arc<Semaphore>,
    /// The permits for pages of metrics, so that some connections are left for health checks.
    pub(super) pages: Arc<Semaphore>,
    /// The permits for work that may wait for the log.
    pub(super) beside: Arc<Semaphore>,
}

/// The caller of the control API.
pub(super) enum Peer {
    /// A local user, as the kernel reports.
    User(u32),
    /// The holder of a client certificate, at the control port with this TLS.
    Certificate(Arc<Caller>, Arc<ControlPort>),
    /// A client of the metrics port.
    Anyone,
}

/// The TLS of the control port, which a reload replaces.
pub type PortTls = Arc<ArcSwap<ProxyTls>>;

/// The control port.
pub(super) struct ControlPort {
    /// Its TLS.
    pub(super) tls: PortTls,
    /// Why clients were refused: strangers have no share of the log.
    told: Mutex<BTreeSet<String>>,
}

impl ControlPort {
    /// Logs why a client was refused, if no other was refused so before.
    fn refused(&self, client: Option<SocketAddr>, cause: String) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MOST_TOLD && !told.contains(&cause) {
            tracing::warn!(?client, cause, "a call to the control port was refused");
            told.insert(cause);
        }
    }
}

impl Peer {
    /// Returns the operator that policies judge, for as long as its evidence holds.
    pub(super) fn operator(&self) -> Option<Operator<'_>> {
        match self {
            Self::Certificate(caller, _) if caller.is_over() => None,
            _ => self.named(),
        }
    }

    fn named(&self) -> Option<Operator<'_>> {
        match self {
            Self::User(uid) => Some(Operator::User(*uid)),
            Self::Certificate(caller, _) => caller.user.as_ref().map(Operator::Certificate),
            Self::Anyone => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.named() {
            Some(operator) => operator.fmt(f),
            None => f.write_str("port"),
        }
    }
}

impl<O: Operations> Control<O> {
    /// Serves this gateway to the operators that the current policies permit.
    pub fn new(
        about: GatewayInfo,
        shared: Arc<SharedState>,
        operators: Arc<ArcSwap<Operators>>,
        operations: O,
    ) -> Arc<Self> {
        Arc::new(Self {
            about,
            shared,
            operators,
            operations,
            streams: Arc::new(Semaphore::new(STREAMS)),
            pages: Arc::new(Semaphore::new(PAGES)),
            beside: Arc::new(Semaphore::new(BESIDE)),
        })
    }
}

/// Serves the socket until the future is dropped. Only this process's user and root may call.
pub async fn serve<O: Operations>(listener: UnixListener, control: Arc<Control<O>>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Some(stream) = accepted(listener.accept().await).await else {
            continue;
        };
        // Without a permit, the connection is closed at once.
        let Ok(place) = places.clone().try_acquire_owned() else {
            continue;
        };
        match stream.peer_cred().map(|peer| peer.uid()) {
            Ok(uid) if gateway_files::trusted(uid) => {
                let served = connection(stream, control.clone(), Peer::User(uid), Arc::default());
                tokio::spawn(async move {
                    let _place = place;
                    served.await;
                });
            }
            Ok(uid) => tracing::warn!(uid, "another user's call to the control socket was refused"),
            Err(error) => tracing::debug!(%error, "a caller of the control socket is unknown"),
        }
    }
}

/// Serves a port until the future is dropped. With `tls`, it serves what the socket does, to
/// holders of client certificates; without, metrics and health, and nothing else. Anyone may
/// connect there: when it is full, the oldest connection without a request is closed.
pub async fn serve_port<O: Operations>(
    listener: TcpListener,
    control: Arc<Control<O>>,
    tls: Option<PortTls>,
) {
    let port = tls.map(|tls| {
        let told = Mutex::default();
        Arc::new(ControlPort { tls, told })
    });
    let mut callers: Vec<PortCaller> = Vec::new();
    loop {
        let Some(stream) = accepted(listener.accept().await).await else {
            continue;
        };
        callers.retain(|caller| !caller.task.is_finished());
        if callers.len() >= CONNECTIONS {
            let silent = callers
                .iter()
                .position(|one| !one.asks.load(Ordering::Relaxed));
            match silent {
                Some(silent) => callers.remove(silent).task.abort(),
                None => continue,
            }
        }
        let asks = Arc::new(AtomicBool::new(false));
        let served = port_caller(stream, control.clone(), port.clone(), asks.clone());
        let task = tokio::spawn(served).abort_handle();
        callers.push(PortCaller { asks, task });
    }
}

/// A connection to a port.
struct PortCaller {
    /// Whether the head of its request has arrived.
    asks: Arc<AtomicBool>,
    task: AbortHandle,
}

/// Serves a connection to a port.
async fn port_caller<O: Operations>(
    stream: TcpStream,
    control: Arc<Control<O>>,
    port: Option<Arc<ControlPort>>,
    asks: Arc<AtomicBool>,
) {
    let Some(port) = port else {
        return connection(stream, control, Peer::Anyone, asks).await;
    };
    let client = stream.peer_addr().ok();
    let known = timeout(HEAD_WITHIN, by_certificate(stream, &port.tls)).await;
    match known.unwrap_or_else(|_| Err("it is too slow".to_owned())) {
        Ok((stream, caller)) => {
            connection(stream, control, Peer::Certificate(caller, port), asks).await;
        }
        Err(cause) => port.refused(client, cause),
    }
}

/// Does the handshake of the control port.
///
/// # Errors
/// Why the client is no operator.
async fn by_certificate(
    stream: TcpStream,
    tls: &PortTls,
) -> Result<(ClientStream, Arc<Caller>), String> {
    let entered = enter(ClientStream::Tcp(stream), tls).await;
    let stream = entered.map_err(|refused| match refused {
        TlsRefused::Http(_) | TlsRefused::Clear => "it speaks in clear text".to_owned(),
        TlsRefused::Certificate(cause) => cause.to_owned(),
        TlsRefused::Handshake(error) => chain(&error),
    })?;
    let caller = Evidence::first(&[Evidence::Certificate], &stream).await;
    let caller = caller.map_err(|refused| refused.cause)?;
    Ok((stream, caller))
}

/// Returns an accepted connection. After a failure, waits a little.
async fn accepted<S, A>(accepted: io::Result<(S, A)>) -> Option<S> {
    match accepted {
        Ok((stream, _)) => Some(stream),
        Err(error) => {
            tracing::debug!(%error, "a connection to the control socket was not accepted");
            tokio::time::sleep(ACCEPTS_AGAIN).await;
            None
        }
    }
}

/// Serves one request. `asks` is set when its head has arrived. A stream of records ends once its
/// reader may not read them any more.
async fn connection<O: Operations, S>(
    stream: S,
    control: Arc<Control<O>>,
    peer: Peer,
    asks: Arc<AtomicBool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (streams, peer) = (AtomicBool::new(false), &peer);
    let service = service_fn(|request: http::Request<Incoming>| {
        asks.store(true, Ordering::Relaxed);
        let answering = control.answer(request, peer);
        let streams = &streams;
        async move {
            let answer = answering.await;
            streams.store(answer.body().is_stream(), Ordering::Relaxed);
            Ok::<_, Infallible>(answer)
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .keep_alive(false)
        .max_headers(MOST_FIELDS)
        .max_buf_size(MOST_BUFFERED)
        .serve_connection(TokioIo::new(stream), service);
    let over = async {
        let began = Instant::now();
        let holds = || match peer.operator() {
            Some(operator) if streams.load(Ordering::Relaxed) => {
                let operators = control.operators.load();
                operators.permit(operator, Operation::AuditRead, None)
            }
            Some(_) => began.elapsed() < WHOLE_WITHIN,
            None => matches!(peer, Peer::Anyone) && began.elapsed() < WHOLE_WITHIN,
        };
        while holds() {
            sleep(LOOKS_EVERY).await;
        }
    };
    tokio::select! {
        ended = serving => if let Err(error) = ended {
            tracing::debug!(%error, "a call to the control socket ended");
        },
        () = over => tracing::debug!("a call to the control socket took too long, or its caller may do it no more"),
    }
}

/// How many connections are served at a time.
const CONNECTIONS: usize = 64;
/// How many of them may follow the records.
const STREAMS: usize = 16;
/// How many of them may read the metrics.
const PAGES: usize = 16;
/// How many calls may wait for the log at a time, on a thread each.
const BESIDE: usize = 16;
const ACCEPTS_AGAIN: Duration = Duration::from_millis(50);
/// How long a request's head may take.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How long a call may take, from its first byte to the end of its response. A stream has no end.
const WHOLE_WITHIN: Duration = Duration::from_secs(30);
/// How often it is checked that a call may go on.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// How many causes of refusals are logged.
const MOST_TOLD: usize = 64;
const MOST_FIELDS: usize = 32;
const MOST_BUFFERED: usize = 16 << 10;
