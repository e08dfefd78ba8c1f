//! The facts of a request: borrowed while it is judged, kept while it is in progress, or owned
//! where there is no request. They are parsed further only if a policy reads them.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use gateway_audit::Text;
use gateway_intercept::{Entry, Request};
use gateway_message::{EncodedSlash, Host, Origin, RequestTarget, Scheme, is_batch, named_paths};
use gateway_names::{CredentialName, SessionId, User};
use gateway_session::{CredentialUse, DetectedCredentials, Revocations, Session};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method};

use super::content::ContentFacts;
use super::decision_key::DecisionKey;

/// The principal of a question.
#[derive(Clone, Copy, Debug)]
pub struct Principal<'a> {
    /// The session.
    pub session: &'a SessionId,
    /// The user behind the connection, if evidence names one.
    pub user: Option<&'a User>,
    /// All groups of both, including groups of their groups.
    pub groups: &'a [Arc<str>],
}

/// One request in canonical form, as it will be forwarded, with phantoms in place of credentials.
///
/// Everything is borrowed: making one costs nothing, and a fact that is not read is never parsed.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The session that makes the request.
    pub session: &'a SessionId,
    /// The user behind its connection, if evidence names one.
    pub user: Option<&'a User>,
    /// All groups of both, including groups of their groups.
    pub groups: &'a [Arc<str>],
    /// The labels of the session.
    pub labels: &'a [Arc<str>],
    /// How the session connects: `exec`, `proxy`, ….
    pub entry: &'a str,
    /// The time of judging.
    pub now: SystemTime,
    /// The scheme used towards the origin.
    pub scheme: Scheme,
    /// The authenticated destination.
    pub host: &'a Host,
    /// The destination's port.
    pub port: u16,
    /// The method as sent. Methods are case-sensitive.
    pub method: &'a str,
    /// Path and query, as they are forwarded.
    pub target: &'a RequestTarget,
    /// The fields as they are forwarded, with phantoms in place.
    pub fields: &'a HeaderMap,
    /// The content's length in bytes. 0 without content, `None` if it is not known in advance.
    pub content_length: Option<u64>,
    /// The facts read from the content. `None` if it has not been read.
    pub content: Option<&'a ContentFacts>,
    /// The protocol to upgrade to, in lower case (`websocket`), or empty.
    pub upgrade: &'a str,
    /// The credentials whose phantoms the request carries.
    pub credentials: &'a [CredentialName],
    /// Whether the request is known to be a batch, whose other requests this head does not
    /// describe.
    pub batch: bool,
    /// The AWS actions that a signed request asks for, by the names used in pins. Empty without a
    /// signature.
    pub actions: &'a [String],
    /// The signature that is in question instead of a request.
    pub signs: Option<SignQuestion<'a>>,
}

/// The signature of a commit. The other facts are those of a request to the gateway itself.
#[derive(Clone, Copy, Debug)]
pub struct SignQuestion<'a> {
    /// The key's fingerprint, as ssh-keygen prints it: `SHA256:…`.
    pub key: &'a str,
    /// The repository, as the configuration of git names it.
    pub repository: &'a str,
}

/// The part of a request that a fact is made from, for the keys of the decision cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Input {
    /// The host, action and credential use in question, which every key holds.
    Question,
    Session,
    User,
    Groups,
    Labels,
    Entry,
    Clock,
    Scheme,
    Port,
    Method,
    Path,
    Query,
    Fields,
    ContentType,
    ContentLength,
    Content,
    Upgrade,
    Credentials,
    Actions,
}

