//! A connection to an origin that ends at once if a credential that it may carry is revoked.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::Error;
use crate::credential::{Revocation, Severable};

/// A socket that is registered with the revocations of the credentials that it may carry.
pub(super) struct Carrier {
    io: TcpStream,
    /// Kept for as long as the connection is open. `None` if it carries no credential.
    _severed_by: Option<Arc<dyn Severable>>,
}

/// A second descriptor of the connection's socket.
struct Handle(OwnedFd);

impl Severable for Handle {
    /// Dissolves the connection (connect(2), `AF_UNSPEC`): the kernel drops what was not sent yet
    /// and resets the peer.
    fn sever(&self) {
        if let Err(error) = rustix::net::connect_unspec(&self.0) {
            tracing::error!(%error, "a connection with a revoked credential could not be severed");
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
            return Ok(Self {
                io,
                _severed_by: None,
            });
        }
        let second = io.as_fd().try_clone_to_owned();
        let second = second.map_err(|error| Error::Unreachable(Some(error)))?;
        let handle: Arc<dyn Severable> = Arc::new(Handle(second));
        for revocation in revocations {
            revocation.register(&handle)?;
        }
        Ok(Self {
            io,
            _severed_by: Some(handle),
        })
    }
}

impl AsyncRead for Carrier {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Carrier {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn what_was_written_and_not_sent_yet_is_dropped_when_a_connection_is_severed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (mut theirs, _) = listener.accept().await.unwrap();
        let revocation = Arc::new(Revocation::default());
        let mut ours = Carrier::new(ours.unwrap(), std::slice::from_ref(&revocation)).unwrap();
        let mut written = 0;
        // Until the kernel's buffers are full: the peer reads nothing.
        while let Ok(Ok(count)) = tokio::time::timeout(
            std::time::Duration::from_millis(50),
            ours.write(&[7; 64 << 10]),
        )
        .await
        {
            written += count;
        }
        let handle = ours._severed_by.clone().unwrap();
        handle.sever();
        assert!(ours.write(b"more").await.is_err());
        let mut read = Vec::new();
        let ended = theirs.read_to_end(&mut read).await;
        assert!(ended.is_err(), "the peer is reset");
        assert!(read.len() < written, "{} of {written}", read.len());
    }
}
