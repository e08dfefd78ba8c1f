//! A strict HTTP/1 parser in front of hyper: only well-formed requests reach it.
//!
//! hyper and httparse tolerate what RFC 9112 lets a server tolerate: bare line feeds, two hosts or
//! none, a length as well as chunks. An origin may tolerate other things, and a request can hide in
//! the difference. So [`StrictStream`] stands between the socket and hyper, follows the framing of
//! every request on the connection, and lets through only bytes with one reading.

mod progress;
mod violations;

pub use violations::ViolationHandle;

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use gateway_names::delegated;
use progress::{PLACEHOLDER, Phase, Progress};
use violations::ViolationState;

/// A connection whose read side yields only well-formed HTTP/1 requests.
///
/// When a *head* is malformed, hyper reads [a well-formed request](ViolationHandle::begin) in its
/// place, so that the refusal takes the same path as every other: through the service, to the audit
/// record, to the client. When *content* is malformed, reading fails, so the content never ends
/// cleanly. Either way, nothing further is read from the connection as HTTP.
///
/// After CONNECT, and after a request for an upgrade, bytes are withheld until the service
/// [says](ViolationHandle::upgraded) that the protocol was switched, or until a response that does
/// not switch is written. After such a response they are HTTP again.
#[derive(Debug)]
pub struct StrictStream<IO> {
    io: IO,
    /// Bytes that were read but not yet passed on.
    held: BytesMut,
    /// How many of these bytes may be passed on.
    good: usize,
    progress: Progress,
    shared: Arc<ViolationState>,
    waiting: Option<Waker>,
}

impl<IO> StrictStream<IO> {
    /// Wraps the read side of a connection from its first byte.
    pub fn new(io: IO) -> StrictStream<IO> {
        StrictStream {
            io,
            held: BytesMut::new(),
            good: 0,
            progress: Progress::default(),
            shared: Arc::default(),
            waiting: None,
        }
    }

    /// Returns the handle with which the service learns of violations and reports upgrades.
    pub fn violations(&self) -> ViolationHandle {
        ViolationHandle::new(Arc::clone(&self.shared))
    }

    /// Passes on buffered bytes, at most the first `good` of them.
    fn release(&mut self, good: usize, buf: &mut ReadBuf<'_>) {
        let length = good.min(buf.remaining());
        buf.put_slice(&self.held[..length]);
        self.held.advance(length);
        self.good = good - length;
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
    }

    /// Notes that a response is being written: unless the service upgraded, the bytes withheld
    /// after the request are HTTP.
    fn answered(&mut self) {
        let begun = self.shared.begun.load(Ordering::Acquire);
        if begun < self.progress.heads || self.shared.upgraded.load(Ordering::Acquire) {
            return;
        }
        self.progress.phase = Phase::default();
        self.good = self.progress.follow(&self.held, &self.shared);
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
    }
}

impl<IO: AsyncRead + Unpin> StrictStream<IO> {
    fn poll_upgraded(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The placeholder for a malformed request must never be mistaken for bytes of the new
        // protocol.
        if matches!(
            self.progress.phase,
            Phase::Placeholder { .. } | Phase::Failed
        ) {
            return Poll::Ready(Err(self.failure()));
        }
        if self.held.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        self.release(self.held.len(), buf);
        Poll::Ready(Ok(()))
    }

    /// Reads directly into the reader's buffer, and keeps for later what may not be passed on yet.
    ///
    /// Returns whether there is something for the reader: bytes, or the end.
    fn poll_through(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let fresh = &buf.filled()[before..];
        if fresh.is_empty() {
            return Poll::Ready(Ok(true));
        }
        let good = self.progress.follow(fresh, &self.shared);
        self.held.extend_from_slice(&fresh[good..]);
        buf.set_filled(before + good);
        Poll::Ready(Ok(good > 0))
    }

    /// Reads more until some of the buffered bytes may be passed on; returns whether the connection
    /// ended.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.held.reserve(READ);
        // `read_buf` has no state between polls, so creating it anew each time loses nothing.
        let Poll::Ready(read) = pin!(self.io.read_buf(&mut self.held)).poll(cx) else {
            let mid_head = matches!(self.progress.phase, Phase::Head(_));
            self.shared.mid_head.store(mid_head, Ordering::Relaxed);
            return Poll::Pending;
        };
        let read = read?;
        self.good = self.progress.follow(&self.held, &self.shared);
        if self.good > 0 {
            self.shared.mid_head.store(false, Ordering::Relaxed);
        }
        Poll::Ready(Ok(read == 0))
    }

    /// Yields the placeholder, and then neither bytes nor an end: an end would make hyper drop the
    /// exchange unanswered.
    ///
    /// Reads and drops what the client still sends, up to a bound, so that the client's system does
    /// not discard our response.
    fn poll_placeholder(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Phase::Placeholder { sent, drained } = &mut self.progress.phase else {
            return Poll::Pending;
        };
        if *sent < PLACEHOLDER.len() {
            let length = buf.remaining().min(PLACEHOLDER.len() - *sent);
            buf.put_slice(&PLACEHOLDER[*sent..*sent + length]);
            *sent += length;
            return Poll::Ready(Ok(()));
        }
        while *drained < MOST_DRAINED {
            let mut scratch = [0; 1024];
            let mut dropped = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut self.io).poll_read(cx, &mut dropped)) {
                Ok(()) if !dropped.filled().is_empty() => *drained += dropped.filled().len(),
                _ => *drained = MOST_DRAINED,
            }
        }
        Poll::Pending
    }

    fn failure(&self) -> io::Error {
        match self.shared.violation.get() {
            Some(violation) => io::Error::new(io::ErrorKind::InvalidData, violation.malformed),
            None => io::ErrorKind::InvalidData.into(),
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for StrictStream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if this.shared.upgraded.load(Ordering::Acquire) {
            return this.poll_upgraded(cx, buf);
        }
        loop {
            if this.good > 0 {
                this.release(this.good, buf);
                return Poll::Ready(Ok(()));
            }
            match this.progress.phase {
                Phase::Placeholder { .. } => return this.poll_placeholder(cx, buf),
                Phase::Failed => return Poll::Ready(Err(this.failure())),
                Phase::Switching => {
                    this.waiting = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                _ if this.held.is_empty() => {
                    if ready!(this.poll_through(cx, buf))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                _ => {
                    if ready!(this.poll_held(cx))? {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for StrictStream<IO> {
    delegated!(is_vectored poll_flush poll_shutdown);

    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if matches!(self.progress.phase, Phase::Switching) {
            self.answered();
        }
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if matches!(self.progress.phase, Phase::Switching) {
            self.answered();
        }
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}

const READ: usize = 8 * 1024;
const MOST_DRAINED: usize = 256 * 1024;

#[cfg(test)]
mod tests;
