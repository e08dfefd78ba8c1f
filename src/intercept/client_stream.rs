//! The stream of an accepted connection, whatever its door.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio_rustls::server::TlsStream;

use super::door::DoorTls;
use super::prefixed::Prefixed;
use crate::message::{Authority, Host, Origin, Scheme};

/// The stream of an accepted connection.
#[derive(Debug)]
pub enum ClientStream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Inside the TLS of a proxy, over one of the others.
    Tls(Box<DoorStream>),
    /// A stream of HTTP/2 that CONNECT opened, inside that TLS.
    Http2(Box<Http2Stream>),
}

/// A stream of HTTP/2.
#[derive(Debug)]
pub struct Http2Stream {
    stream: Arc<Mutex<TokioIo<Upgraded>>>,
    /// Dropped with it.
    _had: oneshot::Sender<()>,
}

/// The same stream, for when nobody has it any more. Till then the lock is not waited for.
pub struct Http2Left {
    stream: Arc<Mutex<TokioIo<Upgraded>>>,
    had: oneshot::Receiver<()>,
}

impl Http2Left {
    /// Waits until nobody has the stream.
    pub async fn ended(&mut self) {
        // Nothing is ever sent.
        let _ = (&mut self.had).await;
    }

    /// Waits until the client takes what was written to it: till then that is in memory.
    pub async fn taken(self) {
        // Or else the stream has ended.
        let _ = poll_fn(|context| Pin::new(&mut *self.stream.lock()).poll_shutdown(context)).await;
    }
}

/// A client inside the TLS of a proxy.
pub struct DoorStream {
    pub(super) stream: TlsStream<Prefixed<ClientStream>>,
    /// The TLS of its proxy now.
    pub(super) door: Arc<ArcSwap<DoorTls>>,
    /// The one that it came by.
    pub(super) by: Arc<DoorTls>,
}

impl DoorStream {
    /// The certificate that the client presented, and those that lead to its root.
    pub(super) fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.stream.get_ref().1.peer_certificates()
    }
}

impl ClientStream {
    /// What carries it.
    pub(super) fn carrier(&self) -> &Self {
        match self {
            Self::Tls(door) => door.stream.get_ref().0.get_ref(),
            own => own,
        }
    }

    /// A stream of HTTP/2, and what is left of it.
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

    /// Whether its client chose HTTP/2 as it entered.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        let chosen = |door: &DoorStream| door.stream.get_ref().1.alpn_protocol() == Some(b"h2");
        matches!(self, Self::Tls(door) if chosen(door))
    }

    /// Where the connection comes from. A client of a Unix socket has no address.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        match self.carrier() {
            Self::Tcp(stream) => stream.peer_addr().ok(),
            _ => None,
        }
    }

    /// Where the connection was made to, if it is of TCP.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match self.carrier() {
            Self::Tcp(stream) => stream.local_addr().ok(),
            _ => None,
        }
    }

    /// Where the client of a proxy reached it: by the name that it used in TLS, else the address.
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

    /// Sends what is written at once.
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

crate::names::concealed!(DoorStream);

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
        // What is written to a stream is buffered whole, several times.
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
        // Of several pieces, a stream would send the first.
        !matches!(self, Self::Http2(_))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(context))
    }
}

/// How many bytes are written to a stream of HTTP/2 at once.
const HTTP2_WRITE: usize = 32 << 10;
