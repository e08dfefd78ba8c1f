//! A connection to an origin that ends at once when a credential that it may carry is revoked, even
//! if the gateway has closed it and the kernel is still sending its last bytes.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use gateway_launch::unsent;
use gateway_names::delegated;
use gateway_session::{Revocation, Severable};
use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle as Runtime;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::Error;

/// A socket, registered with the revocations of the credentials that it may carry.
pub(super) struct SeverableSocket {
    io: TcpStream,
    /// Kept until the kernel has sent all bytes. `None` if the connection carries no credential.
    handle: Option<Arc<Handle>>,
}

/// A second descriptor of the connection's socket.
struct Handle(OwnedFd);

impl Severable for Handle {
    /// Dissolves the connection (connect(2), `AF_UNSPEC`): the kernel drops unsent bytes
    /// and resets the peer.
    fn sever(&self) {
        if let Err(error) = rustix::net::connect_unspec(&self.0) {
            tracing::error!(%error, "a connection with a revoked credential could not be severed");
        }
    }
}

impl Handle {
    /// Waits until the peer has all bytes. Resets the connection if that takes too long.
    async fn await_sent(&self, within: Duration) {
        let deadline = Instant::now() + within;
        let mut pause = Duration::from_millis(10);
        while unsent(&self.0).is_ok_and(|count| count > 0) {
            if Instant::now() > deadline {
                return self.sever();
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}

impl SeverableSocket {
    /// Registers a new connection, before anything is written to it.
    ///
    /// # Errors
    /// [`Error::Revoked`] if one of the credentials is revoked. [`Error::Unreachable`] if there is
    /// no descriptor left.
    pub(super) fn new(io: TcpStream, revocations: &[Arc<Revocation>]) -> Result<Self, Error> {
        if revocations.is_empty() {
            return Ok(Self { io, handle: None });
        }
        let second = io.as_fd().try_clone_to_owned();
        let second = second.map_err(|error| Error::Unreachable(Some(error)))?;
        let handle = Arc::new(Handle(second));
        let severable: Arc<dyn Severable> = handle.clone();
        for revocation in revocations {
            revocation.register(&severable)?;
        }
        Ok(Self {
            io,
            handle: Some(handle),
        })
    }
}

impl SeverableSocket {
    /// Refuses to write what may hold a secret once this replica may lack a revocation: a process
    /// that was stopped between its last look and here writes nothing when it goes on.
    fn may_write(&self) -> io::Result<()> {
        if self.handle.is_some() && gateway_session::is_stale() {
            let why = "the gateway may lack decisions of its fleet";
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
        }
        Ok(())
    }
}

impl Drop for SeverableSocket {
    /// Closes the connection in order. Bytes that the kernel has yet to send may end an upload, or
    /// hold the secret of an exchange that was given up: until they are sent, a revocation still
    /// cuts the connection.
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        // No runtime: the gateway is ending, and every connection with it.
        let Ok(runtime) = Runtime::try_current() else {
            return;
        };
        let unsent = unsent(&handle.0).unwrap_or(u32::MAX);
        if unsent == 0 {
            return;
        }
        let Ok(place) = ENDING.try_acquire() else {
            if unsent > ENDS {
                handle.sever();
            }
            return;
        };
        // The second descriptor would hide the close from the peer.
        let _ = rustix::net::shutdown(&handle.0, Shutdown::Write);
        runtime.spawn(async move {
            let _place = place;
            handle.await_sent(SENT_WITHIN).await;
        });
    }
}

impl AsyncRead for SeverableSocket {
    delegated!(read);
}

impl AsyncWrite for SeverableSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.may_write()?;
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.may_write()?;
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }

    delegated!(is_vectored poll_flush poll_shutdown);
}

/// How long a peer may take for the bytes that were written before a connection was closed.
const SENT_WITHIN: Duration = Duration::from_secs(60);
/// The length of TLS's `close_notify` and of the end of the stream, which hold no secret.
const ENDS: u32 = 32;
/// The connections whose last bytes are being sent. Beyond this number, one with more than `ENDS`
/// bytes left is reset: descriptors are finite.
static ENDING: Semaphore = Semaphore::const_new(1024);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Returns a connection whose written bytes fill the kernel's buffers, its peer, which has read
    /// none of them, and their number.
    async fn filled(revocation: &Arc<Revocation>) -> (SeverableSocket, TcpStream, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (theirs, _) = listener.accept().await.unwrap();
        let mut ours =
            SeverableSocket::new(ours.unwrap(), std::slice::from_ref(revocation)).unwrap();
        let mut written = 0;
        while let Ok(Ok(count)) =
            tokio::time::timeout(Duration::from_millis(50), ours.write(&[7; 64 << 10])).await
        {
            written += count;
        }
        (ours, theirs, written)
    }

    async fn assert_was_cut(mut theirs: TcpStream, written: usize) {
        let mut read = Vec::new();
        let ended = theirs.read_to_end(&mut read).await;
        assert!(ended.is_err(), "the peer is reset");
        assert!(read.len() < written, "{} of {written}", read.len());
    }

    #[tokio::test]
    async fn what_was_written_and_not_sent_yet_is_dropped_when_a_connection_is_severed() {
        let revocation = Arc::new(Revocation::default());
        let (mut ours, theirs, written) = filled(&revocation).await;
        ours.handle.clone().unwrap().sever();
        assert!(ours.write(b"more").await.is_err());
        assert_was_cut(theirs, written).await;
    }

    #[tokio::test]
    async fn a_revocation_reaches_what_a_closed_connection_has_yet_to_send() {
        let revocation = Arc::new(Revocation::default());
        let (mut ours, theirs, written) = filled(&revocation).await;
        let handle = Arc::downgrade(ours.handle.as_ref().unwrap());
        ours.shutdown().await.unwrap();
        drop(ours);
        tokio::time::sleep(Duration::from_millis(100)).await;
        handle.upgrade().unwrap().sever();
        assert_was_cut(theirs, written).await;
    }

    #[tokio::test]
    async fn a_closed_connection_loses_nothing_that_was_written_and_is_forgotten_when_it_is_sent() {
        let revocation = Arc::new(Revocation::default());
        let (ours, mut theirs, written) = filled(&revocation).await;
        let handle = Arc::downgrade(ours.handle.as_ref().unwrap());
        drop(ours);
        let mut read = Vec::new();
        theirs.read_to_end(&mut read).await.unwrap();
        assert_eq!(read.len(), written);
        while handle.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_connection_that_its_peer_or_a_revocation_reset_is_forgotten_at_once() {
        for by_peer in [true, false] {
            let revocation = Arc::new(Revocation::default());
            let (ours, theirs, _) = filled(&revocation).await;
            let handle = Arc::downgrade(ours.handle.as_ref().unwrap());
            drop(ours);
            if by_peer {
                // Unread bytes turn the close into a reset.
                drop(theirs)
            } else {
                handle.upgrade().unwrap().sever()
            }
            let forgotten = async {
                while handle.strong_count() > 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let within = tokio::time::timeout(Duration::from_secs(3), forgotten);
            within.await.expect("the descriptor is let go");
        }
    }

    #[tokio::test]
    async fn a_peer_that_never_takes_the_last_bytes_is_reset() {
        let revocation = Arc::new(Revocation::default());
        let (ours, theirs, written) = filled(&revocation).await;
        let handle = ours.handle.clone().unwrap();
        handle.await_sent(Duration::from_millis(50)).await;
        assert_was_cut(theirs, written).await;
    }
}
