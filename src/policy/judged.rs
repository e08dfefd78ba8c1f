//! What a request was judged by. It is kept while the request is in progress, so that new policies
//! can judge it again.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use http::{HeaderMap, Method};

use super::content::ContentFacts;
use super::fact::{Fact, OF_FIELDS};
use super::fault::Fault;
use super::generation::Generation;
use super::question::{Facts, Loan};
use super::verdict::{Outcome, Verdict};
use crate::audit::Text;
use crate::intercept::{ConnectionContext, Request};
use crate::message::{Origin, RequestTarget};
use crate::names::CredentialName;
use crate::session::{Bindings, CredentialUse, DetectedCredentials, Session};

/// Everything policies can read from one request.
///
/// Fields are kept only if a rule read them when the request was first judged. They alone share the
/// client's read buffer.
pub struct JudgedRequest {
    connection: Arc<ConnectionContext>,
    session: Arc<Session>,
    origin: Origin,
    method: Method,
    target: RequestTarget,
    fields: Option<Box<HeaderMap>>,
    content_length: Option<u64>,
    /// The facts read from the content. `None` if it was not read.
    content: Option<ContentFacts>,
    websocket: bool,
    batch: bool,
    credentials: Arc<[CredentialName]>,
    /// The place of each credential.
    places: Box<[Text]>,
    actions: Box<[String]>,
}

static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);

/// A question that was answered with a denial.
pub(super) struct Refused {
    pub(super) verdict: Verdict,
    /// The index of the credential in question. `None` for the request itself.
    pub(super) credential: Option<usize>,
}

