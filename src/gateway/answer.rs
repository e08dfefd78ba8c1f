//! The answer on its way to the client: cleaned, scrubbed, guarded, and recorded when it ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderName, HeaderValue,
};
use http::{Method, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Limited};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::guard::{Abort, ExchangeGuard};
use super::refusal::Refusal;
use crate::audit::{Length, Outcome, Trail};
use crate::body::{Coding, DecodeBody, DecodeFault, Decoder, Share};
use crate::credential::{self, Guessed, MintFailure, Redactor, ScrubBody, ScrubFault};
use crate::message::fields;
use crate::names::ReasonCode;
use crate::origin::{self, OriginBody};

/// RFC 9530: digests of content that is changed by scrubbing or decoding.
const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("content-md5"),
];

/// The longest answer that holds temporary credentials, and for how long it may come; a session
/// token has some 2 KiB.
const LONGEST_MINTED: usize = 64 * 1024;
const MINTED_WITHIN: Duration = Duration::from_secs(30);

/// Why an answer's content ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The origin's connection failed, or what came was not HTTP.
    #[error("the origin's content broke off")]
    Origin(#[source] hyper::Error),
    /// The origin's content coding is malformed.
    #[error("the origin's content coding is malformed")]
    Coding,
    /// The session may be shown nothing more of it.
    #[error(transparent)]
    Guessed(#[from] Guessed),
    /// It was aborted while it streamed.
    #[error(transparent)]
    Aborted(#[from] Abort),
}

impl Broken {
    fn reason(&self) -> ReasonCode {
        match self {
            Self::Origin(_) => ReasonCode::BadResponse,
            Self::Coding => ReasonCode::Encoding,
            Self::Guessed(guessed) => guessed.reason(),
            Self::Aborted(why) => why.reason(),
        }
    }
}

/// The content of an answer.
pub struct AnswerBody {
    source: Source,
    /// What ends with the content; `None` for the gateway's own answers.
    tail: Option<Tail>,
}

enum Source {
    /// The gateway's own, or none.
    Own(Option<Bytes>),
    /// None: the connection, or the stream of HTTP/2, carries a WebSocket now.
    Switched,
    /// The origin's as it is: nothing was lent.
    Origin(OriginBody),
    /// With echoes of what was lent replaced.
    Scrubbed(Box<ScrubBody<OriginBody>>),
    /// The same behind a content coding, which is undone.
    Decoded(Box<ScrubBody<DecodeBody<OriginBody>>>),
}

/// What is settled when the content ends. The trail is with the guard, so that the content stays
/// small.
struct Tail {
    guard: Arc<ExchangeGuard>,
    /// Waited for only once the content itself is waited for.
    aborted: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    ended: Option<(Outcome, Option<ReasonCode>)>,
}

impl Tail {
    fn poll_aborted(&mut self, cx: &mut Context<'_>) -> Poll<Abort> {
        let guard = &self.guard;
        let aborted = self
            .aborted
            .get_or_insert_with(|| Box::pin(guard.wait_for_abort()));
        ready!(aborted.as_mut().poll(cx));
        // The cause is set before the token is cancelled.
        Poll::Ready(guard.abort_reason().unwrap_or(Abort::Revoked))
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        let Some(tail) = &self.tail else { return };
        // A client that takes nothing is cut with its connection, and never asks for the content
        // that would say so.
        let aborted = tail.guard.abort_reason();
        let unasked = aborted.map(|why| (Outcome::Cut, Some(why.reason())));
        let left = (Outcome::Aborted, Some(ReasonCode::ClientLeft));
        let (outcome, reason) = tail.ended.or(unasked).unwrap_or(left);
        let scrubbed = match &self.source {
            Source::Scrubbed(body) => body.replaced(),
            Source::Decoded(body) => body.replaced(),
            Source::Own(_) | Source::Switched | Source::Origin(_) => 0,
        };
        tail.guard.end(outcome, reason, scrubbed);
    }
}

impl AnswerBody {
    /// Content of the gateway's own.
    #[must_use]
    pub fn own(content: Bytes) -> Self {
        Self {
            source: Source::Own((!content.is_empty()).then_some(content)),
            tail: None,
        }
    }

    /// What stands in place of content where the protocol is switched.
    pub(super) fn switched() -> Self {
        Self {
            source: Source::Switched,
            tail: None,
        }
    }

    /// Ties the end of the content to the exchange's trail and guard.
    pub(super) fn settle(&mut self, trail: Trail, guard: Arc<ExchangeGuard>) {
        // Content that is over before it begins is never polled.
        let ended = self.is_end_stream().then_some((Outcome::Whole, None));
        guard.ends_with_it(trail);
        self.tail = Some(Tail {
            guard,
            aborted: None,
            ended,
        });
    }

    /// What the head announces of the content's length.
    #[must_use]
    pub fn length(&self) -> Length {
        match self.source {
            Source::Switched => Length::Switched,
            _ => self.size_hint().exact().map_or(Length::Open, Length::Known),
        }
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut self.source {
            Source::Own(content) => {
                Poll::Ready(content.take().map(|content| Ok(Frame::data(content))))
            }
            Source::Switched => Poll::Ready(None),
            Source::Origin(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(Broken::Origin)))
            }
            Source::Scrubbed(body) => {
                let frame = ready!(Pin::new(body.as_mut()).poll_frame(cx));
                Poll::Ready(
                    frame.map(|frame| frame.map_err(|fault| scrub_fault(fault, Broken::Origin))),
                )
            }
            Source::Decoded(body) => {
                let frame = ready!(Pin::new(body.as_mut()).poll_frame(cx));
                Poll::Ready(
                    frame.map(|frame| frame.map_err(|fault| scrub_fault(fault, decode_fault))),
                )
            }
        }
    }
}

