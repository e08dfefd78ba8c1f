//! A tunnel in a stream of HTTP/2, as bytes both ways.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A tunnel. What its reader does not take, and what the gateway does not, is bounded by windows of
/// its own.
pub struct Tunnel {
    send: SendStream<Bytes>,
    receive: RecvStream,
    /// What came and was not read yet.
    came: Bytes,
    /// Its place on its connection.
    _stream: Arc<()>,
}

impl Tunnel {
    pub(super) fn new(send: SendStream<Bytes>, receive: RecvStream, stream: Arc<()>) -> Self {
        Self {
            send,
            receive,
            came: Bytes::new(),
            _stream: stream,
        }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.came.is_empty() {
            match ready!(this.receive.poll_data(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(came) => this.came = came.map_err(broken)?,
            }
        }
        let count = this.came.len().min(into.remaining());
        into.put_slice(&this.came[..count]);
        this.came.advance(count);
        let released = this.receive.flow_control().release_capacity(count);
        Poll::Ready(released.map_err(broken))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let send = &mut self.send;
        send.reserve_capacity(bytes.len());
        while send.capacity() == 0 && !bytes.is_empty() {
            match ready!(send.poll_capacity(cx)) {
                Some(room) => room.map_err(broken)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            };
        }
        let count = send.capacity().min(bytes.len());
        let sent = send.send_data(Bytes::copy_from_slice(&bytes[..count]), false);
        Poll::Ready(sent.map(|()| count).map_err(broken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Its connection sends what it has by itself.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.send.send_data(Bytes::new(), true).map_err(broken))
    }
}

fn broken(error: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}
