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
        if matches!(frame, Poll::Ready(None)) {
            self.ended = true;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

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
