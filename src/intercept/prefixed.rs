//! A stream whose first bytes can be read ahead. No byte is lost or read twice (threats A12, A15).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use gateway_names::delegated;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// A stream, preceded by the bytes that were read ahead.
pub struct Prefixed<IO> {
    prefix: BytesMut,
    io: IO,
}

impl<IO> Prefixed<IO> {
    /// Wraps a stream with nothing read ahead.
    pub fn new(io: IO) -> Self {
        Self {
            prefix: BytesMut::new(),
            io,
        }
    }

    /// Returns the stream itself.
    #[must_use]
    pub fn get_ref(&self) -> &IO {
        &self.io
    }

    /// Returns the bytes read ahead so far.
    #[must_use]
    pub fn ahead(&self) -> &[u8] {
        &self.prefix
    }

    /// Removes this many of the bytes read ahead.
    pub fn consume(&mut self, count: usize) {
        self.prefix.advance(count);
        if self.prefix.is_empty() {
            // Frees the buffer's memory for the rest of the connection.
            self.prefix = BytesMut::new();
        }
    }
}

impl<IO: AsyncRead + Unpin> Prefixed<IO> {
    /// Reads ahead once; `false` at the end of the stream.
    ///
    /// # Errors
    /// Those of the stream, and `InvalidData` if more than `limit` bytes would be buffered.
    pub async fn read_ahead(&mut self, limit: usize) -> io::Result<bool> {
        if self.prefix.len() >= limit {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.prefix.reserve(1024);
        Ok(self.io.read_buf(&mut self.prefix).await? > 0)
    }

    /// Reads ahead until `count` bytes are buffered; `false` if the stream ends before.
    ///
    /// # Errors
    /// Those of the stream.
    pub async fn ensure(&mut self, count: usize) -> io::Result<bool> {
        while self.prefix.len() < count {
            if !self.read_ahead(usize::MAX).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Prefixed<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, out);
        }
        let count = self.prefix.len().min(out.remaining());
        out.put_slice(&self.prefix[..count]);
        self.consume(count);
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Prefixed<IO> {
    delegated!(write vectored is_vectored poll_flush poll_shutdown);
}
