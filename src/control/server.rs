//! Serves the control socket and the metrics port. Everything about a connection is bounded, so
//! that none can shut out others.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use gateway_policy::Operators;
use gateway_server::SharedState;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// A local user, as the kernel reports.
    User(u32),
    /// A client of the metrics port.
    Port,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "uid:{uid}"),
            Self::Port => f.write_str("port"),
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

/// Serves the metrics port until the future is dropped: metrics and health, and nothing else.
/// Anyone may connect there: when it is full, the oldest connection without a request is closed.
pub async fn serve_metrics<O: Operations>(listener: TcpListener, control: Arc<Control<O>>) {
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
        let served = connection(stream, control.clone(), Peer::Port, asks.clone());
        let task = tokio::spawn(served).abort_handle();
        callers.push(PortCaller { asks, task });
    }
}

/// A connection to the metrics port.
struct PortCaller {
    /// Whether the head of its request has arrived.
    asks: Arc<AtomicBool>,
    task: AbortHandle,
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

/// Serves one request. `asks` is set when its head has arrived.
async fn connection<O: Operations, S>(
    stream: S,
    control: Arc<Control<O>>,
    peer: Peer,
    asks: Arc<AtomicBool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let streams = AtomicBool::new(false);
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
        tokio::time::sleep(WHOLE_WITHIN).await;
        if streams.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        ended = serving => if let Err(error) = ended {
            tracing::debug!(%error, "a call to the control socket ended");
        },
        () = over => tracing::debug!("a call to the control socket took too long"),
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
const MOST_FIELDS: usize = 32;
const MOST_BUFFERED: usize = 16 << 10;
