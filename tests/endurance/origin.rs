//! The origin: an HTTPS server whose paths determine its behaviour, and a raw one beside it that
//! writes the bytes of a path.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

/// The secret that the gateway injects for this origin.
pub const SECRET: &str = "tok_7fQ2mX9cLr4Zk8WvB1nH6sYd3PjT5gAe0uRi";

/// What the origin saw.
#[derive(Default)]
pub struct Seen {
    /// Requests that did not carry the secret.
    pub without_secret: AtomicU64,
    pub requests: AtomicU64,
    pub connections: AtomicU64,
    pub open_connections: AtomicU64,
    /// Responses that were dropped before their end.
    pub abandoned: AtomicU64,
    /// Requests whose content ended with an error.
    pub broken_requests: AtomicU64,
    /// Bytes of requests' content.
    pub received: AtomicU64,
}

impl Seen {
    /// Waits until a count reaches a value, or two seconds are over.
    pub async fn reaches(&self, count: impl Fn(&Self) -> &AtomicU64, least: u64) -> bool {
        for _ in 0..200 {
            if count(self).load(Ordering::SeqCst) >= least {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }

    pub fn of(&self, count: impl Fn(&Self) -> &AtomicU64) -> u64 {
        count(self).load(Ordering::SeqCst)
    }
}

pub struct Origin {
    pub port: u16,
    pub raw_port: u16,
    /// The CA of its certificate, as PEM.
    pub authority: String,
    pub seen: Arc<Seen>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Drop for Origin {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}

impl Origin {
    /// Starts it on its own thread.
    pub fn start() -> Self {
        let (tls, authority) = certificate();
        let [http, raw] = [(); 2].map(|()| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        });
        let (port, raw_port) = (
            http.local_addr().unwrap().port(),
            raw.local_addr().unwrap().port(),
        );
        let seen = Arc::new(Seen::default());
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let theirs = seen.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let http = tokio::net::TcpListener::from_std(http).unwrap();
                let raw = tokio::net::TcpListener::from_std(raw).unwrap();
                tokio::select! {
                    () = accept(http, tls.clone(), theirs.clone()) => {}
                    () = accept_raw(raw, tls, theirs) => {}
                    _ = stopped => {}
                }
            });
        });
        Self {
            port,
            raw_port,
            authority,
            seen,
            stop: Some(stop),
        }
    }
}

fn certificate() -> (TlsAcceptor, String) {
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::new(vec![]).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = ca.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["*.origin.test".into()])
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (TlsAcceptor::from(Arc::new(config)), root.pem())
}

/// Counts up now and down when dropped.
struct Counted(Arc<Seen>, fn(&Seen) -> &AtomicU64);

impl Counted {
    fn new(seen: &Arc<Seen>, count: fn(&Seen) -> &AtomicU64) -> Self {
        count(seen).fetch_add(1, Ordering::SeqCst);
        Self(seen.clone(), count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1(&self.0).fetch_sub(1, Ordering::SeqCst);
    }
}

async fn accept(listener: tokio::net::TcpListener, tls: TlsAcceptor, seen: Arc<Seen>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (tls, seen) = (tls.clone(), seen.clone());
        tokio::spawn(async move {
            let _open = Counted::new(&seen, |seen| &seen.open_connections);
            seen.connections.fetch_add(1, Ordering::SeqCst);
            let Ok(stream) = tls.accept(stream).await else {
                return;
            };
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let service = service_fn(|request| {
                let seen = seen.clone();
                async move { Ok::<_, Infallible>(answer(request, seen).await) }
            });
            let stream = TokioIo::new(stream);
            // The tests check from the other side how a client's connection ends.
            let _ = if http2 {
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .max_concurrent_streams(256)
                    .initial_stream_window_size(1 << 20)
                    .initial_connection_window_size(256 << 20)
                    .serve_connection(stream, service)
                    .await
            } else {
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(stream, service)
                    .await
            };
        });
    }
}

type Answer = UnsyncBoxBody<Bytes, io::Error>;

