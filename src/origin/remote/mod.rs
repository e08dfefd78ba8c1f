//! The connections of a sidecar to the `proxy` of a remote gateway: HTTP/2 streams opened by
//! CONNECT (RFC 9113 §8.5), on as few connections as have room for them.

mod tunnel;

use tunnel::Streams;
pub use tunnel::Tunnel;

use std::error::Error as StdError;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gateway_credential::{LoginUnavailable, UpstreamLogin};
use gateway_message::{Authority, Origin};
use gateway_names::ReasonCode;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{PingPong, Reason, RecvStream, SendStream};
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use rustls::pki_types::CertificateDer;
use socket2::SockRef;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::io::InspectReader;

use super::rule::{ClientIdentity, OriginSettings};
use super::stores::{StoreClient, StoreClientUnusable, StoreWay};
use super::tls::AlpnOffer;
use super::{Error, chain};

/// The `proxy` listener of a remote gateway.
pub struct RemoteProxy {
    client: StoreClient,
    login: Option<UpstreamLogin>,
    carriers: Mutex<TunnelConnections>,
    /// The permits for streams with a large window.
    large: Arc<Semaphore>,
}

/// The connections to the remote gateway.
#[derive(Default)]
struct TunnelConnections {
    all: Vec<TunnelConnection>,
    /// When the latest attempt to open one failed.
    failed: Option<Instant>,
}

/// A connection. It ends by itself once all its handles and streams are dropped.
struct TunnelConnection {
    requests: SendRequest<Bytes>,
    serving: JoinHandle<()>,
    /// Each stream has a clone.
    streams: Streams,
    heard: ReadCount,
    made: Instant,
}

/// Counts the reads of a connection.
#[derive(Clone, Default)]
struct ReadCount(Arc<AtomicU64>);

/// A request that was sent on a connection.
struct SentRequest {
    answer: ResponseFuture,
    content: SendStream<Bytes>,
    stream: Streams,
    heard: ReadCount,
}