impl<'a> Facts<'a> {
    /// Returns the principal.
    #[must_use]
    pub fn principal(&self) -> Principal<'a> {
        let (session, user, groups) = (self.session, self.user, self.groups);
        Principal {
            session,
            user,
            groups,
        }
    }

    /// Adds an input to a key of the decision cache. `None` if a verdict that depends on the input
    /// is not cached.
    pub(super) fn write(&self, input: Input, key: &mut DecisionKey) -> Option<()> {
        match input {
            // Every key has the question already.
            Input::Question => {}
            Input::Session => key.text(self.session.as_str()),
            Input::User => key.text(self.user.map_or("", User::as_str)),
            Input::Groups => key.texts(self.groups.iter().map(|group| &**group)),
            Input::Labels => key.texts(self.labels.iter().map(|label| &**label)),
            Input::Entry => key.text(self.entry),
            Input::Scheme => key.text(self.scheme.as_str()),
            Input::Port => key.number(self.port.into()),
            Input::Method => key.text(self.method),
            Input::Query => key.text(self.target.query().unwrap_or_default()),
            Input::ContentType => {
                let lines = self.fields.get_all(CONTENT_TYPE).iter();
                lines.for_each(|line| key.bytes(line.as_bytes()));
                // Marks the end: no text has this length.
                key.number(u64::MAX);
            }
            Input::ContentLength => {
                key.number(self.content_length.is_some().into());
                key.number(self.content_length.unwrap_or_default());
            }
            Input::Upgrade => key.text(self.upgrade),
            Input::Credentials => key.texts(self.credentials.iter().map(|name| name.as_str())),
            Input::Actions => key.texts(self.actions.iter().map(String::as_str)),
            // Without content, only the head of a set is judged, which reads no content.
            Input::Content if self.content.is_none() => {}
            // A whole path would be a key that rarely repeats.
            Input::Clock | Input::Path | Input::Fields | Input::Content => return None,
        }
        Some(())
    }

    /// Returns the targets that fields name, each with the query of the request. `None` stands for
    /// a target that cannot be judged.
    pub(super) fn named_targets(&self) -> Vec<Option<RequestTarget>> {
        let origin = (self.scheme, self.host, self.port);
        let with_query = |target: RequestTarget| match self.target.query() {
            Some(query) => target.with_query(query).ok(),
            None => Some(target),
        };
        let named = named_paths(self.fields, origin);
        named.map(|target| with_query(target?)).collect()
    }
}

/// What may change about the session of a request: its groups by a reload, its labels by a request.
pub(super) struct Standing {
    /// All groups of the session and of its caller.
    pub(super) groups: Arc<[Arc<str>]>,
    pub(super) labels: Option<Arc<Vec<Arc<str>>>>,
}

/// [`Facts`] of a request in progress, without its fields.
pub(super) struct KeptFacts {
    entry: Entry,
    pub(super) session: Arc<Session>,
    pub(super) origin: Origin,
    pub(super) method: Method,
    pub(super) target: RequestTarget,
    content_length: Option<u64>,
    /// The facts read from the content. Unset if it was not read.
    pub(super) content: OnceLock<ContentFacts>,
    websocket: bool,
    pub(super) batch: bool,
    pub(super) credentials: Arc<[CredentialName]>,
    /// The place of each credential.
    pub(super) places: Box<[Text]>,
    /// The revocations of the credentials.
    pub(super) revocations: Revocations,
    actions: Box<[String]>,
}

impl KeptFacts {
    pub(super) fn new(
        request: &Request,
        session: Arc<Session>,
        presented: &DetectedCredentials,
    ) -> Self {
        let mut kept = Self {
            entry: request.connection.entry,
            session,
            origin: request.head.origin.clone(),
            method: request.head.method.clone(),
            target: request.head.target.detached(),
            content_length: request.content_length(),
            content: OnceLock::new(),
            websocket: request.upgrade.is_some(),
            batch: presented.batch,
            credentials: [].into(),
            places: [].into(),
            revocations: Revocations::new(),
            actions: [].into(),
        };
        kept.present(presented);
        kept
    }

    /// Sets the credentials that the request presents.
    pub(super) fn present(&mut self, presented: &DetectedCredentials) {
        let lends = presented.lends();
        self.credentials = lends.iter().map(|lend| lend.credential().clone()).collect();
        self.places = lends.iter().map(|lend| lend.place_text().clone()).collect();
        self.revocations = lends.iter().flat_map(CredentialUse::revocations).collect();
        self.actions = lends.iter().flat_map(CredentialUse::actions).collect();
    }

    /// Returns the facts to judge, with the user of the principal.
    pub(super) fn facts<'a>(
        &'a self,
        (user, standing): (Option<&'a User>, &'a Standing),
        fields: &'a HeaderMap,
    ) -> Facts<'a> {
        Facts {
            session: self.session.id(),
            user,
            groups: &standing.groups,
            labels: standing.labels.as_ref().map_or(&[], |labels| labels),
            entry: self.entry.as_str(),
            now: SystemTime::now(),
            scheme: self.origin.scheme,
            host: &self.origin.authority.host,
            port: self.origin.authority.port,
            method: self.method.as_str(),
            target: &self.target,
            fields,
            content_length: self.content_length,
            content: self.content.get(),
            upgrade: if self.websocket { "websocket" } else { "" },
            credentials: &self.credentials,
            batch: self.batch,
            actions: &self.actions,
            signs: None,
        }
    }
}

