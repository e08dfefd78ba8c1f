//! The content of a response. Its connection returns to the pool when the content has ended.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::dialer::Dialer;
use super::pool::PoolKey;
use super::sender::{Http1, StreamSlot};
use crate::body::Meter;

/// Returns an HTTP/1.1 connection to the pool.
pub(super) struct Return {
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
    ended: bool,
    back: Option<Return>,
    /// Kept for as long as the stream is in use.
    _stream: Option<StreamSlot>,
}

impl OriginBody {
    pub(super) fn new(inner: Incoming, back: Option<Return>, stream: Option<StreamSlot>) -> Self {
        Self {
            inner,
            ended: false,
            back,
            _stream: stream,
        }
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        self.ended |= match &frame {
            Poll::Ready(Some(Ok(frame))) => frame.is_trailers(),
            Poll::Ready(end) => end.is_none(),
            Poll::Pending => false,
        };
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Decides whether a connection of HTTP/1.1 goes back. Whoever reads or sends content asks for no
/// more once it has the last byte, so `None` is only one of the ways to tell the end:
///
/// | direction | over with |
/// |---|---|
/// | request | no content; the last byte of its length; a last piece that says so; trailers; `None` |
/// | response | no content; the last byte of its length; trailers; `None` |
///
/// It does not if the response is over before the request, nor if either fails.
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
