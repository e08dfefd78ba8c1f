//! Searches one answer for what its session must not be shown.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;

use super::scrub::{EchoSearch, Guessed, ScrubBody, ScrubFrames, Scrubber};
use super::searched::Searched;
use super::signatures::Signature;

/// What is looked for in the answer.
#[derive(Clone)]
pub struct Redactor {
    /// The session's search. What it has when the answer comes is looked for, and not only what it
    /// had when the request went out: a secret may have been renewed, and lent again, meanwhile.
    pub(super) searched: Arc<ArcSwap<Searched>>,
    /// Whether the request failed, so that signatures are looked for, too.
    pub(super) failed: bool,
    /// The signatures that were made for the request.
    pub(super) made: Vec<Arc<Signature>>,
    /// Whether a credential signs for the origin, which could then repeat a signature.
    pub(super) signed_for: bool,
    pub(super) strict: bool,
    pub(super) signed: bool,
}

impl Redactor {
    /// Whether the origin may know a secret, from this exchange or another one, whoever's, so that
    /// an answer that cannot be searched is refused.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// The same for an answer to a request that failed: services repeat what they were sent then,
    /// signatures among it.
    #[must_use]
    pub fn of_failure(self) -> Self {
        if !self.signed_for || self.searched.load().signatures.are_none() {
            return self;
        }
        Self {
            failed: true,
            // An answer that fails is short, and nobody needs it in a coding.
            strict: self.strict || self.signed,
            signed: false,
            ..self
        }
    }

    fn echoes(&self) -> Arc<EchoSearch> {
        self.echoes_of(&self.searched.load())
    }

    fn echoes_of(&self, searched: &Searched) -> Arc<EchoSearch> {
        match self.failed {
            true => searched.with_signatures(&self.made),
            false => searched.echoes.clone(),
        }
    }

    /// Searches content, as the session is searched while it comes.
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

    /// Whether the origin was given nothing but a signature, so that its codings can stay as they
    /// are: what it knows is the access key id and the session token, which are worth nothing
    /// without the secret key.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.signed
    }

    /// Replaces echoes in fields; gives their number.
    ///
    /// # Errors
    /// [`Guessed`], where the session may be shown nothing of the answer.
    pub fn scrub_fields(&self, fields: &mut HeaderMap) -> Result<u64, Guessed> {
        self.echoes().scrub_fields(fields)
    }

    /// Replaces echoes in content that is there as a whole.
    ///
    /// # Errors
    /// As [`Redactor::scrub_fields`].
    pub fn scrub_whole(&self, content: Bytes) -> Result<Bytes, Guessed> {
        let mut scrubber = Scrubber::new(self.echoes()).resizing();
        let settled = scrubber.push(content);
        let rest = scrubber.finish();
        scrubber.check()?;
        Ok(match rest.is_empty() {
            true => settled,
            false => [settled, rest].concat().into(),
        })
    }

    /// Replaces echoes in content as it streams; the fields tell its type, and no longer its length
    /// where that may change.
    pub fn scrub<B: Body>(&self, body: B, fields: &mut HeaderMap) -> ScrubBody<B> {
        ScrubBody::resizing(body, fields, self.scrubber())
    }

    /// Replaces echoes in the WebSocket messages of the origin.
    #[must_use]
    pub fn scrub_frames(&self) -> ScrubFrames {
        ScrubFrames::by(self.scrubber())
    }
}
