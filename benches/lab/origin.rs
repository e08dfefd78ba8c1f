//! The origin: it answers what it is asked only if the right credential came, and counts who dials.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer};
use rcgen::{KeyPair, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

/// What the origin wants to be shown.
pub const SECRET: &str = "REAL-SECRET-0123456789abcdef";
/// The length of one event of a model's stream.
pub const EVENT: usize = 160;
/// From one end of the long way to the other, and back.
pub const ROUND_TRIP: Duration = Duration::from_millis(40);
/// What a large answer has.
pub const LARGE: usize = 16 << 20;

static DIALLED: AtomicU64 = AtomicU64::new(0);
static DATA: LazyLock<Bytes> = LazyLock::new(|| vec![b'x'; LARGE].into());
/// How far the client of each call has read: the next event is sent when it has the one before, so
/// that every proxy relays as many pieces, however slow it is.
static READ: LazyLock<Mutex<HashMap<String, Arc<Semaphore>>>> = LazyLock::new(Mutex::default);

/// The permits for events of a call; the first needs none.
pub fn steps(call: &str) -> Arc<Semaphore> {
    let mut read = READ.lock().unwrap();
    let steps = read.entry(call.to_owned());
    steps.or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
}

/// Connections that the origin has accepted so far.
pub fn dialled() -> u64 {
    DIALLED.load(Ordering::SeqCst)
}

/// Keys and certificates as PEM: a CA's, and a leaf's for the origin and for peers without a CA.
pub struct Keys {
    pub ca: String,
    pub ca_key: String,
    pub leaf: String,
    pub leaf_key: String,
}

impl Keys {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::CommonName, "laboratory");
        let (ca, ca_key) = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let names = ["*.one.test", "*.two.test", "*.far.test", "localhost"];
        let mut params = CertificateParams::new(names.map(str::to_owned)).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let leaf = params.signed_by(&key, &issuer).unwrap().pem();
        let leaf_key = key.serialize_pem();
        Self {
            ca,
            ca_key,
            leaf,
            leaf_key,
        }
    }
}

/// Where the origin is: with HTTP/1.1 alone, with HTTP/2 too, and that behind the long way.
pub struct Origin {
    pub keys: Keys,
    pub one: SocketAddr,
    pub two: SocketAddr,
    pub far: SocketAddr,
}

impl Origin {
    /// Starts it in a thread of its own.
    pub fn start() -> Self {
        let keys = Keys::new();
        let bind = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            (listener.local_addr().unwrap(), listener)
        };
        let [(one, first), (two, second), (far, third)] = [bind(), bind(), bind()];
        let acceptor = |protocols: &[&str]| {
            let chain = vec![CertificateDer::from_pem_slice(keys.leaf.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(keys.leaf_key.as_bytes()).unwrap();
            let config = rustls::ServerConfig::builder().with_no_client_auth();
            let mut config = config.with_single_cert(chain, key).unwrap();
            config.alpn_protocols = protocols
                .iter()
                .map(|name| name.as_bytes().into())
                .collect();
            TlsAcceptor::from(Arc::new(config))
        };
        let (old, new) = (acceptor(&["http/1.1"]), acceptor(&["h2", "http/1.1"]));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async move {
                tokio::spawn(serve(first, old));
                tokio::spawn(long_way(third, two));
                serve(second, new).await;
            });
        });
        Self {
            keys,
            one,
            two,
            far,
        }
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        DIALLED.fetch_add(1, Ordering::SeqCst);
        stream.set_nodelay(true).unwrap();
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let (io, service) = (TokioIo::new(stream), service_fn(answer));
            // How a connection ends is its client's affair, who tells of it.
            if http2 {
                let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = serving.serve_connection(io, service).await;
            } else {
                let serving = hyper::server::conn::http1::Builder::new();
                let _ = serving.serve_connection(io, service).await;
            }
        });
    }
}

enum Content {
    Whole(Option<Bytes>),
    Events(mpsc::Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match &mut *self {
            Self::Whole(data) => data.take(),
            Self::Events(events) => std::task::ready!(events.poll_recv(cx)),
        };
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Content>, hyper::Error> {
    let (head, content) = request.into_parts();
    let content = content.collect().await?.to_bytes();
    let is_right = match head.uri.path() {
        "/token" => true,
        "/place" => memchr::memmem::find(&content, SECRET.as_bytes()).is_some(),
        _ => {
            let shown = head.headers.get("authorization");
            shown.is_some_and(|shown| shown.as_bytes() == format!("Bearer {SECRET}").as_bytes())
        }
    };
    let (answer, kind) = (Response::builder(), "application/json");
    if !is_right {
        return Ok(answer.status(401).body(Content::Whole(None)).unwrap());
    }
    let text = match (head.uri.path(), head.headers.get("x-lab-call")) {
        ("/token", _) => format!(
            r#"{{"access_token":"at-{0}{0}","refresh_token":"rt-{0}{0}","token_type":"Bearer","expires_in":3600}}"#,
            "0123456789abcdefGHIJ"
        )
        .into(),
        ("/large", _) => DATA.clone(),
        (path, Some(call)) => {
            let count = path.trim_start_matches("/chat/").parse().unwrap_or(1);
            let events = events(count, call.to_str().unwrap_or_default().to_owned());
            let answer = answer.header("content-type", "text/event-stream");
            return Ok(answer.body(Content::Events(events)).unwrap());
        }
        _ => Bytes::from(format!(r#"{{"ok":true,"pad":"{}"}}"#, "x".repeat(160))),
    };
    let answer = answer
        .header("content-type", kind)
        .header("content-length", text.len());
    Ok(answer.body(Content::Whole(Some(text))).unwrap())
}

fn events(count: usize, call: String) -> mpsc::Receiver<Bytes> {
    let (send, events) = mpsc::channel(1);
    tokio::spawn(async move {
        let steps = steps(&call);
        for at in 0..count {
            steps.acquire().await.unwrap().forget();
            let mut event = format!(r#"data: {{"choices":[{{"index":0,"delta":{{"content":"{at}"#);
            event.push_str(&" word".repeat(EVENT));
            event.truncate(EVENT - 7);
            if send.send(Bytes::from(event + "\"}}]}\n\n")).await.is_err() {
                break;
            }
        }
        READ.lock().unwrap().remove(&call);
    });
    events
}

/// Relays to an address, half of [`ROUND_TRIP`] later each way: not all kernels have netem.
async fn long_way(listener: TcpListener, to: SocketAddr) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    while let Ok((near, _)) = listener.accept().await {
        // A connection is there when its first packet has gone and come.
        let opened = Instant::now() + ROUND_TRIP;
        let Ok(far) = tokio::net::TcpStream::connect(to).await else {
            continue;
        };
        near.set_nodelay(true).unwrap();
        far.set_nodelay(true).unwrap();
        let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
        for (mut from, mut to) in [(from_near, to_far), (from_far, to_near)] {
            let (send, mut under_way) = mpsc::unbounded_channel::<(Instant, Bytes)>();
            tokio::spawn(async move {
                let mut data = bytes::BytesMut::new();
                while let Ok(1..) = from.read_buf(&mut data).await {
                    let due = Instant::now().max(opened) + ROUND_TRIP / 2;
                    let _ = send.send((due, data.split().freeze()));
                }
            });
            tokio::spawn(async move {
                while let Some((due, data)) = under_way.recv().await {
                    tokio::time::sleep_until(due).await;
                    if to.write_all(&data).await.is_err() {
                        break;
                    }
                }
            });
        }
    }
}