/// `/bytes/N`, `/open/N` (undeclared length), `/cut/N` and `/cut-open/N` (breaks off after N),
/// `/trailers/N`, `/sink` (reads all), `/early` (413, reads nothing), `/stall` (never responds),
/// `/drip` (for ever, a little), `/pause/N` (N bytes, then nothing), `/wait/N` (after N ms).
async fn answer(request: Request<Incoming>, seen: Arc<Seen>) -> Response<Answer> {
    seen.requests.fetch_add(1, Ordering::SeqCst);
    let expected = format!("Bearer {SECRET}");
    if request
        .headers()
        .get("authorization")
        .is_none_or(|value| value.as_bytes() != expected.as_bytes())
    {
        seen.without_secret.fetch_add(1, Ordering::SeqCst);
    }
    let path = request.uri().path().to_owned();
    let mut parts = path.split('/').skip(1);
    let kind = parts.next().unwrap_or_default();
    let size: u64 = parts.next().and_then(|size| size.parse().ok()).unwrap_or(0);
    let filler = |told, after| {
        Response::new(
            Filler {
                left: size,
                told,
                after,
                rests: None,
                seen: seen.clone(),
            }
            .boxed_unsync(),
        )
    };
    match kind {
        "bytes" => filler(Some(size), After::End),
        "open" => filler(None, After::End),
        "cut" => filler(Some(size + 1), After::Error),
        "cut-open" => filler(None, After::Error),
        "trailers" => filler(None, After::Trailers),
        "pause" => filler(None, After::Nothing),
        "drip" => filler(None, After::Drip),
        "stall" => {
            let _gone = Gone(seen.clone());
            std::future::pending().await
        }
        "wait" => {
            tokio::time::sleep(Duration::from_millis(size)).await;
            text("ok")
        }
        "early" => {
            let mut response = text("too long");
            *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
            response
        }
        "sink" => {
            let mut content = request.into_body();
            let mut count = 0;
            while let Some(frame) = content.frame().await {
                match frame {
                    Ok(frame) => {
                        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                        count += length;
                        seen.received.fetch_add(length, Ordering::SeqCst);
                    }
                    Err(_) => {
                        seen.broken_requests.fetch_add(1, Ordering::SeqCst);
                        return text("broken");
                    }
                }
            }
            text(&count.to_string())
        }
        _ => text("ok"),
    }
}

/// Reports that an exchange was dropped before its response.
struct Gone(Arc<Seen>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.abandoned.fetch_add(1, Ordering::SeqCst);
    }
}

fn text(text: &str) -> Response<Answer> {
    Response::new(
        Full::new(Bytes::from(text.to_owned()))
            .map_err(|never: Infallible| match never {})
            .boxed_unsync(),
    )
}

enum After {
    End,
    Error,
    Trailers,
    Nothing,
    Drip,
}

/// Content that repeats one block, with the secret in the middle of each.
pub struct Filler {
    left: u64,
    told: Option<u64>,
    after: After,
    rests: Option<Pin<Box<tokio::time::Sleep>>>,
    seen: Arc<Seen>,
}

const BLOCK: usize = 64 << 10;

fn block() -> Bytes {
    static BLOCK_BYTES: std::sync::OnceLock<Bytes> = std::sync::OnceLock::new();
    BLOCK_BYTES
        .get_or_init(|| {
            let mut block = vec![b'.'; BLOCK];
            block[BLOCK / 2..BLOCK / 2 + SECRET.len()].copy_from_slice(SECRET.as_bytes());
            block.into()
        })
        .clone()
}

/// This many bytes from a client, without a secret.
pub fn upload(bytes: u64) -> crate::client::Content {
    struct Upload(u64);
    impl Body for Upload {
        type Data = Bytes;
        type Error = io::Error;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            if self.0 == 0 {
                return Poll::Ready(None);
            }
            let length = self.0.min(BLOCK as u64 / 4);
            self.0 -= length;
            Poll::Ready(Some(Ok(Frame::data(block().slice(..length as usize)))))
        }
        fn is_end_stream(&self) -> bool {
            self.0 == 0
        }
        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0)
        }
    }
    Upload(bytes).boxed_unsync()
}

/// Ten bytes from a client, and a little later an error.
pub fn broken_upload(seen: &Arc<Seen>) -> crate::client::Content {
    let content = Filler {
        left: 10,
        told: None,
        after: After::Error,
        rests: None,
        seen: seen.clone(),
    };
    content.boxed_unsync()
}

