//! The facts of a request as the caller knows them. They are parsed further only if a policy reads
//! them.

use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;

use super::content::ContentFacts;
use crate::message::{Host, RequestTarget, Scheme, is_batch};
use crate::names::{CredentialName, SessionId};

/// One request in canonical form, as it will be forwarded, with phantoms in place of credentials.
///
/// Everything is borrowed: making one costs nothing, and what no policy reads is never parsed.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The session that makes the request.
    pub session: &'a SessionId,
    /// All groups of the session, including groups of its groups.
    pub groups: &'a [Arc<str>],
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
    /// The declared facts of the content. `None` if it has not been read.
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
}

/// Owned [`Facts`], for requests that are not in progress.
#[derive(Clone, Debug)]
pub struct OwnedFacts {
    /// As in [`Facts`], like all other fields.
    pub session: SessionId,
    pub groups: Vec<Arc<str>>,
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
}

impl OwnedFacts {
    /// A `GET` request on the scheme's default port, without content, fields or credentials.
    #[must_use]
    pub fn new(session: SessionId, scheme: Scheme, host: Host, target: RequestTarget) -> Self {
        Self {
            session,
            groups: Vec::new(),
            entry: "exec".to_owned(),
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
        }
    }

    /// The facts to judge.
    #[must_use]
    pub fn facts(&self) -> Facts<'_> {
        Facts {
            session: &self.session,
            groups: &self.groups,
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
        }
    }
}

/// A credential that a request wants to carry, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loan<'a> {
    pub credential: &'a CredentialName,
    /// The place's text form.
    pub place: &'a str,
}
