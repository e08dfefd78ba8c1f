//! Searches one response for secrets that its session must not see.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;

use super::scrub::{EchoSearch, Guessed, ScrubBody, ScrubFrames, Scrubber};
use super::search_snapshot::SearchSnapshot;
use super::signatures::Signature;

/// The search of one response.
#[derive(Clone)]
pub struct Redactor {
    /// The session's search. It is read when the response arrives, because a secret may have been
    /// renewed and lent again after the request was sent.
    pub(super) searched: Arc<ArcSwap<SearchSnapshot>>,
    /// Whether the request failed, so that signatures are searched for too.
    pub(super) failed: bool,
    /// The signatures made for the request.
    pub(super) made: Vec<Arc<Signature>>,
    /// Whether a credential signs for the origin, which could then repeat a signature.
    pub(super) signed_for: bool,
    pub(super) strict: bool,
    pub(super) signed: bool,
}

impl Redactor {
    /// Whether a response that cannot be searched must be refused.
    ///
    /// This is so if the origin may know a secret, from this exchange or any other, of any session.
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// Returns the redactor for the response to a failed request. Services then often repeat what
    /// they were sent, including signatures.
    #[must_use]
    pub fn of_failure(self) -> Self {
        if !self.signed_for || self.searched.load().signatures.are_none() {
            return self;
        }
        Self {
            failed: true,
            // An error response is short, so it needs no content coding.
            strict: self.strict || self.signed,
            signed: false,
            ..self
        }
    }

    /// Returns how many bytes around a range are read, so that an echo is read whole; `None` if an
    /// echo may be longer.
    pub(super) fn margin(&self) -> Option<u64> {
        const MARGIN: usize = 64 << 10;
        let longest = self.searched.load().echoes.longest();
        (longest <= MARGIN).then_some(MARGIN as u64)
    }

    fn echoes(&self) -> Arc<EchoSearch> {
        self.echoes_of(&self.searched.load())
    }

    fn echoes_of(&self, searched: &SearchSnapshot) -> Arc<EchoSearch> {
        if self.failed {
            searched.with_signatures(&self.made)
        } else {
            searched.echoes.clone()
        }
    }

    /// Returns a scrubber for content, which follows changes of the session's search.
    fn scrubber(&self) -> Scrubber {
        let (lent, mut seen) = (self.clone(), self.searched.load_full());
        let echoes = self.echoes_of(&seen);
        Scrubber::new(echoes).following(Box::new(move || {
            let now = lent.searched.load();
            if Arc::ptr_eq(&now, &seen) {
                return None;
            }
            seen = Arc::clone(&now);
            Some(lent.echoes_of(&seen))
        }))
    }

    /// Whether the origin received only a signature, so that its content codings can stay.
    ///
    /// The origin then knows only the access key id and the session token, which are worthless
    /// without the secret key.
    pub fn is_signed(&self) -> bool {
        self.signed
    }

    /// Replaces echoes in fields and returns their number.
    ///
    /// # Errors
    /// [`Guessed`] if the session may see no part of the response.
    pub fn scrub_fields(&self, fields: &mut HeaderMap) -> Result<u64, Guessed> {
        self.echoes().scrub_fields(fields)
    }

    /// Replaces echoes in complete content.
    ///
    /// # Errors
    /// Same as [`Redactor::scrub_fields`].
    pub fn scrub_whole(&self, content: Bytes) -> Result<Bytes, Guessed> {
        let mut scrubber = Scrubber::new(self.echoes()).resizing();
        let settled = scrubber.push(content);
        let rest = scrubber.finish();
        scrubber.check()?;
        Ok(if rest.is_empty() {
            settled
        } else {
            [settled, rest].concat().into()
        })
    }

    /// Replaces echoes in streamed content.
    ///
    /// Reads the content type from the fields, and removes the length from them if it may change.
    pub fn scrub<B: Body>(&self, body: B, fields: &mut HeaderMap) -> ScrubBody<B> {
        ScrubBody::resizing(body, fields, self.scrubber())
    }

    /// Replaces echoes in WebSocket messages from the origin.
    pub fn scrub_frames(&self) -> ScrubFrames {
        ScrubFrames::by(self.scrubber())
    }
}
