//! The content of a response to the client: scrubbed, abortable, and recorded when it ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use gateway_audit::{Length, Outcome, Trail};
use gateway_body::{DecodeBody, DecodeFault};
use gateway_credential::{Guessed, ScrubBody, ScrubFault};
use gateway_message::{RangePart, fields};
use gateway_names::ReasonCode;
use gateway_origin::OriginBody;
use http_body::{Body, Frame, SizeHint};

use super::guard::{Abort, ExchangeGuard};
use super::proposals::{SpendFault, Spending};

gateway_names::faults! {
    /// Why a response's content ended early.
    #[derive(Debug, thiserror::Error)]
    pub enum Cutoff {
        /// The origin's connection failed, or did not carry valid HTTP.
        Origin(#[source] hyper::Error) = BadResponse "the origin's content broke off",
        /// The origin's content coding is malformed.
        Coding = Encoding "the origin's content coding is malformed",
        /// The session may not see the rest of the content.
        Guessed(#[from] Guessed) = inner transparent,
        /// A budget has no room for more of the content.
        Spent(#[from] SpendFault) = inner transparent,
        /// The exchange was aborted while the content streamed.
        Aborted(#[from] Abort) = inner transparent,
    }
}

/// The content of a response.
pub struct AnswerBody {
    source: AnswerSource,
    /// The part of the content that the client asked for; all of it if `None`.
    part: Option<RangePart>,
    /// An error that the client gets once it has the content before it.
    broken: Option<Box<Cutoff>>,
    /// What the request has reserved of budgets.
    spending: Option<Box<Spending>>,
    /// What to settle when the content ends; `None` for the gateway's own responses.
    end: Option<AnswerEnd>,
}

pub(super) enum AnswerSource {
    /// The gateway's own content, or none.
    Own(Option<Bytes>),
    /// No content: the connection, or the HTTP/2 stream, now carries a WebSocket.
    Switched,
    /// The origin's content unchanged: no credential was used.
    Origin(OriginBody),
    /// The origin's content, with echoes of secrets replaced.
    Scrubbed(Box<ScrubBody<OriginBody>>),
    /// The same, after decoding the content coding.
    Decoded(Box<ScrubBody<DecodeBody<OriginBody>>>),
}

/// What to settle when the content ends. The guard holds the trail, so that this value stays small.
struct AnswerEnd {
    guard: Arc<ExchangeGuard>,
    ended: Option<(Outcome, Option<ReasonCode>)>,
}

impl AnswerEnd {
    /// The outcome of content that did not break off.
    fn whole(&self) -> Outcome {
        if self.guard.meter.is_unclosed() {
            Outcome::Unclosed
        } else {
            Outcome::Whole
        }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        let Some(end) = &self.end else { return };
        // If the client reads nothing, the abort closes its connection, and this content is never
        // polled again.
        let aborted = end.guard.abort_reason();
        let unasked = aborted.map(|why| (Outcome::Cut, Some(why.reason())));
        let left = (Outcome::Aborted, Some(ReasonCode::ClientLeft));
        let (outcome, reason) = end.ended.or(unasked).unwrap_or(left);
        if let Some(spending) = self.spending.take() {
            let meter = &end.guard.meter;
            spending.settle(outcome == Outcome::Whole, meter.up() + meter.down());
        }
        let scrubbed = match &self.source {
            AnswerSource::Scrubbed(body) => body.replaced(),
            AnswerSource::Decoded(body) => body.replaced(),
            AnswerSource::Own(_) | AnswerSource::Switched | AnswerSource::Origin(_) => 0,
        };
        end.guard.end(outcome, reason, scrubbed);
    }
}

impl AnswerBody {
    /// Returns content from this source. Its end settles nothing until `settle` is called.
    pub(super) fn new(source: AnswerSource) -> Self {
        Self {
            source,
            part: None,
            broken: None,
            spending: None,
            end: None,
        }
    }

    /// Counts the content by what the request has reserved.
    pub(super) fn counts(&mut self, spending: Box<Spending>) {
        self.spending = Some(spending);
    }

    /// Limits the content to this part.
    pub(super) fn within(mut self, part: Option<RangePart>) -> Self {
        self.part = part;
        self
    }

    /// Returns the gateway's own content.
    #[must_use]
    pub fn own(content: Bytes) -> Self {
        Self::new(AnswerSource::Own((!content.is_empty()).then_some(content)))
    }

    /// Returns the empty content of a response that switches protocols.
    pub(super) fn switched() -> Self {
        Self::new(AnswerSource::Switched)
    }

    /// Ties the end of the content to the exchange's trail and guard.
    pub(super) fn settle(&mut self, trail: Trail, guard: Arc<ExchangeGuard>) {
        // Empty content is never polled.
        let ended = self.is_end_stream().then_some((Outcome::Whole, None));
        guard.ends_with_it(trail);
        self.end = Some(AnswerEnd { guard, ended });
    }

    /// Leaves out the gateway's own content, for a response to HEAD (RFC 9110 §9.3.2).
    ///
    /// HTTP/1.1 would not write it. HTTP/2 would, and clients treat it as a protocol error.
    pub(super) fn leave_out(&mut self) {
        if let AnswerSource::Own(content) = &mut self.source
            && content.take().is_some()
            && let Some(end) = &mut self.end
        {
            end.ended = Some((Outcome::Whole, None));
        }
    }

    /// Returns the content's length, as the head announces it.
    #[must_use]
    pub fn length(&self) -> Length {
        match self.source {
            AnswerSource::Switched => Length::Switched,
            _ => self.size_hint().exact().map_or(Length::Open, Length::Known),
        }
    }

    /// Polls the source for bytes of the part that the client asked for.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cutoff>>> {
        loop {
            if self.part.is_some_and(|part| part.length == 0) {
                return Poll::Ready(None);
            }
            let frame = ready!(self.poll_source(cx));
            let Some(part) = &mut self.part else {
                return Poll::Ready(frame);
            };
            let mut data = match frame {
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                end => return Poll::Ready(end),
            };
            let skipped = data
                .len()
                .min(usize::try_from(part.skip).unwrap_or(usize::MAX));
            data.advance(skipped);
            data.truncate(usize::try_from(part.length).unwrap_or(usize::MAX));
            part.skip -= skipped as u64;
            part.length -= data.len() as u64;
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }

    /// Polls the source. If it breaks off, the client gets the content before the error first:
    /// hyper writes nothing more after an error.
    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cutoff>>> {
        if let Some(broken) = self.broken.take() {
            return Poll::Ready(Some(Err(*broken)));
        }
        match ready!(self.poll_part(cx)) {
            Some(Err(broken @ Cutoff::Origin(_))) => {
                self.broken = Some(Box::new(broken));
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            frame => Poll::Ready(frame),
        }
    }

    /// Polls for a frame that every budget has room for.
    fn poll_counted(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cutoff>>> {
        let Some(spending) = &mut self.spending else {
            return self.poll_flushed(cx);
        };
        let frame = match spending.waiting.take() {
            Some(frame) => frame,
            None => match ready!(self.poll_flushed(cx)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            },
        };
        let Some(spending) = &mut self.spending else {
            return Poll::Ready(Some(Ok(frame)));
        };
        let data = frame.data_ref().map_or(&[][..], |data| data);
        match spending.poll_room(cx, data) {
            Poll::Pending => {
                spending.waiting = Some(frame);
                Poll::Pending
            }
            Poll::Ready(Ok(())) => Poll::Ready(Some(Ok(frame))),
            Poll::Ready(Err(spent)) => Poll::Ready(Some(Err(spent.into()))),
        }
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cutoff>>> {
        match &mut self.source {
            AnswerSource::Own(content) => {
                Poll::Ready(content.take().map(|content| Ok(Frame::data(content))))
            }
            AnswerSource::Switched => Poll::Ready(None),
            AnswerSource::Origin(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(Cutoff::Origin)))
            }
            AnswerSource::Scrubbed(body) => {
                let frame = ready!(Pin::new(body.as_mut()).poll_frame(cx));
                Poll::Ready(
                    frame.map(|frame| frame.map_err(|fault| scrub_fault(fault, Cutoff::Origin))),
                )
            }
            AnswerSource::Decoded(body) => {
                let frame = ready!(Pin::new(body.as_mut()).poll_frame(cx));
                Poll::Ready(
                    frame.map(|frame| frame.map_err(|fault| scrub_fault(fault, decode_fault))),
                )
            }
        }
    }
}

fn scrub_fault<E>(fault: ScrubFault<E>, broken: impl FnOnce(E) -> Cutoff) -> Cutoff {
    match fault {
        ScrubFault::Body(fault) => broken(fault),
        ScrubFault::Guessed(guessed) => Cutoff::Guessed(guessed),
    }
}

fn decode_fault(fault: DecodeFault<hyper::Error>) -> Cutoff {
    match fault {
        DecodeFault::Body(error) => Cutoff::Origin(error),
        DecodeFault::Coding(_) => Cutoff::Coding,
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Cutoff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cutoff>>> {
        let this = &mut *self;
        let polled = match this.poll_counted(cx) {
            Poll::Ready(frame) => Poll::Ready(frame),
            Poll::Pending => match &mut this.end {
                Some(end) => end
                    .guard
                    .poll_aborted(cx)
                    .map(|why| Some(Err(Cutoff::Aborted(why)))),
                None => Poll::Pending,
            },
        };
        let mut frame = ready!(polled);
        let Some(end) = &mut this.end else {
            return Poll::Ready(frame);
        };
        if let (Some(Ok(_) | Err(Cutoff::Origin(_))), Some(why)) =
            (&frame, end.guard.abort_reason())
        {
            // A stream that always has more data never waits for the abort, so it is checked here
            // too. And a revocation ends the connection to the origin, which may be noticed first.
            frame = Some(Err(Cutoff::Aborted(why)));
        }
        match &mut frame {
            // The request's content was cut, and that is why the origin ended, if it did.
            None | Some(Err(Cutoff::Origin(_))) if end.guard.meter.fault().is_some() => {
                let fault = end.guard.meter.fault().map(|fault| fault.reason);
                end.ended = Some((Outcome::Cut, fault));
            }
            None => end.ended = Some((end.whole(), None)),
            Some(Err(broken)) => end.ended = Some((Outcome::Cut, Some(broken.reason()))),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    end.guard.meter.add_down(data.len());
                } else if let Some(trailers) = frame.trailers_mut() {
                    fields::filter_response_trailers(trailers);
                }
            }
        }
        if matches!(frame, Some(Ok(_)))
            && this.is_end_stream()
            && let Some(end) = &mut this.end
        {
            end.ended = Some((end.whole(), None));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        if self
            .spending
            .as_ref()
            .is_some_and(|one| one.waiting.is_some())
        {
            return false;
        }
        if self.part.is_some_and(|part| part.length == 0) {
            return true;
        }
        match &self.source {
            AnswerSource::Own(content) => content.is_none(),
            AnswerSource::Switched => true,
            AnswerSource::Origin(body) => body.is_end_stream(),
            AnswerSource::Scrubbed(body) => body.is_end_stream(),
            AnswerSource::Decoded(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        if let Some(part) = self.part {
            return SizeHint::with_exact(part.length);
        }
        match &self.source {
            AnswerSource::Own(content) => {
                SizeHint::with_exact(content.as_ref().map_or(0, |content| content.len() as u64))
            }
            AnswerSource::Switched => SizeHint::with_exact(0),
            AnswerSource::Origin(body) => body.size_hint(),
            AnswerSource::Scrubbed(body) => body.size_hint(),
            AnswerSource::Decoded(body) => body.size_hint(),
        }
    }
}
