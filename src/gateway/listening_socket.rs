//! A listening socket, and how it closes without losing a connection.

use std::io;
use std::time::Duration;

use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, TcpStream};

/// How long handshakes that have begun may take to complete, while no new one begins.
const SETTLE: Duration = Duration::from_millis(100);

/// A listening socket.
#[derive(Debug)]
pub struct ListeningSocket {
    pub(super) socket: TcpListener,
    /// Whether a service manager has it too, and goes on listening.
    inherited: bool,
}

impl ListeningSocket {
    /// Takes a bound, non-blocking socket. If it is `inherited`, it stays open elsewhere.
    ///
    /// # Errors
    /// The error of registering it with the current runtime.
    pub fn new(socket: std::net::TcpListener, inherited: bool) -> io::Result<Self> {
        let socket = TcpListener::from_std(socket)?;
        Ok(Self { socket, inherited })
    }

    /// Closes the socket, and returns the connections that waited to be accepted.
    ///
    /// Closing alone would reset those, and the ones whose handshake completes at that moment. So
    /// new handshakes are ignored first. Their clients try again after a second, and then reach
    /// the next gateway on this address, or nobody. A service manager's socket is left as it is:
    /// its connections wait for the next gateway.
    pub(super) async fn close(self) -> Vec<TcpStream> {
        if self.inherited {
            return Vec::new();
        }
        match SockRef::from(&self.socket).attach_filter(&IGNORE_NEW) {
            Ok(()) => tokio::time::sleep(SETTLE).await,
            Err(error) => tracing::debug!(%error, "a listener closes without a filter"),
        }
        match self.socket.into_std() {
            Ok(socket) => std::iter::from_fn(|| accept(&socket)).collect(),
            Err(error) => {
                tracing::warn!(%error, "connections that waited for a listener were reset");
                Vec::new()
            }
        }
    }
}

/// Accepts a connection that waits; `None` if there is none, or no descriptor for it.
fn accept(socket: &std::net::TcpListener) -> Option<TcpStream> {
    loop {
        match socket.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true).ok()?;
                return TcpStream::from_std(stream).ok();
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(_) => return None,
        }
    }
}

/// Whether accept failed for one connection only, which is gone (accept(2), "Error handling").
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
