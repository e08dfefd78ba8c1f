//! The stream of an accepted connection, however it came in.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use gateway_message::{Authority, Host, Origin, Scheme};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio_rustls::server::TlsStream;

use super::prefixed::Prefixed;
use super::proxy_tls::ProxyTls;

/// The stream of an accepted connection.
#[derive(Debug)]
pub enum ClientStream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Inside the TLS of a proxy, over TCP or a Unix socket.
    Tls(Box<TlsClient>),
    /// An HTTP/2 stream that CONNECT opened, inside that TLS.
    Http2(Box<Http2Stream>),
}

/// An HTTP/2 stream.
#[derive(Debug)]
pub struct Http2Stream {
    stream: Arc<Mutex<TokioIo<Upgraded>>>,
    /// Signals [`Http2Left`] when the stream is dropped.
    _had: oneshot::Sender<()>,
}

/// The same stream after its user has dropped it; until then, the lock must not be waited for.
pub struct Http2Left {
    stream: Arc<Mutex<TokioIo<Upgraded>>>,
    had: oneshot::Receiver<()>,
}

impl Http2Left {
    /// Waits until the stream's user has dropped it.
    pub async fn ended(&mut self) {
        // The channel only closes; nothing is sent on it.
        let _ = (&mut self.had).await;
    }

    /// Waits until the client has read the written bytes, which stay in memory until then.
    pub async fn taken(self) {
        // Also returns if the stream has ended.
        let _ = poll_fn(|context| Pin::new(&mut *self.stream.lock()).poll_shutdown(context)).await;
    }
}

/// A client inside the TLS of a proxy.
pub struct TlsClient {
    pub(super) stream: TlsStream<Prefixed<ClientStream>>,
    /// The current TLS settings of its proxy.
    pub(super) door: Arc<ArcSwap<ProxyTls>>,
    /// The settings under which the client's handshake was done.
    pub(super) by: Arc<ProxyTls>,
}

impl TlsClient {
    /// Returns the client's certificate chain.
    pub(super) fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.stream.get_ref().1.peer_certificates()
    }
}

impl ClientStream {
    /// Returns the stream that carries the TLS.
    pub(super) fn carrier(&self) -> &Self {
        match self {
            Self::Tls(door) => door.stream.get_ref().0.get_ref(),
            own => own,
        }
    }

    /// Wraps an HTTP/2 stream; also returns a handle for after it is dropped.
    #[must_use]
    pub fn http2(stream: Upgraded) -> (Self, Http2Left) {
        let stream = Arc::new(Mutex::new(TokioIo::new(stream)));
        let (_had, had) = oneshot::channel();
        let left = Http2Left {
            stream: stream.clone(),
            had,
        };
        (Self::Http2(Box::new(Http2Stream { stream, _had })), left)
    }

    /// Whether the client negotiated HTTP/2 with the proxy.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        let chosen = |door: &TlsClient| door.stream.get_ref().1.alpn_protocol() == Some(b"h2");
        matches!(self, Self::Tls(door) if chosen(door))
    }

    /// Returns the client's address. A client of a Unix socket has none.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        match self.carrier() {
            Self::Tcp(stream) => stream.peer_addr().ok(),
            _ => None,
        }
    }

    /// Returns the local address, if the connection is TCP.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match self.carrier() {
            Self::Tcp(stream) => stream.local_addr().ok(),
            _ => None,
        }
    }

    /// Returns the proxy's origin as its client dialled it: its server name, else the address.
    #[must_use]
    pub fn reached(&self) -> Option<Origin> {
        let address = self.local_addr()?;
        let (scheme, named) = match self {
            Self::Tls(door) => (Scheme::Https, door.stream.get_ref().1.server_name()),
            _ => (Scheme::Http, None),
        };
        let named = named.and_then(|name| Host::parse(name.as_bytes()).ok());
        let host = named.unwrap_or_else(|| Host::from_ip(address.ip().to_canonical()));
        let port = address.port();
        let authority = Authority { host, port };
        Some(Origin { scheme, authority })
    }

    /// Disables Nagle's algorithm, so that writes are sent at once.
    ///
    /// # Errors
    /// The system's, if the connection is gone.
    pub fn set_nodelay(&self) -> io::Result<()> {
        match self.carrier() {
            Self::Tcp(stream) => stream.set_nodelay(true),
            _ => Ok(()),
        }
    }
}

gateway_names::concealed!(TlsClient);

macro_rules! each {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            ClientStream::Tcp($inner) => $call,
            ClientStream::Unix($inner) => $call,
            ClientStream::Http2($inner) => {
                let mut $inner = $inner.stream.lock();
                let $inner = &mut *$inner;
                $call
            }
            ClientStream::Tls($inner) => {
                let $inner = &mut $inner.stream;
                $call
            }
        }
    };
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_read(context, into))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // An HTTP/2 stream buffers the whole of a write, several times.
        let most = match &*self {
            Self::Http2(_) => HTTP2_WRITE,
            _ => usize::MAX,
        };
        let bytes = &bytes[..bytes.len().min(most)];
        each!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        // An HTTP/2 stream would write only the first of several slices.
        !matches!(self, Self::Http2(_))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(context))
    }
}

/// How many bytes are written to an HTTP/2 stream at once.
const HTTP2_WRITE: usize = 32 << 10;
