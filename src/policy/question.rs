//! What a request says, as the caller knows it; parsed further only where a policy reads it.

use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;

use super::content::ContentFacts;
use crate::message::{Host, RequestTarget, Scheme, is_batch};
use crate::names::{CredentialName, SessionId};

/// One request, canonical, as it will be forwarded, with phantoms where credentials go.
///
/// Borrowed whole: making one costs nothing, and what no policy reads is never parsed.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Who asks.
    pub session: &'a SessionId,
    /// The session's groups, all of them: a group's own groups, too.
    pub groups: &'a [Arc<str>],
    /// How the session came in: `exec`, `proxy`, ….
    pub entry: &'a str,
    /// When it is judged.
    pub now: SystemTime,
    /// How the origin is spoken to.
    pub scheme: Scheme,
    /// The authenticated destination.
    pub host: &'a Host,
    /// The destination's port.
    pub port: u16,
    /// As sent; methods are case-sensitive.
    pub method: &'a str,
    /// Path and query, as forwarded.
    pub target: &'a RequestTarget,
    /// As forwarded, phantoms in place.
    pub fields: &'a HeaderMap,
    /// The content's length in bytes, 0 without content, `None` if the end will tell.
    pub content_length: Option<u64>,
    /// What the configuration declares of the content; `None` where it has not been read.
    pub content: Option<&'a ContentFacts>,
    /// The protocol that the request wants to change to, in lower case (`websocket`), or nothing.
    pub upgrade: &'a str,
    /// The credentials whose phantoms the request carries.
    pub credentials: &'a [CredentialName],
    /// Whether the request is known to hold many others, of which this head says nothing.
    pub batch: bool,
    /// What a signed request asks of AWS's services, by the names that pins have; empty without a
    /// signature.
    pub actions: &'a [String],
}

/// The same with everything that it borrows from: for requests that are not under way.
#[derive(Clone, Debug)]
pub struct OwnedFacts {
    /// As in [`Facts`], and so are the others.
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
}

impl OwnedFacts {
    /// A `GET` of a session over the host's usual port, without content, fields or credentials.
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
        }
    }

    /// What is judged.
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
            batch: is_batch(&self.host, &self.target),
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
