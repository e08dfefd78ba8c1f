//! A socket whose answer is read although it takes no more of the request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection whose write side may break and whose read side still tells what the peer said
/// before it did.
///
/// RFC 9112 §9.5 and RFC 9110 §10.1.1: an origin may answer before it has read a request's content,
/// and close. What is written to it from then on fails, while its answer lies in the socket: so a
/// write that fails is taken for done, and reading gives the answer, or an end that is an error
/// where no answer came. Nothing can look whole by that which is not.
#[derive(Debug)]
pub(super) struct Patient<IO> {
    io: IO,
    broken: bool,
}

impl<IO> Patient<IO> {
    pub(super) fn new(io: IO) -> Self {
        Self { io, broken: false }
    }

    /// Takes a failed write for one that was done.
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

impl<IO: AsyncRead + Unpin> AsyncRead for Patient<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Patient<IO> {
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

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.broken {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.done(flushed, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
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
        let mut ours = Patient::new(ours);
        ours.write_all(b"unread").await.unwrap();
        theirs.readable().await.unwrap();
        theirs.write_all(b"too long").await.unwrap();
        // Closed with something unread, the kernel resets.
        drop(theirs);
        for _ in 0..20 {
            ours.write_all(&[0; 4096]).await.unwrap();
            ours.flush().await.unwrap();
        }
        assert!(ours.broken);
        let mut said = Vec::new();
        // Behind what was said there is an end or an error, at once.
        let _ = ours.read_to_end(&mut said).await;
        assert_eq!(said, b"too long");
    }
}
