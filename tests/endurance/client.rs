//! The workload: it trusts the gateway's CA, has a phantom, and speaks HTTP/1.1 or HTTP/2.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::origin::SECRET;
use crate::program::Program;

/// Content of a request.
pub type Content = UnsyncBoxBody<Bytes, std::io::Error>;

#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    /// Whether the address is a proxy's, and not one for TLS.
    proxied: bool,
    roots: Arc<RootCertStore>,
    phantom: String,
}

impl Client {
    /// A client that trusts what this gateway wrote for it.
    pub fn of(gateway: &Program) -> Self {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(gateway.folder.join("ca.pem")).unwrap();
        roots.add(authority).unwrap();
        Self {
            address: gateway.address,
            proxied: false,
            roots: Arc::new(roots),
            phantom: gateway.phantom.clone(),
        }
    }

    /// A client of another session, whose files have its name.
    pub fn of_session(gateway: &Program, session: &str, address: SocketAddr) -> Self {
        let file = |name: &str| gateway.folder.join(name.replace("SESSION", session));
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(file("ca-SESSION.pem")).unwrap();
        roots.add(authority).unwrap();
        let held = std::fs::read_to_string(file("phantoms-SESSION.env")).unwrap();
        let phantom = held.lines().find_map(|line| line.strip_prefix("TOKEN="));
        Self {
            address,
            proxied: false,
            roots: Arc::new(roots),
            phantom: phantom.unwrap().to_owned(),
        }
    }

    /// The same through the explicit proxy.
    pub fn proxied(mut self, gateway: &Program) -> Self {
        self.address = gateway.proxy;
        self.proxied = true;
        self
    }

    /// The same at another listener for TLS.
    pub fn at(self, address: SocketAddr) -> Self {
        Self { address, ..self }
    }

    /// TLS to a host through the gateway; nothing is resumed.
    pub async fn tls(&self, host: &str, protocol: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        self.over(stream, host, protocol).await
    }

    /// The same on a connection to the gateway that exists.
    pub async fn over(
        &self,
        mut stream: TcpStream,
        host: &str,
        protocol: &[u8],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        stream.set_nodelay(true)?;
        if self.proxied {
            let asks = format!("CONNECT {host}:443 HTTP/1.1\r\nhost: {host}:443\r\n\r\n");
            stream.write_all(asks.as_bytes()).await?;
            let mut answer = [0; 19];
            stream.read_exact(&mut answer).await?;
            assert_eq!(&answer, b"HTTP/1.1 200 OK\r\n\r\n");
        }
        self.tls_over(stream, host, protocol).await
    }

    /// A connection to the gateway, before a byte is sent.
    pub async fn connect(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(self.address).await
    }

