//! A body whose echoes are replaced as it passes.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::Scrubber;

/// A body with phantoms in place of echoes, in data and trailers.
///
/// As long as the body it wraps, and its end and errors are that body's; after an error nothing held back is released.
pub struct ScrubBody<B> {
    body: B,
    scrubber: Scrubber,
    /// Boxed, because they are rare and large.
    trailers: Option<Box<HeaderMap>>,
    done: bool,
    /// Runs while the body pauses and something is held back.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<B> ScrubBody<B> {
    /// Wraps a body in its identity form.
    pub fn new(body: B, scrubber: Scrubber) -> Self {
        Self {
            body,
            scrubber,
            trailers: None,
            done: false,
            pause: None,
        }
    }

    /// How many echoes were replaced so far.
    pub fn replaced(&self) -> u64 {
        self.scrubber.replaced()
    }

    /// Counts echoes that were replaced elsewhere in the same answer (its fields).
    pub fn add_replaced(&mut self, echoes: u64) {
        self.scrubber.replaced += echoes;
    }

    /// What of the held back may be seen, once the pause is a long one.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        if self.scrubber.held() == 0 {
            return Poll::Pending;
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(PAUSE)));
        ready!(pause.as_mut().poll(cx));
        self.pause = None;
        let shown = self.scrubber.release();
        if shown.is_empty() {
            Poll::Pending
        } else {
            Poll::Ready(shown)
        }
    }

    /// The last of the data, then the trailers, then nothing.
    fn last(&mut self) -> Option<Frame<Bytes>> {
        let rest = self.scrubber.finish();
        if !rest.is_empty() {
            return Some(Frame::data(rest));
        }
        self.trailers.take().map(|mut fields| {
            self.scrubber.replaced += self.scrubber.echoes.scrub_fields(&mut fields);
            Frame::trailers(*fields)
        })
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ScrubBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        while !this.done {
            let frame = match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Pending => return this.poll_pause(cx).map(|shown| Some(Ok(Frame::data(shown)))),
                Poll::Ready(None) => {
                    this.done = true;
                    break;
                }
                Poll::Ready(Some(Err(error))) => {
                    this.done = true;
                    this.scrubber.forget();
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            this.pause = None;
            match frame.into_data() {
                Ok(chunk) => {
                    let settled = this.scrubber.push(chunk);
                    if !settled.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(settled))));
                    }
                }
                Err(frame) => {
                    this.trailers = frame.into_trailers().ok().map(Box::new);
                    this.done = true;
                }
            }
        }
        Poll::Ready(this.last().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        (self.done || self.body.is_end_stream()) && self.scrubber.held() == 0 && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.scrubber.held() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}

/// How long an origin may be silent in the midst of a possible echo before it counts as waiting for the client: an echo
/// that is cut by the network alone follows sooner.
const PAUSE: Duration = Duration::from_millis(20);