/// Owned [`Facts`], for requests that are not in progress.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are those of Facts")]
pub struct OwnedFacts {
    pub session: SessionId,
    pub user: Option<User>,
    pub groups: Vec<Arc<str>>,
    pub labels: Vec<Arc<str>>,
    pub entry: String,
    pub now: SystemTime,
    pub scheme: Scheme,
    pub host: Host,
    pub port: u16,
    pub method: String,
    pub target: RequestTarget,
    pub fields: HeaderMap,
    pub content_length: Option<u64>,
    pub content: Option<ContentFacts>,
    pub upgrade: String,
    pub credentials: Vec<CredentialName>,
    pub actions: Vec<String>,
    /// Whether the request is a batch, beyond what its host and target show by themselves.
    pub batch: bool,
    /// The fingerprint of the key that signs, and the repository.
    pub signs: Option<(String, String)>,
}

impl OwnedFacts {
    /// Creates a `GET` on the scheme's default port, without content, fields or credentials.
    pub fn new(session: SessionId, scheme: Scheme, host: Host, target: RequestTarget) -> Self {
        Self {
            session,
            user: None,
            groups: Vec::new(),
            labels: Vec::new(),
            entry: "transparent".to_owned(),
            now: SystemTime::now(),
            scheme,
            host,
            port: scheme.default_port(),
            method: "GET".to_owned(),
            target,
            fields: HeaderMap::new(),
            content_length: Some(0),
            content: Some(ContentFacts::default()),
            upgrade: String::new(),
            credentials: Vec::new(),
            actions: Vec::new(),
            batch: false,
            signs: None,
        }
    }

    /// Creates the question whether a session may have a commit signed by the key of this
    /// fingerprint.
    pub fn signing(session: SessionId, key: &str, repository: &str) -> Self {
        let host = OWN_HOST.parse().expect("it is a canonical name");
        let target = RequestTarget::parse(b"/", EncodedSlash::Keep).expect("`/` is a target");
        Self {
            entry: "agent".to_owned(),
            method: "other".to_owned(),
            signs: Some((key.to_owned(), repository.to_owned())),
            ..Self::new(session, Scheme::Https, host, target)
        }
    }

    /// Returns the facts to judge.
    pub fn facts(&self) -> Facts<'_> {
        Facts {
            session: &self.session,
            user: self.user.as_ref(),
            groups: &self.groups,
            labels: &self.labels,
            entry: &self.entry,
            now: self.now,
            scheme: self.scheme,
            host: &self.host,
            port: self.port,
            method: &self.method,
            target: &self.target,
            fields: &self.fields,
            content_length: self.content_length,
            content: self.content.as_ref(),
            upgrade: &self.upgrade,
            credentials: &self.credentials,
            batch: self.batch || is_batch(&self.host, &self.target),
            actions: &self.actions,
            signs: self
                .signs
                .as_ref()
                .map(|(key, repository)| SignQuestion { key, repository }),
        }
    }
}

/// The host of the gateway's own pages, which no request leaves for.
const OWN_HOST: &str = "gateway.internal";

/// A credential that a request would carry, and its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct LendQuestion<'a> {
    pub credential: &'a CredentialName,
    /// The place's text form.
    pub place: &'a str,
}

#[cfg(test)]
pub(super) mod tests {
    use gateway_message::Authority;
    use gateway_session::phantom::{Issue, PhantomKey};

    use super::*;

    /// A `GET` request to api.github.com that carries the credential `github`.
    pub(crate) fn kept(path: &str) -> KeptFacts {
        let id = SessionId::new("s1").unwrap();
        let phantoms = Issue::new(&PhantomKey::from_bytes([1; 32])).finish();
        let session = Session::new(id, Vec::new(), phantoms, None);
        KeptFacts {
            entry: Entry::Connect,
            session: Arc::new(session),
            origin: Origin {
                scheme: Scheme::Https,
                authority: Authority::parse(b"api.github.com", Some(443)).unwrap(),
            },
            method: Method::GET,
            target: RequestTarget::parse(path.as_bytes(), EncodedSlash::Refuse).unwrap(),
            content_length: Some(0),
            content: ContentFacts::default().into(),
            websocket: false,
            batch: false,
            credentials: Arc::from([CredentialName::new("github").unwrap()]),
            places: [Text::new("header:authorization:Bearer")].into(),
            revocations: Revocations::new(),
            actions: [].into(),
        }
    }
}
