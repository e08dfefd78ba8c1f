//! A body whose echoes are replaced as it passes.

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
/// As long as the body it wraps unless its length may change, and its end is that body's; after an
/// error nothing held back is released, and no pause releases it either: whoever makes the origin
/// pause (by not reading on, by a full connection) would see what it held.
pub struct ScrubBody<B> {
    body: B,
    scrubber: Scrubber,
    /// Boxed, as trailers are, because it is rare and large.
    messages: Option<Box<MessageEnds>>,
    trailers: Option<Box<HeaderMap>>,
    done: bool,
}

/// Why a body ended before its end.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScrubFault<E> {
    /// The body itself did.
    #[error(transparent)]
    Body(E),
    /// The session may be shown nothing more of it.
    #[error(transparent)]
    Guessed(#[from] Guessed),
}

impl<B> ScrubBody<B> {
    /// Wraps a body in its identity form, of the type that its fields tell.
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

    /// The same of a body whose length may change where that is short or not told: the fields tell
    /// no length then. Messages with their own lengths, parts of a content and long contents keep
    /// theirs.
    pub(in crate::credential) fn resizing(
        body: B,
        fields: &mut HeaderMap,
        scrubber: Scrubber,
    ) -> Self
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

    /// How many echoes were replaced so far.
    pub fn replaced(&self) -> u64 {
        self.scrubber.replaced()
    }

    /// Counts echoes that were replaced elsewhere in the same answer (its fields).
    pub fn add_replaced(&mut self, echoes: u64) {
        self.scrubber.replaced += echoes;
    }

    /// What may be seen once this chunk has come.
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

    /// The last of the data, then the trailers, then nothing.
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

    /// What is given out, unless the session may be shown nothing more.
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

/// Whether events come, each as little as it is.
fn is_of_events(fields: &HeaderMap) -> bool {
    let kind = fields
        .get(CONTENT_TYPE)
        .map_or(&b""[..], |kind| kind.as_bytes());
    kind.get(..EVENTS.len())
        .is_some_and(|kind| kind.eq_ignore_ascii_case(EVENTS))
}

const EVENTS: &[u8] = b"text/event-stream";

/// Content of a known length that is no longer than this is sent without one where an echo may
/// change it. What hands out credentials is short, and a long download is worth its length.
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
