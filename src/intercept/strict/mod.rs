//! A strict HTTP/1 parser in front of hyper: only well-formed requests reach it.
//!
//! hyper and httparse tolerate what RFC 9112 lets a server tolerate (bare line feeds, two hosts,
//! none, a length beside chunks). An origin may tolerate other things, and a request can hide
//! between two readings. So [`Strict`] stands between the socket and hyper, follows the framing of
//! every request on the connection, and lets through only bytes with one reading.

mod content;
mod head;

pub use head::{Framing, Head, Malformed, Status, parse_head};

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use content::Chunked;
use head::Reader;

/// A connection whose read side yields only well-formed HTTP/1 requests.
///
/// When a *head* is malformed, hyper reads [a well-formed request](Violations::begin) in its place,
/// so that the refusal takes the same path as every other: through the service, to the audit
/// record, to the client. When *content* is malformed, reading fails, so the content never ends
/// cleanly. Either way, nothing further is read from the connection as HTTP.
///
/// After CONNECT, and after a request for an upgrade, bytes are withheld until the service
/// [says](Violations::upgraded) that the protocol was switched, or until a response that does not
/// switch is written. After such a response they are HTTP again.
#[derive(Debug)]
pub struct Strict<IO> {
    io: IO,
    /// Bytes that were read and not passed on.
    held: BytesMut,
    /// How many of these bytes are good.
    good: usize,
    course: Course,
    shared: Arc<Shared>,
    waiting: Option<Waker>,
}

/// The state that the service and the connection share.
#[derive(Debug, Clone)]
pub struct Violations(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    begun: AtomicU64,
    upgraded: AtomicBool,
    mid_head: AtomicBool,
    violation: OnceLock<Violation>,
}

#[derive(Debug, Clone, Copy)]
struct Violation {
    /// Counts the connection's requests from zero.
    request: u64,
    malformed: Malformed,
    in_content: bool,
}

impl Violations {
    /// Starts a request: the service calls this once for each request that hyper passes to it, in
    /// order.
    ///
    /// # Errors
    /// What was wrong with the request, if the one at hand (`GET /` on `malformed.invalid`, with
    /// `Connection: close`) stands in for it. The service answers with its [`Malformed::reason`]
    /// and does nothing else.
    pub fn begin(&self) -> Result<(), Malformed> {
        let request = self.0.begun.fetch_add(1, Ordering::AcqRel);
        match self.0.violation.get() {
            Some(violation) if !violation.in_content && violation.request == request => {
                Err(violation.malformed)
            }
            _ => Ok(()),
        }
    }

    /// What was wrong with the content of the last request on the connection, if that made reading
    /// fail.
    pub fn in_content(&self) -> Option<Malformed> {
        self.0
            .violation
            .get()
            .filter(|violation| violation.in_content)
            .map(|violation| violation.malformed)
    }

    /// Whether a head has started and not ended, so that its deadline runs.
    pub fn is_mid_head(&self) -> bool {
        self.0.mid_head.load(Ordering::Relaxed)
    }

    /// Passes everything that follows unchanged; the service calls this before it returns 101, or
    /// 2xx to CONNECT.
    pub fn upgraded(&self) {
        self.0.upgraded.store(true, Ordering::Release);
    }
}

impl<IO> Strict<IO> {
    /// Wraps the read side of a connection from its first byte.
    pub fn new(io: IO) -> Strict<IO> {
        Strict {
            io,
            held: BytesMut::new(),
            good: 0,
            course: Course::default(),
            shared: Arc::default(),
            waiting: None,
        }
    }

    /// The handle with which the service learns of violations and reports upgrades.
    pub fn violations(&self) -> Violations {
        Violations(Arc::clone(&self.shared))
    }

    /// The connection inside.
    pub fn get_ref(&self) -> &IO {
        &self.io
    }

    /// Passes on buffered bytes, of which the first `good` may go.
    fn release(&mut self, good: usize, buf: &mut ReadBuf<'_>) {
        let length = good.min(buf.remaining());
        buf.put_slice(&self.held[..length]);
        self.held.advance(length);
        self.good = good - length;
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
    }

    /// A response is being written: unless the service upgraded, the bytes withheld after the
    /// request are HTTP.
    fn answered(&mut self) {
        let begun = self.shared.begun.load(Ordering::Acquire);
        if begun < self.course.heads || self.shared.upgraded.load(Ordering::Acquire) {
            return;
        }
        self.course.phase = Phase::default();
        self.good = self.course.follow(&self.held, &self.shared);
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
    }
}

