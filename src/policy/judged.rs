//! What a request was judged by, kept while it is under way, so that new policies judge it again.

use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use http::{HeaderMap, Method};

use super::content::ContentFacts;
use super::fact::{Fact, OF_FIELDS};
use super::generation::Generation;
use super::question::{Facts, Fault};
use super::verdict::{Outcome, Verdict};
use crate::intercept::{ConnectionContext, Request};
use crate::message::{Origin, RequestTarget};
use crate::names::CredentialName;
use crate::session::{Lend, Presented, Session};

/// All that policies can read of one request.
///
/// It holds no bytes of the client's read buffer. Fields are kept only where a rule read them when
/// the request was judged first.
pub struct JudgedRequest {
    connection: Arc<ConnectionContext>,
    session: Arc<Session>,
    origin: Origin,
    method: Method,
    target: RequestTarget,
    fields: Option<Box<HeaderMap>>,
    content_length: Option<u64>,
    /// What was read of the content; `None` where it was not.
    content: Option<ContentFacts>,
    websocket: bool,
    batch: bool,
    credentials: Arc<[CredentialName]>,
    /// Where each of the credentials stands.
    places: Box<[Box<str>]>,
    actions: Box<[String]>,
}

/// A question that was answered with no.
pub(super) struct Refused {
    pub(super) verdict: Verdict,
    /// Which of the credentials it was about; `None` for the request itself.
    pub(super) credential: Option<usize>,
}

impl JudgedRequest {
    pub(super) fn new(request: &Request, session: Arc<Session>, presented: &Presented) -> Self {
        let lends = presented.lends();
        Self {
            connection: request.connection.clone(),
            session,
            origin: request.head.origin.clone(),
            method: request.head.method.clone(),
            target: request.head.target.detached(),
            fields: None,
            content_length: request.content_length(),
            content: request.content.is_empty().then(ContentFacts::default),
            websocket: request.upgrade.is_some(),
            batch: presented.batch,
            credentials: lends.iter().map(|lend| lend.credential().clone()).collect(),
            places: lends.iter().map(|lend| lend.place_text().into()).collect(),
            actions: lends.iter().flat_map(Lend::actions).collect(),
        }
    }

    /// Keeps the fields, if the rules of `generation` for the request read any.
    pub(super) fn keep_fields(&mut self, generation: &Generation, fields: &HeaderMap) {
        if generation.reads(self, &OF_FIELDS) {
            self.fields = Some(Box::new(fields.clone()));
        }
    }

    /// Keeps what was read of the content.
    pub(super) fn keep_content(&mut self, content: ContentFacts) {
        self.content = Some(content);
    }

    /// Whose it is.
    #[must_use]
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(super) fn credentials(&self) -> &Arc<[CredentialName]> {
        &self.credentials
    }

    /// The questions that policy answers about the credentials: each, and the place where it is to
    /// stand.
    pub(super) fn loans(&self) -> impl Iterator<Item = (&CredentialName, &str)> {
        self.credentials
            .iter()
            .zip(self.places.iter().map(AsRef::as_ref))
    }

    pub(super) fn facts<'a>(&'a self, fields: &'a HeaderMap) -> Facts<'a> {
        Facts {
            session: self.session.id(),
            groups: self.session.groups(),
            entry: self.connection.entry.as_str(),
            now: SystemTime::now(),
            scheme: self.origin.scheme,
            host: &self.origin.authority.host,
            port: self.origin.authority.port,
            method: self.method.as_str(),
            target: &self.target,
            fields,
            content_length: self.content_length,
            content: self.content.as_ref(),
            upgrade: if self.websocket { "websocket" } else { "" },
            credentials: &self.credentials,
            batch: self.batch,
            actions: &self.actions,
        }
    }
}

impl Generation {
    /// Whether a request that was allowed before is allowed by these policies, its credentials
    /// included.
    ///
    /// Where they read what was not kept of it, it is not.
    #[must_use]
    pub fn still_allows(&self, judged: &JudgedRequest) -> bool {
        static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
        match &judged.fields {
            Some(fields) => self.judge_request(judged, fields).is_ok(),
            None => !self.reads(judged, &OF_FIELDS) && self.judge_request(judged, &NONE).is_ok(),
        }
    }

    /// Whether the verdict on a request depends on content that has not been read.
    pub(super) fn needs_content(&self, judged: &JudgedRequest, fields: &HeaderMap) -> bool {
        let unread =
            |refused: &Refused| refused.verdict.outcome == Outcome::Unjudged(Fault::ContentUnread);
        self.reads(judged, &[Fact::Content])
            && self
                .judge_request(judged, fields)
                .is_err_and(|refused| unread(&refused))
    }

    /// Asks whether the request may be made, and whether each of its credentials may be lent to it.
    pub(super) fn judge_request(
        &self,
        judged: &JudgedRequest,
        fields: &HeaderMap,
    ) -> Result<Verdict, Refused> {
        let facts = judged.facts(fields);
        let asked = self.ask(&facts);
        if !asked.allowed() {
            return Err(Refused {
                verdict: asked,
                credential: None,
            });
        }
        for (nth, (credential, place)) in judged.loans().enumerate() {
            let lent = self.lend(&facts, credential, place);
            if !lent.allowed() {
                return Err(Refused {
                    verdict: lent,
                    credential: Some(nth),
                });
            }
        }
        Ok(asked)
    }
}