/// Why a remote gateway opens no tunnel. Holds no text from the gateway, and no credential.
#[derive(Debug, thiserror::Error)]
pub enum RemoteRefused {
    /// The token to present cannot be read.
    #[error("the token cannot be read")]
    NoToken(#[source] LoginUnavailable),
    /// There is no connection, or the connection cannot be trusted.
    #[error("there is no way there: {}", of_gateway(.0))]
    Unreached(Error),
    /// Another attempt failed meanwhile.
    #[error("there is no way there now")]
    AsBefore,
    /// It does not respond, or not as a proxy does. A gateway that requires a certificate ends TLS.
    #[error("there is no answer of a proxy")]
    Unanswered(#[source] Box<dyn StdError + Send + Sync>),
    /// It requires authentication, and there is no token to present.
    #[error("it asks who this is (407), and nothing was presented")]
    Asks,
    /// It does not accept the token.
    #[error("it does not take the token (407): it is none of its own, was revoked, or has ended")]
    Token,
    /// It holds as many connections as its limits allow.
    #[error("it holds as many connections as it may")]
    Full,
    /// It refuses for another reason, which it may name.
    #[error("it refuses this caller ({status}{})", why(*.reason))]
    Refuses {
        /// The status of its response.
        status: u16,
        /// The reason in the response.
        reason: Option<ReasonCode>,
    },
}

impl RemoteProxy {
    /// Returns the proxy at an `https` origin. If there are `roots`, no others are trusted.
    ///
    /// # Errors
    /// [`StoreClientUnusable`] by cause.
    pub fn new(
        at: Origin,
        roots: Vec<CertificateDer<'static>>,
        identity: Option<ClientIdentity>,
        login: Option<UpstreamLogin>,
    ) -> Result<Self, StoreClientUnusable> {
        let servers = vec![at];
        let way = StoreWay::of(&OriginSettings::default(), &servers);
        let client = StoreClient::offering(AlpnOffer::Http2, servers, roots, (identity, way))?;
        Ok(Self {
            client,
            login,
            carriers: Mutex::default(),
            large: Arc::new(Semaphore::new(STREAMS as usize)),
        })
    }

    /// Opens a tunnel, and sends the bytes of `then` into it at once.
    ///
    /// # Errors
    /// [`RemoteRefused`] by cause, within seconds.
    pub async fn open(&self, to: &Authority, then: &[u8]) -> Result<Tunnel, RemoteRefused> {
        let to = to.to_string().parse::<Uri>().map_err(unanswered)?;
        let (answer, mut content, stream) = self.ask((Method::CONNECT, to)).await?;
        if !then.is_empty() {
            let then = Bytes::copy_from_slice(then);
            content.send_data(then, false).map_err(unanswered)?;
        }
        Ok(Tunnel::new(content, answer.into_body(), stream))
    }

    /// Requests a resource that every caller of a live session may read.
    ///
    /// # Errors
    /// [`RemoteRefused`] by cause, within seconds.
    pub async fn check(&self) -> Result<(), RemoteRefused> {
        let page = Uri::from_static("http://gateway.internal/ca.pem");
        self.ask((Method::GET, page)).await.map(drop)
    }

    /// Sends a request. A request without a response was not begun, so it is sent once more if the
    /// connection ends before the response.
    async fn ask(
        &self,
        what: (Method, Uri),
    ) -> Result<(Response<RecvStream>, SendStream<Bytes>, Streams), RemoteRefused> {
        let login = match &self.login {
            None => None,
            Some(login) => Some(login.field().await.map_err(RemoteRefused::NoToken)?),
        };
        let (mut failed, mut is_full) = (None, false);
        loop {
            let sent = self.send(&what, login.as_ref(), failed).await?;
            let answered = timeout(ANSWERS_AT_LAST, sent.heard.lives(ANSWERS, sent.answer)).await;
            match answered.flatten() {
                Ok(Ok(answer)) if answer.status().is_success() => {
                    return Ok((answer, sent.content, sent.stream));
                }
                Ok(Ok(answer)) => {
                    // The next connection authenticates anew.
                    self.carriers.lock().await.all.clear();
                    return Err(refused(&answer, login.is_some()));
                }
                // RFC 9113 §8.7. Another connection would have no more room.
                Ok(Err(error)) if error.reason() == Some(Reason::REFUSED_STREAM) => {
                    if std::mem::replace(&mut is_full, true) {
                        return Err(RemoteRefused::Full);
                    }
                }
                Ok(Err(_)) if failed.is_none() => failed = Some(Instant::now()),
                Ok(Err(error)) => return Err(unanswered(error)),
                Err(late) => {
                    self.carriers.lock().await.all.clear();
                    return Err(unanswered(late));
                }
            }
        }
    }

    /// Sends a request on a connection that has room, or on a new one; never on one that existed at
    /// the time of `failed`.
    async fn send(
        &self,
        (method, to): &(Method, Uri),
        login: Option<&HeaderValue>,
        failed: Option<Instant>,
    ) -> Result<SentRequest, RemoteRefused> {
        let mut request = Request::new(());
        *request.method_mut() = method.clone();
        *request.uri_mut() = to.clone();
        if let Some(login) = login {
            let fields = request.headers_mut();
            fields.insert(PROXY_AUTHORIZATION, login.clone());
        }
        let began = Instant::now();
        let mut carriers = self.carriers.lock().await;
        // Streams on the removed connections continue.
        carriers.all.retain(|one| {
            let is_good = failed.is_none_or(|failed| one.made > failed);
            is_good && !one.serving.is_finished() && one.made.elapsed() < AGE
        });
        while let Some(at) = carriers.all.iter().position(TunnelConnection::has_room) {
            let one = &carriers.all[at];
            match one.requests.clone().ready().await {
                Ok(requests) => return one.send(requests, request),
                // The gateway accepts no more streams on this connection.
                Err(_) => drop(carriers.all.remove(at)),
            }
        }
        if carriers.failed.is_some_and(|failed| failed > began) {
            return Err(RemoteRefused::AsBefore);
        }
        let made = self.carrier().await;
        carriers.failed = made.is_err().then(Instant::now);
        let one = made?;
        let requests = one.requests.clone().ready().await.map_err(unanswered)?;
        let sent = one.send(requests, request);
        carriers.all.push(one);
        sent
    }

    async fn carrier(&self) -> Result<TunnelConnection, RemoteRefused> {
        let stream = self.client.connect().await;
        let stream = stream.map_err(RemoteRefused::Unreached)?;
        let (tcp, tls) = stream.get_ref();
        if tls.alpn_protocol() != Some(b"h2") {
            return Err(unanswered("it does not speak HTTP/2"));
        }
        SockRef::from(tcp)
            .set_tcp_nodelay(true)
            .map_err(unanswered)?;
        let mut http2 = Builder::new();
        http2
            .initial_window_size(SMALL_WINDOW)
            .initial_connection_window_size(SMALL_WINDOW * STREAMS)
            .max_send_buffer_size(SEND_BUFFER)
            .max_frame_size(FRAME)
            .max_header_list_size(HEADER_LIST)
            .enable_push(false);
        let heard = ReadCount::default();
        let hears = heard.clone();
        let stream = InspectReader::new(stream, move |_: &[u8]| hears.hear());
        let shaken = timeout(ANSWERS, http2.handshake(stream)).await;
        let (requests, mut connection) = shaken.map_err(unanswered)?.map_err(unanswered)?;
        let pings = connection.ping_pong();
        let mut pings = pings.ok_or_else(|| unanswered("it is asked already"))?;
        // The gateway's settings arrive before the pong: how many streams it accepts.
        tokio::select! {
            ended = &mut connection => {
                ended.map_err(unanswered)?;
                return Err(unanswered("it ends the connection"));
            }
            answered = timeout(ANSWERS, pings.ping(h2::Ping::opaque())) => {
                answered.map_err(unanswered)?.map_err(unanswered)?;
            }
        }
        let streams = most_streams(&requests);
        let large = self.large.clone().try_acquire_many_owned(streams).ok();
        if large.is_some() {
            let resized = connection.set_initial_window_size(LARGE_WINDOW);
            resized.map_err(unanswered)?;
            connection.set_target_window_size(LARGE_WINDOW * streams);
        }
        let silence = silence(pings, heard.clone());
        let serving = tokio::spawn(async move {
            tokio::select! {
                _ = connection => {}
                () = silence => {}
            }
        });
        Ok(TunnelConnection {
            requests,
            serving,
            streams: Arc::new(large),
            heard,
            made: Instant::now(),
        })
    }
}

impl TunnelConnection {
    /// Whether the gateway accepts one more stream.
    fn has_room(&self) -> bool {
        Arc::strong_count(&self.streams) <= most_streams(&self.requests) as usize
    }

    fn send(
        &self,
        mut requests: SendRequest<Bytes>,
        request: Request<()>,
    ) -> Result<SentRequest, RemoteRefused> {
        let is_over = request.method() != Method::CONNECT;
        let sent = requests.send_request(request, is_over);
        let (answer, content) = sent.map_err(unanswered)?;
        Ok(SentRequest {
            answer,
            content,
            stream: self.streams.clone(),
            heard: self.heard.clone(),
        })
    }
}

/// The most streams of a connection, as the gateway's settings and the windows allow.
fn most_streams(requests: &SendRequest<Bytes>) -> u32 {
    u32::try_from(requests.current_max_send_streams()).map_or(STREAMS, |most| most.min(STREAMS))
}

impl ReadCount {
    fn hear(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for a reply of the gateway for as long as bytes arrive: the reply may be behind them.
    async fn lives<T>(
        &self,
        within: Duration,
        what: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let mut what = pin!(what);
        loop {
            let before = self.0.load(Ordering::Relaxed);
            match timeout(within, &mut what).await {
                Err(_) if self.0.load(Ordering::Relaxed) != before => {}
                ended => return ended,
            }
        }
    }
}

/// Waits until the gateway no longer answers pings.
async fn silence(mut pings: PingPong, heard: ReadCount) {
    loop {
        sleep(ASKED_EVERY).await;
        let answered = heard
            .lives(ANSWERS_AT_LAST, pings.ping(h2::Ping::opaque()))
            .await;
        if !matches!(answered, Ok(Ok(_))) {
            return;
        }
    }
}

fn refused<B>(answer: &Response<B>, is_shown: bool) -> RemoteRefused {
    match answer.status() {
        StatusCode::PROXY_AUTHENTICATION_REQUIRED if is_shown => RemoteRefused::Token,
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => RemoteRefused::Asks,
        status => RemoteRefused::Refuses {
            status: status.as_u16(),
            reason: reason_of(answer),
        },
    }
}

/// The reason that a gateway gives in `Proxy-Status` (RFC 9209).
fn reason_of<B>(answer: &Response<B>) -> Option<ReasonCode> {
    let told = answer.headers().get("proxy-status")?.to_str().ok()?;
    let (_, told) = told.split_once("details=\"")?;
    let (code, _) = told.split_once('"')?;
    ReasonCode::named(code)
}

fn why(reason: Option<ReasonCode>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

/// Describes a fault of the gateway, which is not an origin.
fn of_gateway(error: &Error) -> String {
    chain(error).replace("the origin", "the gateway")
}

fn unanswered(why: impl Into<Box<dyn StdError + Send + Sync>>) -> RemoteRefused {
    RemoteRefused::Unanswered(why.into())
}

/// How long a gateway may be silent before it responds.
const ANSWERS: Duration = Duration::from_secs(5);
/// How long a reply may take while bytes still flow in either direction.
const ANSWERS_AT_LAST: Duration = Duration::from_secs(30);
/// How long a connection accepts new streams: a certificate does not hold for ever.
const AGE: Duration = Duration::from_secs(3600);
/// The time between two pings of the gateway.
const ASKED_EVERY: Duration = Duration::from_secs(15);
/// The window of a stream whose client reads slowly: as large as that of a separate connection with
/// a round trip of 50 ms at 20 MB/s.
const LARGE_WINDOW: u32 = 1 << 20;
/// The number of streams with a large window, and the most of one connection. The window of a
/// connection holds those of all its streams, so no stream waits for one that is not read.
const STREAMS: u32 = 256;
/// The window of all other streams, which bounds the memory of thousands of them.
const SMALL_WINDOW: u32 = 64 << 10;
/// How many bytes of a stream wait to be written to the gateway.
const SEND_BUFFER: usize = 64 << 10;
/// The longest frame of content.
const FRAME: u32 = 64 << 10;
/// The longest head of a response.
const HEADER_LIST: u32 = 16 << 10;