fn scrub_fault<E>(fault: ScrubFault<E>, broken: impl FnOnce(E) -> Broken) -> Broken {
    match fault {
        ScrubFault::Body(fault) => broken(fault),
        ScrubFault::Guessed(guessed) => Broken::Guessed(guessed),
    }
}

fn decode_fault(fault: DecodeFault<hyper::Error>) -> Broken {
    match fault {
        DecodeFault::Body(error) => Broken::Origin(error),
        DecodeFault::Coding(_) => Broken::Coding,
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        let polled = match this.poll_source(cx) {
            Poll::Ready(frame) => Poll::Ready(frame),
            Poll::Pending => match &mut this.tail {
                Some(tail) => tail
                    .poll_aborted(cx)
                    .map(|why| Some(Err(Broken::Aborted(why)))),
                None => Poll::Pending,
            },
        };
        let mut frame = ready!(polled);
        let Some(tail) = &mut this.tail else {
            return Poll::Ready(frame);
        };
        if let (Some(Ok(_)), Some(why)) = (&frame, tail.guard.abort_reason()) {
            // A stream that always has more never waits; it is cut all the same.
            frame = Some(Err(Broken::Aborted(why)));
        }
        match &mut frame {
            None => tail.ended = Some((Outcome::Whole, None)),
            Some(Err(broken)) => tail.ended = Some((Outcome::Cut, Some(broken.reason()))),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    tail.guard.meter.add_down(data.len());
                } else if let Some(trailers) = frame.trailers_mut() {
                    fields::filter_response_trailers(trailers);
                }
            }
        }
        if matches!(frame, Some(Ok(_)))
            && this.is_end_stream()
            && let Some(tail) = &mut this.tail
        {
            tail.ended = Some((Outcome::Whole, None));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Own(content) => content.is_none(),
            Source::Switched => true,
            Source::Origin(body) => body.is_end_stream(),
            Source::Scrubbed(body) => body.is_end_stream(),
            Source::Decoded(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(content) => {
                SizeHint::with_exact(content.as_ref().map_or(0, |content| content.len() as u64))
            }
            Source::Switched => SizeHint::with_exact(0),
            Source::Origin(body) => body.size_hint(),
            Source::Scrubbed(body) => body.size_hint(),
            Source::Decoded(body) => body.size_hint(),
        }
    }
}

