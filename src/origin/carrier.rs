//! A connection to an origin that ends at once if a credential that it may carry is revoked, even
//! when the gateway has closed it and the kernel still sends bytes that were written before.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
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

/// A socket that is registered with the revocations of the credentials that it may carry.
pub(super) struct Carrier {
    io: TcpStream,
    /// Kept until the kernel has sent everything. `None` if it carries no credential.
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
    /// Waits until the peer has everything. One that takes too long is reset.
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

impl Carrier {
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

impl Drop for Carrier {
    /// Ends the connection in order. Bytes that the kernel has yet to send may be an upload's last
    /// ones, or the secret of an exchange that was given up: until they are sent, a revocation
    /// still reaches them.
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        // The gateway's end closes everything.
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
        // The descriptor that is kept would keep the peer from seeing the end.
        let _ = rustix::net::shutdown(&handle.0, Shutdown::Write);
        runtime.spawn(async move {
            let _place = place;
            handle.await_sent(SENT_WITHIN).await;
        });
    }
}

impl AsyncRead for Carrier {
    delegated!(read);
}

impl AsyncWrite for Carrier {
    delegated!(write vectored is_vectored poll_flush poll_shutdown);
}

/// How long a peer may take for the bytes that were written before a connection was closed.
const SENT_WITHIN: Duration = Duration::from_secs(60);
/// The ends of TLS and of the stream. They hold no secret.
const ENDS: u32 = 32;
/// Connections whose last bytes are being sent. One more is reset if it has more than its ends to
/// send: descriptors are finite.
static ENDING: Semaphore = Semaphore::const_new(1024);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A connection whose peer has read nothing of what fills the kernel's buffers, the peer, and
    /// how much that is.
    async fn filled(revocation: &Arc<Revocation>) -> (Carrier, TcpStream, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (theirs, _) = listener.accept().await.unwrap();
        let mut ours = Carrier::new(ours.unwrap(), std::slice::from_ref(revocation)).unwrap();
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
            match by_peer {
                // Unread bytes make it a reset.
                true => drop(theirs),
                false => handle.upgrade().unwrap().sever(),
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