impl Body for Filler {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.left > 0 {
            let length = self.left.min(BLOCK as u64);
            self.left -= length;
            return Poll::Ready(Some(Ok(Frame::data(block().slice(..length as usize)))));
        }
        match self.after {
            After::End => Poll::Ready(None),
            After::Nothing => Poll::Pending,
            After::Error => {
                // By then everything before it is on its way.
                let rests = self.rests.get_or_insert_with(|| {
                    Box::pin(tokio::time::sleep(Duration::from_millis(100)))
                });
                std::task::ready!(rests.as_mut().poll(cx));
                Poll::Ready(Some(Err(io::Error::other("the origin breaks off"))))
            }
            After::Trailers => {
                self.after = After::End;
                let mut trailers = http::HeaderMap::new();
                trailers.insert("x-check", "whole".parse().unwrap());
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            After::Drip => {
                let rests = self
                    .rests
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_millis(20))));
                std::task::ready!(rests.as_mut().poll(cx));
                self.rests = None;
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"data: tick\n\n")))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && matches!(self.after, After::End)
    }

    fn size_hint(&self) -> SizeHint {
        self.told
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        if self.left > 0 || matches!(self.after, After::Nothing | After::Drip) {
            self.seen.abandoned.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn accept_raw(listener: tokio::net::TcpListener, tls: TlsAcceptor, seen: Arc<Seen>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let (tls, seen) = (tls.clone(), seen.clone());
        tokio::spawn(async move {
            if let Ok(stream) = tls.accept(stream).await {
                let _ = raw(stream, &seen).await;
            }
        });
    }
}

/// The answer to a request that becomes a WebSocket (RFC 6455 §4.2.2).
fn switched(head: &str) -> String {
    use base64::Engine as _;
    use sha1::Digest as _;
    let key = head
        .lines()
        .find_map(|line| {
            line.to_ascii_lowercase()
                .starts_with("sec-websocket-key:")
                .then(|| &line[18..])
        })
        .unwrap()
        .trim();
    let accept = sha1::Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
    let accept = base64::engine::general_purpose::STANDARD.encode(accept);
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\n\r\n"
    )
}

/// Answers one request in plain bytes.
async fn raw(
    mut stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
    seen: &Seen,
) -> io::Result<()> {
    let mut head = Vec::new();
    while memchr::memmem::find(&head, b"\r\n\r\n").is_none() {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head_end = memchr::memmem::find(&head, b"\r\n\r\n").unwrap_or_default() + 4;
    seen.requests.fetch_add(1, Ordering::SeqCst);
    seen.received
        .fetch_add((head.len() - head_end) as u64, Ordering::SeqCst);
    let head = String::from_utf8_lossy(&head).into_owned();
    match head.split(' ').nth(1).unwrap_or_default() {
        "/socket" => {
            stream.write_all(switched(&head).as_bytes()).await?;
            // It says nothing, and stays until the other side goes.
            while stream.read(&mut [0; 1024]).await? > 0 {}
            Ok(())
        }
        "/talk" => {
            stream.write_all(switched(&head).as_bytes()).await?;
            // Each masked text of one byte comes back as a text.
            let mut message = [0; 7];
            loop {
                stream.read_exact(&mut message).await?;
                let said = message[6] ^ message[2];
                stream.write_all(&[0x81, 1, said]).await?;
            }
        }
        "/until-close" => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\n\r\nall of it")
                .await?;
            stream.shutdown().await
        }
        "/until-cut" => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\n\r\nall of it")
                .await?;
            stream.flush().await?;
            // The connection ends below TLS, without a `close_notify`.
            stream.get_mut().0.shutdown().await
        }
        "/early-hints" => {
            let hints = b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n";
            stream.write_all(hints).await?;
            stream.flush().await?;
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
                .await?;
            stream.flush().await?;
            drained(stream).await
        }
        "/continue" => {
            tokio::time::sleep(Duration::from_millis(300)).await;
            // Whatever arrived before the 100 was not requested.
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            stream.flush().await?;
            let mut content = [0; 5];
            stream.read_exact(&mut content).await?;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\n{}",
                String::from_utf8_lossy(&content)
            );
            stream.write_all(answer.as_bytes()).await?;
            stream.flush().await?;
            drained(stream).await
        }
        "/refuse-content" => {
            stream
                .write_all(
                    b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                )
                .await?;
            stream.flush().await?;
            let mut rest = Vec::new();
            let _ = tokio::time::timeout(Duration::from_millis(500), stream.read_to_end(&mut rest))
                .await;
            seen.received.fetch_add(rest.len() as u64, Ordering::SeqCst);
            stream.shutdown().await
        }
        "/endless-head" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await?;
            loop {
                stream.write_all(&[b'a'; 4096]).await?;
            }
        }
        _ => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
                .await?;
            stream.flush().await?;
            drained(stream).await
        }
    }
}

async fn drained(mut stream: impl tokio::io::AsyncRead + Unpin) -> io::Result<()> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.map(drop)
}