    async fn tls_over<IO: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: IO,
        host: &str,
        protocol: &[u8],
    ) -> std::io::Result<TlsStream<IO>> {
        let mut config = ClientConfig::builder()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }

    /// A connection that speaks HTTP/1.1.
    pub async fn http1(&self, host: &str) -> http1::SendRequest<Content> {
        self.try_http1(host).await.unwrap()
    }

    /// The same, when there may be no gateway.
    pub async fn try_http1(&self, host: &str) -> std::io::Result<http1::SendRequest<Content>> {
        let stream = self.tls(host, b"http/1.1").await?;
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// HTTP/2 with hyper's own windows, when there may be no gateway.
    pub async fn try_http2(&self, host: &str) -> std::io::Result<http2::SendRequest<Content>> {
        let stream = self.tls(host, b"h2").await?;
        let opened = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// An HTTP/2 connection, with flow-control windows of this many bytes for a stream and the
    /// connection.
    pub async fn http2(
        &self,
        host: &str,
        stream: u32,
        connection: u32,
    ) -> http2::SendRequest<Content> {
        self.http2_late(host, stream, connection, Duration::ZERO)
            .await
    }

    /// The same, but for a while it reads nothing after the first 16 KiB.
    pub async fn http2_late(
        &self,
        host: &str,
        stream: u32,
        connection: u32,
        late: Duration,
    ) -> http2::SendRequest<Content> {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let late = Late {
            io: tcp,
            read: 0,
            wait: Box::pin(tokio::time::sleep(late)),
        };
        let tls = self.tls_over(late, host, b"h2").await.unwrap();
        let (sender, serving) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(stream)
            .initial_connection_window_size(connection)
            .handshake(TokioIo::new(tls))
            .await
            .unwrap();
        tokio::spawn(serving);
        sender
    }

    /// A request with the phantom in place of the secret.
    pub fn request(
        &self,
        method: Method,
        host: &str,
        path: &str,
        content: Content,
    ) -> Request<Content> {
        Request::builder()
            .method(method)
            .uri(format!("https://{host}{path}"))
            .header("host", host)
            .header("authorization", format!("Bearer {}", self.phantom))
            .body(content)
            .unwrap()
    }

    /// The same in the form of HTTP/1.1 to an origin.
    pub fn request1(
        &self,
        method: Method,
        host: &str,
        path: &str,
        content: Content,
    ) -> Request<Content> {
        let mut request = self.request(method, host, path, content);
        *request.uri_mut() = path.parse().unwrap();
        request
    }

    /// A head in plain bytes, with further lines.
    pub fn head(&self, method: &str, host: &str, path: &str, lines: &str) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\n{lines}\r\n",
            self.phantom
        )
    }

    /// How often the phantom appears in the bytes.
    pub fn count(&self, bytes: &[u8]) -> u64 {
        memchr::memmem::find_iter(bytes, self.phantom.as_bytes()).count() as u64
    }
}

/// No content.
pub fn none() -> Content {
    Empty::new()
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// The content of a response as read.
#[derive(Debug, Default)]
pub struct Read {
    pub bytes: u64,
    pub frames: u64,
    /// Reflections that came back as the phantom.
    pub phantoms: u64,
    /// It ended properly; otherwise with an error.
    pub whole: bool,
    pub trailers: Option<http::HeaderMap>,
}

/// Reads a response's content to its end; it must never contain the secret.
pub async fn read(client: &Client, response: Response<Incoming>) -> Read {
    let mut content = response.into_body();
    let secret = memchr::memmem::Finder::new(SECRET);
    let mut read = Read::default();
    // The end of the previous bytes, so that nothing hides where frames are cut.
    let mut seam = Vec::new();
    loop {
        match content.frame().await {
            None => {
                read.whole = true;
                return read;
            }
            Some(Err(_)) => return read,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    read.frames += 1;
                    read.bytes += data.len() as u64;
                    // Together with the rest of the previous bytes, this frame is too short to
                    // contain a whole one by itself.
                    seam.extend_from_slice(&data[..data.len().min(SECRET.len() - 1)]);
                    assert!(
                        secret.find(&data).is_none() && secret.find(&seam).is_none(),
                        "the secret came back"
                    );
                    read.phantoms += client.count(&data) + client.count(&seam);
                    if data.len() >= SECRET.len() {
                        seam = data.to_vec();
                    }
                    seam.drain(..seam.len().saturating_sub(SECRET.len() - 1));
                }
                Err(frame) => read.trailers = frame.into_trailers().ok(),
            },
        }
    }
}

/// Reads too little from the wire for anything but the handshake, until its time has come.
struct Late {
    io: TcpStream,
    read: usize,
    wait: Pin<Box<tokio::time::Sleep>>,
}

const BEFORE_THE_WAIT: usize = 16 << 10;

impl AsyncRead for Late {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.read > BEFORE_THE_WAIT && self.wait.deadline() > Instant::now() {
            std::task::ready!(self.wait.as_mut().poll(cx));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        self.read += buf.filled().len() - before;
        polled
    }
}

impl AsyncWrite for Late {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
