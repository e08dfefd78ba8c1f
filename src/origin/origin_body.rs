//! The content of a response. Its connection returns to the pool after the content has ended.

use std::collections::VecDeque;
use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use gateway_body::Meter;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::dialer::Dialer;
use super::pool::PoolKey;
use super::sender::{Http1, StreamSlot};

/// The values with which an HTTP/1.1 connection returns to the pool.
pub(super) struct PoolReturn {
    pub(super) http1: Box<Http1>,
    pub(super) key: Arc<PoolKey>,
    pub(super) dialer: Arc<Dialer>,
    pub(super) meter: Arc<Meter>,
    pub(super) had_content: bool,
}

/// The content of a response. Its connection returns to the pool when both directions have ended
/// properly.
pub struct OriginBody {
    inner: Incoming,
    /// Frames that were read ahead, and are returned again.
    looked_at: VecDeque<Result<Frame<Bytes>, hyper::Error>>,
    ended: bool,
    end: ContentEnd,
    back: Option<PoolReturn>,
    /// Kept for as long as the stream is in use.
    _stream: Option<StreamSlot>,
}

/// How the end of content is delimited (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentEnd {
    /// A length, a last chunk, or the end of an HTTP/2 stream.
    Framed,
    /// The end of the connection.
    Connection,
    /// The end of the connection, without a `close_notify` of TLS.
    Unclosed,
}

impl OriginBody {
    pub(super) fn new(
        inner: Incoming,
        end: ContentEnd,
        back: Option<PoolReturn>,
        stream: Option<StreamSlot>,
    ) -> Self {
        Self {
            inner,
            looked_at: VecDeque::new(),
            ended: false,
            end,
            back,
            _stream: stream,
        }
    }

    /// Puts frames that were read ahead back in front.
    pub fn put_back(&mut self, frames: VecDeque<Result<Frame<Bytes>, hyper::Error>>) {
        self.looked_at = frames;
    }

    fn bytes_put_back(&self) -> u64 {
        let data = self.looked_at.iter().flatten().filter_map(Frame::data_ref);
        data.map(|data| data.len() as u64).sum()
    }

    /// Treats the end of a connection without `close_notify` as the end of close-delimited content.
    /// An attacker on the path may have cut it, which the record says. Clients that talk to such
    /// origins directly accept it too.
    fn end_unclosed(&mut self) {
        self.end = ContentEnd::Unclosed;
        if let Some(back) = &self.back {
            back.meter.end_unclosed();
        }
    }
}

/// Whether TLS ended without `close_notify` (RFC 8446 §6.1).
fn is_without_notify(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    cause.is_some_and(|cause: &io::Error| cause.kind() == io::ErrorKind::UnexpectedEof)
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(frame) = self.looked_at.pop_front() {
            return Poll::Ready(Some(frame));
        }
        if self.end == ContentEnd::Unclosed {
            return Poll::Ready(None);
        }
        let mut frame = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Err(error))) = &frame
            && self.end == ContentEnd::Connection
            && is_without_notify(error)
        {
            self.end_unclosed();
            frame = Poll::Ready(None);
        }
        self.ended |= match &frame {
            Poll::Ready(Some(Ok(frame))) => frame.is_trailers(),
            Poll::Ready(end) => end.is_none(),
            Poll::Pending => false,
        };
        frame
    }

    fn is_end_stream(&self) -> bool {
        let is_over = self.end == ContentEnd::Unclosed || self.inner.is_end_stream();
        self.looked_at.is_empty() && is_over
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, more) = (self.inner.size_hint(), self.bytes_put_back());
        // The upper bound first: a hint refuses an upper bound below the lower.
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + more);
        }
        hint.set_lower(hint.lower() + more);
        hint
    }
}

/// Decides whether an HTTP/1.1 connection returns to the pool. A reader or sender of content does
/// not poll again after the last byte, so `None` is only one of the signs of the end:
///
/// | direction | over with |
/// |---|---|
/// | request | no content; the last byte of its length; a last piece that says so; trailers; `None`
/// |
/// | response | no content; the last byte of its length; trailers; `None` |
///
/// The connection is closed if the response ends before the request, or if either fails.
impl Drop for OriginBody {
    fn drop(&mut self) {
        let ended = self.ended || self.inner.is_end_stream();
        if let Some(back) = self.back.take()
            && ended
            && (!back.had_content || back.meter.up_ended())
        {
            back.dialer.pool.give(back.key, back.http1);
        }
    }
}
