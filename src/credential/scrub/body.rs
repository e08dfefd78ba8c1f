//! A body whose echoes are replaced in transit.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};

use super::{Guessed, Scrubber, messages::MessageEnds};

/// A body with phantoms in place of echoes, in data and trailers.
///
/// Its length and end are those of the wrapped body, unless its length may change. After an error,
/// no held bytes are released, and a pause does not release them either: a workload that can make
/// the origin pause (by not reading, or by filling the connection) would otherwise see them.
pub struct ScrubBody<B> {
    body: B,
    scrubber: Scrubber,
    /// Boxed, as trailers are, because it is rare and large.
    messages: Option<Box<MessageEnds>>,
    trailers: Option<Box<HeaderMap>>,
    done: bool,
}

/// Why a body ended early.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScrubFault<E> {
    /// The wrapped body failed.
    #[error(transparent)]
    Body(E),
    /// The session may see no more of the body.
    #[error(transparent)]
    Guessed(#[from] Guessed),
}

impl<B> ScrubBody<B> {
    /// Wraps a body without content coding. The content type is taken from the fields.
    pub fn new(body: B, fields: &HeaderMap, mut scrubber: Scrubber) -> Self {
        if is_of_events(fields) {
            scrubber.look_closely();
        }
        Self {
            body,
            scrubber,
            messages: MessageEnds::told_by(fields).map(Box::new),
            trailers: None,
            done: false,
        }
    }

    /// Wraps a body whose length may change, if it is short or of unknown length.
    ///
    /// The length is then removed from the fields. Messages with their own lengths, partial content
    /// and long content keep their length.
    pub(crate) fn resizing(body: B, fields: &mut HeaderMap, scrubber: Scrubber) -> Self
    where
        B: Body,
    {
        let mut scrubbed = Self::new(body, fields, scrubber);
        let told = scrubbed.body.size_hint().exact();
        let bare = scrubbed.body.is_end_stream();
        let may_change = told.is_none_or(|length| length <= MOST_RESIZED);
        let keeps = scrubbed.messages.is_some() || fields.contains_key(CONTENT_RANGE);
        if scrubbed.scrubber.search.resizes() && may_change && !keeps && !bare {
            scrubbed.scrubber = scrubbed.scrubber.resizing();
            fields.remove(CONTENT_LENGTH);
        }
        scrubbed
    }

    /// Returns how many echoes have been replaced so far.
    pub fn replaced(&self) -> u64 {
        self.scrubber.replaced()
    }

    /// Adds echoes that were replaced in other parts of the response (its fields).
    pub fn add_replaced(&mut self, echoes: u64) {
        self.scrubber.replaced += echoes;
    }

    /// Returns the bytes that may be shown after this chunk.
    fn settle(&mut self, chunk: Bytes) -> Bytes {
        let ended = (self.messages.as_mut()).is_some_and(|messages| messages.pass(&chunk));
        let settled = self.scrubber.push(chunk);
        if !ended || self.scrubber.held() == 0 {
            return settled;
        }
        let rest = self.scrubber.release();
        if settled.is_empty() {
            return rest;
        }
        [settled, rest].concat().into()
    }

    /// Returns the last of the data, then the trailers, then nothing.
    fn last(&mut self) -> Result<Option<Frame<Bytes>>, Guessed> {
        let rest = self.scrubber.finish();
        if !rest.is_empty() {
            return Ok(Some(Frame::data(rest)));
        }
        let Some(mut fields) = self.trailers.take() else {
            return Ok(None);
        };
        self.scrubber.renew();
        self.scrubber.replaced += self.scrubber.search.scrub_fields(&mut fields)?;
        Ok(Some(Frame::trailers(*fields)))
    }

    /// Passes a frame on, unless the session may see no more.
    fn checked(&mut self, frame: Option<Frame<Bytes>>) -> Option<Result<Frame<Bytes>, Guessed>> {
        let frame = frame?;
        match self.scrubber.check() {
            Ok(()) => Some(Ok(frame)),
            Err(guessed) => {
                self.fail();
                Some(Err(guessed))
            }
        }
    }

    fn fail(&mut self) {
        self.done = true;
        self.trailers = None;
        self.scrubber.forget();
    }
}

/// Whether the content is a stream of events, which may be short.
fn is_of_events(fields: &HeaderMap) -> bool {
    let kind = fields
        .get(CONTENT_TYPE)
        .map_or(&b""[..], |kind| kind.as_bytes());
    kind.get(..EVENTS.len())
        .is_some_and(|kind| kind.eq_ignore_ascii_case(EVENTS))
}

const EVENTS: &[u8] = b"text/event-stream";

/// Content of known length, up to this size, loses its length if an echo may change it. Responses
/// that contain credentials are short, and a long download should keep its length.
const MOST_RESIZED: u64 = 64 << 10;

impl<B: Body<Data = Bytes> + Unpin> Body for ScrubBody<B> {
    type Data = Bytes;
    type Error = ScrubFault<B::Error>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        while !this.done {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                None => this.done = true,
                Some(Err(error)) => {
                    this.fail();
                    return Poll::Ready(Some(Err(ScrubFault::Body(error))));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(chunk) => {
                        let settled = this.settle(chunk);
                        if !settled.is_empty() {
                            let checked = this.checked(Some(Frame::data(settled)));
                            return Poll::Ready(
                                checked.map(|frame| frame.map_err(ScrubFault::from)),
                            );
                        }
                    }
                    Err(frame) => {
                        this.trailers = frame.into_trailers().ok().map(Box::new);
                        this.done = true;
                    }
                },
            }
        }
        let checked = match this.last() {
            Ok(frame) => this.checked(frame),
            Err(guessed) => {
                this.fail();
                Some(Err(guessed))
            }
        };
        Poll::Ready(checked.map(|frame| frame.map_err(ScrubFault::from)))
    }

    fn is_end_stream(&self) -> bool {
        (self.done || self.body.is_end_stream())
            && self.scrubber.held() == 0
            && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.scrubber.held() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        if self.scrubber.resizes {
            return hint;
        }
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}