impl JudgedRequest {
    pub(super) fn new(
        request: &Request,
        session: Arc<Session>,
        presented: &DetectedCredentials,
    ) -> Self {
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
            places: lends.iter().map(|lend| lend.place_text().clone()).collect(),
            actions: lends.iter().flat_map(CredentialUse::actions).collect(),
        }
    }

    /// Keeps the fields, if rules of `generation` that can apply to the request read any.
    pub(super) fn keep_fields(&mut self, generation: &Generation, fields: &HeaderMap) {
        if self.is_read_by(generation, &OF_FIELDS) {
            self.fields = Some(Box::new(fields.clone()));
        }
    }

    /// Keeps the facts read from the content.
    pub(super) fn keep_content(&mut self, content: ContentFacts) {
        self.content = Some(content);
    }

    /// The session it belongs to.
    #[must_use]
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The credentials that it is lent.
    #[must_use]
    pub fn credentials(&self) -> &Arc<[CredentialName]> {
        &self.credentials
    }

    /// Whether these bindings also let it have each of its credentials, in the same places.
    #[must_use]
    pub fn is_bound_by(&self, bindings: &Bindings) -> bool {
        self.loans().all(|(credential, place)| {
            let path = self.target.path();
            bindings.still_lends(&self.origin, &self.method, path, (credential, place))
        })
    }

    /// The loans that policy judges: each credential, with the place where it would appear.
    pub(super) fn loans(&self) -> impl Iterator<Item = (&CredentialName, &str)> {
        self.credentials
            .iter()
            .zip(self.places.iter().map(Text::as_str))
    }

    /// Whether a rule that can apply to the request, or to one of its credentials, reads any of
    /// these facts.
    fn is_read_by(&self, generation: &Generation, wanted: &[Fact]) -> bool {
        if !generation.reads_any(wanted) {
            return false;
        }
        let groups = self.groups(generation);
        let facts = self.facts(&groups, &NONE);
        let mut loans = self.loans();
        generation.reads(&facts, None, wanted)
            || loans.any(|(credential, place)| {
                generation.reads(&facts, Some(Loan { credential, place }), wanted)
            })
    }

    /// The groups of its session in a generation.
    pub(super) fn groups(&self, generation: &Generation) -> Arc<[Arc<str>]> {
        self.session.groups(generation.number())
    }

    pub(super) fn facts<'a>(&'a self, groups: &'a [Arc<str>], fields: &'a HeaderMap) -> Facts<'a> {
        Facts {
            session: self.session.id(),
            groups,
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
    /// Whether these policies also allow a request that was allowed before, including its
    /// credentials.
    ///
    /// If they read a part of the request that was not kept, they do not allow it.
    #[must_use]
    pub fn still_allows(&self, judged: &JudgedRequest) -> bool {
        match &judged.fields {
            Some(fields) => self.judge_request(judged, fields).is_ok(),
            None => {
                !judged.is_read_by(self, &OF_FIELDS) && self.judge_request(judged, &NONE).is_ok()
            }
        }
    }

    /// Whether the verdict on a request depends on content that has not been read.
    pub(super) fn needs_content(&self, judged: &JudgedRequest, fields: &HeaderMap) -> bool {
        let unread =
            |refused: &Refused| refused.verdict.outcome == Outcome::Unjudged(Fault::ContentUnread);
        judged.is_read_by(self, &[Fact::Content])
            && self
                .judge_request(judged, fields)
                .is_err_and(|refused| unread(&refused))
    }

    /// The names of the facts of content that were read to judge a request. For a refused request,
    /// only those read up to the refusal.
    pub(super) fn facts_read(
        &self,
        judged: &JudgedRequest,
        fields: &HeaderMap,
        refused: Option<&Refused>,
    ) -> Vec<String> {
        if !self.reads_any(&[Fact::Content]) {
            return Vec::new();
        }
        let groups = judged.groups(self);
        let facts = judged.facts(&groups, fields);
        let loans = judged.loans();
        let loans = loans.map(|(credential, place)| Some(Loan { credential, place }));
        let asked = match refused.map(|refused| refused.credential) {
            None => usize::MAX,
            Some(None) => 1,
            Some(Some(nth)) => nth + 2,
        };
        let questions = std::iter::once(None).chain(loans).take(asked);
        let names = questions.flat_map(|loan| self.content_read(&facts, loan));
        let names: BTreeSet<&str> = names.collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// Judges whether the request may be sent, and whether each of its credentials may be lent to
    /// it.
    pub(super) fn judge_request(
        &self,
        judged: &JudgedRequest,
        fields: &HeaderMap,
    ) -> Result<Verdict, Refused> {
        let groups = judged.groups(self);
        let facts = judged.facts(&groups, fields);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intercept::Entry;
    use crate::message::{Authority, EncodedSlash, Scheme};
    use crate::names::SessionId;
    use crate::policy::generation::tests::policies;
    use crate::session::phantom::{Issue, PhantomKey};

    fn judged(path: &str) -> JudgedRequest {
        let id = SessionId::new("s1").unwrap();
        let phantoms = Issue::new(&PhantomKey::from_bytes([1; 32])).finish();
        let session = Session::new(id.clone(), Vec::new(), phantoms, None);
        JudgedRequest {
            connection: Arc::new(ConnectionContext {
                session: id,
                entry: Entry::Connect,
                scheme: Scheme::Https,
                named: None,
                sni: None,
                destination: None,
                client: None,
            }),
            session: Arc::new(session),
            origin: Origin {
                scheme: Scheme::Https,
                authority: Authority::parse(b"api.github.com", Some(443)).unwrap(),
            },
            method: Method::GET,
            target: RequestTarget::parse(path.as_bytes(), EncodedSlash::Refuse).unwrap(),
            fields: None,
            content_length: Some(0),
            content: Some(ContentFacts::default()),
            websocket: false,
            batch: false,
            credentials: Arc::from([CredentialName::new("github").unwrap()]),
            places: [Text::new("header:authorization:Bearer")].into(),
            actions: [].into(),
        }
    }

    const ASK: &str = "permit(principal, action in Gateway::Action::\"ask\", resource);";
    const LEND: &str = "permit(principal, action == Gateway::Action::\"lend\", resource);";

    fn allows(text: &str, judged: &JudgedRequest) -> bool {
        policies(text).current().still_allows(judged)
    }

    #[test]
    fn request_and_loans_are_judged_again() {
        let one = judged("/repos/one");
        assert!(allows(&format!("{ASK}{LEND}"), &one));
        assert!(!allows(LEND, &one), "the request itself is not allowed");
        assert!(!allows(ASK, &one), "the loan is not allowed");
        let narrow = format!("{LEND}{ASK}").replace(
            "resource);permit",
            "resource);forbid(principal, action, resource) when { context has path && context.path == \"/repos/two\" };permit",
        );
        assert!(allows(&narrow, &one) && !allows(&narrow, &judged("/repos/two")));
    }

    #[test]
    fn rules_that_read_fields_which_were_not_kept_do_not_allow() {
        let reads = "forbid(principal, action, resource) when { context.fields.any.contains(\"x-role: admin\") };";
        let mut one = judged("/");
        assert!(!allows(&format!("{ASK}{LEND}{reads}"), &one));
        let fields = HeaderMap::new();
        let generation = policies(&format!("{ASK}{LEND}{reads}")).current();
        one.keep_fields(&generation, &fields);
        assert!(one.fields.is_some() && generation.still_allows(&one));
        let mut other = judged("/");
        other.keep_fields(&policies(&format!("{ASK}{LEND}")).current(), &fields);
        assert!(other.fields.is_none());
    }

    #[test]
    fn a_request_whose_content_was_not_read_is_judged_by_its_head() {
        let reads = "forbid(principal, action, resource) when { context.path == \"/pay\" && context.content.amount > 5 };";
        let mut one = judged("/pay");
        one.content = None;
        assert!(!allows(&format!("{ASK}{LEND}{reads}"), &one));
        let mut other = judged("/");
        other.content = None;
        assert!(allows(&format!("{ASK}{LEND}{reads}"), &other));
    }

    #[test]
    fn what_is_kept_of_a_request_is_small() {
        let size = std::mem::size_of::<JudgedRequest>();
        assert!(size <= 256, "{size}");
    }
}