/// Cleans an origin's answer: what ends at this hop goes, and every echo of what was lent is
/// replaced, in the fields now and in the content as it streams.
///
/// # Errors
/// [`origin::Error::Coding`] where the origin may know a secret and the content's coding cannot be
/// undone; [`origin::Error::DecodingBudget`] where there is no room for that in what `decoding` is
/// a share of; [`credential::Error::Guessed`] where the session may be shown nothing of the answer.
pub fn clean(
    response: Response<OriginBody>,
    method: &Method,
    lent: Option<&Redactor>,
    decoding: Share,
) -> Result<Response<AnswerBody>, Refusal> {
    let (mut parts, body) = response.into_parts();
    // The reason phrase among them: it is the origin's text (threats I02).
    parts.extensions.clear();
    fields::strip_response(&mut parts.headers);
    let Some(lent) = lent else {
        return Ok(Response::from_parts(
            parts,
            AnswerBody {
                source: Source::Origin(body),
                tail: None,
            },
        ));
    };
    let echoes = lent
        .scrub_fields(&mut parts.headers)
        .map_err(credential::Error::from)?;
    let bare = *method == Method::HEAD || body.is_end_stream();
    // A digest that the client checks is over the coded form, and in an answer that succeeds
    // nothing is echoed of a signature.
    let as_it_is = lent.is_signed() && parts.status.is_success();
    let codings = match Coding::parse_list(&parts.headers) {
        _ if as_it_is => Vec::new(),
        Ok(codings) => codings,
        // What was lent earlier is looked for as far as it can be seen; what is lent now must be
        // found.
        Err(_) if !lent.is_strict() => Vec::new(),
        Err(_) => return Err(origin::Error::Coding.into()),
    };
    let partial = parts.status == StatusCode::PARTIAL_CONTENT;
    let source = if codings.is_empty() || bare || (partial && !lent.is_strict()) {
        let mut body = lent.scrub(body, &mut parts.headers);
        body.add_replaced(echoes);
        Source::Scrubbed(Box::new(body))
    } else {
        // A part of an encoded representation cannot be decoded by itself.
        if partial {
            return Err(origin::Error::Coding.into());
        }
        let decoder = Decoder::new(&codings)
            .map_err(|_| origin::Error::Coding)?
            .within(decoding)
            .map_err(|_| origin::Error::DecodingBudget)?;
        as_identity(&mut parts.headers);
        let mut body = lent.scrub(DecodeBody::new(body, decoder), &mut parts.headers);
        body.add_replaced(echoes);
        Source::Decoded(Box::new(body))
    };
    Ok(Response::from_parts(
        parts,
        AnswerBody { source, tail: None },
    ))
}

/// Holds an answer with temporary credentials, and gives it with what `keep` makes of its content.
///
/// # Errors
/// [`credential::Error::Minted`] where it cannot be held or read; nothing of it is given on then.
pub async fn minted(
    response: Response<OriginBody>,
    lent: Option<&Redactor>,
    keep: impl FnOnce(&str, &[u8]) -> Result<Bytes, credential::Error>,
) -> Result<Response<AnswerBody>, credential::Error> {
    let (mut parts, body) = response.into_parts();
    parts.extensions.clear();
    fields::strip_response(&mut parts.headers);
    if parts.headers.contains_key(CONTENT_ENCODING) {
        return Err(MintFailure::Unheld.into());
    }
    let collected = Limited::new(body, LONGEST_MINTED).collect();
    let content = tokio::time::timeout(MINTED_WITHIN, collected).await;
    let Ok(Ok(content)) = content else {
        return Err(MintFailure::Unheld.into());
    };
    let kind = parts
        .headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let content = keep(kind.unwrap_or_default(), &content.to_bytes())?;
    as_identity(&mut parts.headers);
    let summed = |name: &&HeaderName| {
        name.as_str() == "x-amz-crc32" || name.as_str().starts_with("x-amz-checksum-")
    };
    let sums: Vec<HeaderName> = parts.headers.keys().filter(summed).cloned().collect();
    for name in sums {
        parts.headers.remove(name);
    }
    let content = match lent {
        Some(lent) => {
            lent.scrub_fields(&mut parts.headers)?;
            lent.scrub_whole(content)?
        }
        None => content,
    };
    parts
        .headers
        .insert(CONTENT_LENGTH, HeaderValue::from(content.len()));
    parts
        .headers
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(Response::from_parts(parts, AnswerBody::own(content)))
}

/// RFC 9110 §8.4, §8.8.3: without its coding it is another representation, of another length.
fn as_identity(fields: &mut HeaderMap) {
    for name in [CONTENT_ENCODING, CONTENT_LENGTH, ACCEPT_RANGES] {
        fields.remove(name);
    }
    for name in DIGESTS {
        fields.remove(name);
    }
    let weak = fields.get(ETAG).and_then(|tag| {
        let tag = tag.as_bytes();
        (!tag.starts_with(b"W/"))
            .then(|| HeaderValue::from_bytes(&[b"W/", tag].concat()).ok())
            .flatten()
    });
    if let Some(weak) = weak {
        fields.insert(ETAG, weak);
    }
}
