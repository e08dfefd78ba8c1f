//! A socket whose response can still be read after the peer has stopped accepting the request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use gateway_names::delegated;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection that still reads what the peer sent after its write side has failed.
///
/// An origin may respond before it has read a request's content, and close (RFC 9112 §9.5, RFC 9110
/// §10.1.1). Writes then fail while the response waits in the socket. So a failed write is reported
/// as success, and reading returns the response, or an error if there is none. Nothing incomplete
/// can look complete.
#[derive(Debug)]
pub(super) struct IgnoreWriteErrors<IO> {
    io: IO,
    broken: bool,
}

impl<IO> IgnoreWriteErrors<IO> {
    pub(super) fn new(io: IO) -> Self {
        Self { io, broken: false }
    }

    /// Reports success for a failed write, so that the response can still be read.
    fn done<T>(&mut self, written: Poll<io::Result<T>>, whole: T) -> Poll<io::Result<T>> {
        match written {
            Poll::Ready(Err(_)) => {
                self.broken = true;
                Poll::Ready(Ok(whole))
            }
            other => other,
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for IgnoreWriteErrors<IO> {
    delegated!(read);
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for IgnoreWriteErrors<IO> {
    delegated!(is_vectored poll_shutdown);

    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.broken {
            return Poll::Ready(Ok(buf.len()));
        }
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.done(written, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let whole = bufs.iter().map(|buf| buf.len()).sum();
        if self.broken {
            return Poll::Ready(Ok(whole));
        }
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.done(written, whole)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.broken {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.done(flushed, ())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn what_a_peer_said_before_it_closed_is_read_although_writing_failed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (mut theirs, _) = listener.accept().await.unwrap();
        let mut ours = IgnoreWriteErrors::new(ours);
        ours.write_all(b"unread").await.unwrap();
        theirs.readable().await.unwrap();
        theirs.write_all(b"too long").await.unwrap();
        // Closing with unread data makes the kernel send a reset.
        drop(theirs);
        for _ in 0..20 {
            ours.write_all(&[0; 4096]).await.unwrap();
            ours.flush().await.unwrap();
        }
        assert!(ours.broken);
        let mut said = Vec::new();
        // After the data comes an end or an error, at once.
        let _ = ours.read_to_end(&mut said).await;
        assert_eq!(said, b"too long");
    }
}