impl<IO: AsyncRead + Unpin> Strict<IO> {
    fn poll_upgraded(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The placeholder for a malformed request must never be taken for the other protocol's
        // bytes.
        if matches!(self.course.phase, Phase::StandIn { .. } | Phase::Failed) {
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
        let good = self.course.follow(fresh, &self.shared);
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
            let mid_head = matches!(self.course.phase, Phase::Head(_));
            self.shared.mid_head.store(mid_head, Ordering::Relaxed);
            return Poll::Pending;
        };
        let read = read?;
        self.good = self.course.follow(&self.held, &self.shared);
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
    fn poll_stand_in(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Phase::StandIn { sent, drained } = &mut self.course.phase else {
            return Poll::Pending;
        };
        if *sent < STAND_IN.len() {
            let length = buf.remaining().min(STAND_IN.len() - *sent);
            buf.put_slice(&STAND_IN[*sent..*sent + length]);
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

impl<IO: AsyncRead + Unpin> AsyncRead for Strict<IO> {
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
            match this.course.phase {
                Phase::StandIn { .. } => return this.poll_stand_in(cx, buf),
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

impl<IO: AsyncWrite + Unpin> AsyncWrite for Strict<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if matches!(self.course.phase, Phase::Switching) {
            self.answered();
        }
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if matches!(self.course.phase, Phase::Switching) {
            self.answered();
        }
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// The position in the connection's bytes.
#[derive(Debug, Default)]
struct Course {
    phase: Phase,
    /// How many heads were passed on.
    heads: u64,
}

#[derive(Debug)]
enum Phase {
    Head(Reader),
    Length(u64),
    Chunked(Chunked),
    Switching,
    /// A head was malformed: this much of the placeholder was read, this many bytes were dropped
    /// after it.
    StandIn {
        sent: usize,
        drained: usize,
    },
    /// Content was malformed.
    Failed,
}

impl Default for Phase {
    fn default() -> Phase {
        Phase::Head(Reader::default())
    }
}

impl Course {
    /// How many of the bytes may be passed on; the others must be shown again with more after them.
    fn follow(&mut self, bytes: &[u8], shared: &Shared) -> usize {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            match &mut self.phase {
                Phase::Head(reader) => match reader.read(rest) {
                    Ok(None) => return at,
                    Ok(Some(length)) => {
                        at += length;
                        self.phase = behind(reader);
                        self.heads += 1;
                    }
                    Err(malformed) => {
                        self.violated(shared, malformed, false);
                        return at;
                    }
                },
                Phase::Length(left) => {
                    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    at += length;
                    *left -= length as u64;
                    if *left > 0 {
                        return at;
                    }
                    self.phase = Phase::default();
                }
                Phase::Chunked(chunked) => {
                    let (length, outcome) = chunked.follow(rest);
                    at += length;
                    match (outcome, chunked) {
                        (Err(malformed), _) => {
                            self.violated(shared, malformed, true);
                            return at;
                        }
                        (Ok(()), Chunked::End) => self.phase = Phase::default(),
                        (Ok(()), _) => return at,
                    }
                }
                Phase::Switching | Phase::StandIn { .. } | Phase::Failed => return at,
            }
        }
    }

    fn violated(&mut self, shared: &Shared, malformed: Malformed, in_content: bool) {
        let request = if in_content {
            self.heads - 1
        } else {
            self.heads
        };
        // Nothing is followed after the first violation, so the cell is empty here.
        let _ = shared.violation.set(Violation {
            request,
            malformed,
            in_content,
        });
        self.phase = if in_content {
            Phase::Failed
        } else {
            Phase::StandIn {
                sent: 0,
                drained: 0,
            }
        };
    }
}

/// What follows a head.
fn behind(reader: &Reader) -> Phase {
    match reader.framing() {
        _ if reader.switches() => Phase::Switching,
        Framing::None => Phase::default(),
        Framing::Length(length) => Phase::Length(length),
        Framing::Chunked => Phase::Chunked(Chunked::default()),
    }
}

const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: malformed.invalid\r\nconnection: close\r\n\r\n";
const READ: usize = 8 * 1024;
const MOST_DRAINED: usize = 256 * 1024;

#[cfg(test)]
mod tests;
