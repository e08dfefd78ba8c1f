//! A tunnel in an HTTP/2 stream, as bytes in both directions.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

/// The permits for large windows, if a connection has them. Each of its streams holds a clone.
pub(super) type Streams = Arc<Option<OwnedSemaphorePermit>>;

/// A tunnel. HTTP/2 windows bound the bytes that its reader or the gateway has not read yet.
pub struct Tunnel {
    send: SendStream<Bytes>,
    receive: RecvStream,
    /// The bytes that were received and not read yet.
    came: Bytes,
    /// Counts the stream on its connection.
    _stream: Streams,
}

impl Tunnel {
    pub(super) fn new(send: SendStream<Bytes>, receive: RecvStream, stream: Streams) -> Self {
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
        let sent = ready!(poll_send(send, cx, bytes));
        Poll::Ready(sent.or_else(|error| unless_all_is_said(send, cx, error, bytes.len())))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection task sends the buffered bytes by itself.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let send = &mut self.send;
        let sent = send.send_data(Bytes::new(), true).map_err(broken);
        Poll::Ready(sent.or_else(|error| unless_all_is_said(send, cx, error, ())))
    }
}

fn poll_send(
    send: &mut SendStream<Bytes>,
    cx: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
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

/// Discards bytes for a gateway that has responded completely and reads no more (RFC 9113 §8.1): an
/// error would cut the client off from the rest of the response.
fn unless_all_is_said<T>(
    send: &mut SendStream<Bytes>,
    cx: &mut Context<'_>,
    error: io::Error,
    taken: T,
) -> io::Result<T> {
    match send.poll_reset(cx) {
        Poll::Ready(Ok(Reason::NO_ERROR)) => Ok(taken),
        _ => Err(error),
    }
}

fn broken(error: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn what_came_before_the_end_is_read_also_if_the_client_says_more() {
        let (near, far) = duplex(1 << 20);
        tokio::spawn(async move {
            let mut far = h2::server::handshake(far).await.unwrap();
            let (request, mut answer) = far.accept().await.unwrap().unwrap();
            let mut send = answer
                .send_response(http::Response::new(()), false)
                .unwrap();
            send.send_data(Bytes::from_static(b"all of it"), true)
                .unwrap();
            drop((request, answer, send));
            while far.accept().await.is_some() {}
        });
        let (mut requests, near) = h2::client::handshake(near).await.unwrap();
        tokio::spawn(near);
        let request = http::Request::connect("stream.test:80").body(()).unwrap();
        let (answer, send) = requests.send_request(request, false).unwrap();
        let receive = answer.await.unwrap().into_body();
        let mut tunnel = Tunnel::new(send, receive, Streams::default());
        let mut first = [0; 3];
        tunnel.read_exact(&mut first).await.unwrap();
        let reset = std::future::poll_fn(|cx| tunnel.send.poll_reset(cx)).await;
        assert_eq!(reset.unwrap(), Reason::NO_ERROR);
        tunnel.write_all(&[0; 100_000]).await.unwrap();
        tunnel.shutdown().await.unwrap();
        let mut rest = String::new();
        tunnel.read_to_string(&mut rest).await.unwrap();
        assert_eq!((&first, &*rest), (b"all", " of it"));
    }
}
