//! A listening socket, and how it closes without losing a connection.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use gateway_intercept::ClientStream;
use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// How long handshakes that have begun may take to complete, while no new one begins.
const SETTLE: Duration = Duration::from_millis(100);

/// A bound socket, non-blocking, from which nothing accepts yet.
#[derive(Debug)]
pub enum BoundSocket {
    /// A TCP socket.
    Tcp(std::net::TcpListener),
    /// A Unix socket. Its keeper removes its file when the last handle is dropped.
    Unix(std::os::unix::net::UnixListener, SocketKeeper),
}

/// A value that removes a socket's file when its last handle is dropped.
pub type SocketKeeper = Arc<dyn Any + Send + Sync>;

/// A listening socket.
#[derive(Debug)]
pub struct ListeningSocket {
    socket: Listening,
    /// Whether a service manager holds the socket, too, and goes on listening.
    inherited: bool,
}

#[derive(Debug)]
enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener, SocketKeeper),
}

impl ListeningSocket {
    /// Takes a bound socket. If it is `inherited`, a service manager keeps it open.
    ///
    /// # Errors
    /// The error of registering it with the current runtime.
    pub fn new(socket: BoundSocket, inherited: bool) -> io::Result<Self> {
        let socket = match socket {
            BoundSocket::Tcp(socket) => Listening::Tcp(TcpListener::from_std(socket)?),
            BoundSocket::Unix(socket, keeper) => {
                Listening::Unix(UnixListener::from_std(socket)?, keeper)
            }
        };
        Ok(Self { socket, inherited })
    }

    /// Accepts a connection.
    ///
    /// # Errors
    /// The system's.
    pub(super) async fn accept(&self) -> io::Result<ClientStream> {
        match &self.socket {
            Listening::Tcp(socket) => Ok(ClientStream::Tcp(socket.accept().await?.0)),
            Listening::Unix(socket, _) => Ok(ClientStream::Unix(socket.accept().await?.0)),
        }
    }

    /// Closes the socket, and returns the connections that waited to be accepted.
    ///
    /// Closing alone would reset those, and the ones whose handshake completes at that moment. So
    /// new handshakes are ignored first. Their clients try again after a second, and then reach the
    /// next gateway on this address, if any. A Unix socket's file is removed first. A service
    /// manager's socket is left as it is: its connections wait for the next gateway.
    pub(super) async fn close(self) -> Vec<ClientStream> {
        if self.inherited {
            return Vec::new();
        }
        let waiting = match self.socket {
            Listening::Tcp(socket) => {
                match SockRef::from(&socket).attach_filter(&IGNORE_NEW) {
                    Ok(()) => tokio::time::sleep(SETTLE).await,
                    Err(error) => tracing::debug!(%error, "a listener closes without a filter"),
                }
                socket.into_std().map(tcp_waiting)
            }
            Listening::Unix(socket, keeper) => {
                drop(keeper);
                socket.into_std().map(unix_waiting)
            }
        };
        waiting.unwrap_or_else(|error| {
            tracing::warn!(%error, "connections that waited for a listener were reset");
            Vec::new()
        })
    }
}

fn tcp_waiting(socket: std::net::TcpListener) -> Vec<ClientStream> {
    let next = || {
        let stream = accept(|| socket.accept())?;
        stream.set_nonblocking(true).ok()?;
        TcpStream::from_std(stream).ok().map(ClientStream::Tcp)
    };
    std::iter::from_fn(next).collect()
}

fn unix_waiting(socket: std::os::unix::net::UnixListener) -> Vec<ClientStream> {
    let next = || {
        let stream = accept(|| socket.accept())?;
        stream.set_nonblocking(true).ok()?;
        UnixStream::from_std(stream).ok().map(ClientStream::Unix)
    };
    std::iter::from_fn(next).collect()
}

/// Accepts a waiting connection; `None` if there is none, or no descriptor for it.
fn accept<S, A>(next: impl Fn() -> io::Result<(S, A)>) -> Option<S> {
    loop {
        match next() {
            Ok((stream, _)) => return Some(stream),
            Err(error) if is_of_one_connection(&error) => {}
            Err(_) => return None,
        }
    }
}

/// Whether `accept` failed for one lost connection only (accept(2), "Error handling").
pub(super) fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// Drops segments with SYN and without ACK, which begin a connection. A filter of a TCP socket sees
/// the TCP header; its byte 13 has the flags (RFC 9293 §3.1). Accepted connections inherit it, and
/// never get such a segment.
const IGNORE_NEW: [SockFilter; 5] = [
    SockFilter::new(0x30, 0, 0, 13),       // load byte 13
    SockFilter::new(0x54, 0, 0, 0x12),     // of it, SYN and ACK
    SockFilter::new(0x15, 0, 1, 0x02),     // unless it is SYN alone, skip one
    SockFilter::new(0x06, 0, 0, 0),        // drop
    SockFilter::new(0x06, 0, 0, u32::MAX), // pass
];
