//! Closes a connection so that the client can still read the last answer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use gateway_names::delegated;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a closed connection is still read.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// A connection that lingers after its write side is closed: it reads and drops what the client
/// still sends, for at most a second.
///
/// RFC 9112 §9.6: if a server closes while content is unread, its system resets the connection, and
/// the client may lose the answer. An example is an upload that the origin refused before reading
/// it.
pub(super) struct Lingering<IO> {
    io: IO,
    until: Option<Pin<Box<Sleep>>>,
}

impl<IO> Lingering<IO> {
    pub(super) fn new(io: IO) -> Self {
        Self { io, until: None }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Lingering<IO> {
    delegated!(read);
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<IO> {
    delegated!(write vectored is_vectored poll_flush);

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.until.is_none() {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
        }
        let until = this
            .until
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        let mut scratch = [0; 4096];
        loop {
            if until.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut dropped = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut this.io).poll_read(cx, &mut dropped)) {
                Ok(()) if !dropped.filled().is_empty() => {}
                // The client closed its side too, or is gone.
                _ => return Poll::Ready(Ok(())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_is_still_sent_is_read_until_the_client_closes_or_a_second_is_over() {
        for closes in [true, false] {
            let (ours, mut theirs) = tokio::io::duplex(64);
            let mut ours = Lingering::new(ours);
            let closing = tokio::spawn(async move { ours.shutdown().await });
            theirs.write_all(&[0; 1000]).await.unwrap();
            assert_eq!(theirs.read(&mut [0; 1]).await.unwrap(), 0);
            let began = tokio::time::Instant::now();
            if closes {
                drop(theirs);
            }
            closing.await.unwrap().unwrap();
            assert_eq!(began.elapsed() >= LINGER, !closes);
        }
    }
}
