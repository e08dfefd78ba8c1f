//! What the operator says of origins: trust, identity, addresses, protocol.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::resolve::ResolverSettings;
use crate::message::{HostPattern, Origin, OriginPattern};

/// Which HTTP version an origin is spoken to in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OriginProtocol {
    /// HTTP/1.1 for what does not need more, HTTP/2 for gRPC; whichever the origin has.
    #[default]
    Auto,
    /// Only HTTP/1.1.
    Http1,
    /// Only HTTP/2.
    Http2,
}

/// The certificate that the gateway shows to an origin that asks for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The chain, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The PEM file of the leaf's key.
    pub key: PathBuf,
}

/// Settings for the origins that a pattern covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginRule {
    /// The origins.
    pub matches: OriginPattern,
    /// Roots beside (or, with `replace_system_roots`, in place of) the system's.
    pub roots: Vec<CertificateDer<'static>>,
    /// Whether the system's roots do not count.
    pub replace_system_roots: bool,
    /// Certificate and key for mutual TLS.
    pub identity: Option<ClientIdentity>,
    /// Networks that may be dialled although their addresses are prohibited elsewhere.
    pub addresses: Vec<IpNet>,
    /// A fixed address in place of DNS; it is an exception for itself.
    pub connect: Option<SocketAddr>,
    /// HTTP version.
    pub protocol: OriginProtocol,
    /// Whether `%2F` may stand inside one path segment.
    pub encoded_slash: bool,
    /// Whether `_` and `.` may stand in the names of fields.
    pub underscores: bool,
}

impl OriginRule {
    /// A rule that says nothing of the origins that a pattern covers.
    #[must_use]
    pub fn of(matches: OriginPattern) -> Self {
        Self {
            matches,
            roots: Vec::new(),
            replace_system_roots: false,
            identity: None,
            addresses: Vec::new(),
            connect: None,
            protocol: OriginProtocol::Auto,
            encoded_slash: false,
            underscores: false,
        }
    }
}

/// Everything the origin side is configured by.
pub struct OriginSettings {
    /// Rules; the first that covers an origin holds.
    rules: Vec<OriginRule>,
    /// The keys of the rules' identities, in the order of the rules.
    keys: Vec<Option<PrivateKeyDer<'static>>>,
    /// The resolver.
    pub resolver: ResolverSettings,
    /// For one TCP connection to be established, all addresses together.
    pub connect_timeout: Duration,
    /// For one TLS handshake.
    pub handshake_timeout: Duration,
    /// For which an idle connection is kept.
    pub idle_timeout: Duration,
    /// Idle connections kept for one key.
    pub idle_connections: usize,
}

/// The key of a client certificate cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the key `{}` cannot be read", .path.display())]
pub struct KeyUnreadable {
    path: PathBuf,
    #[source]
    source: pem::Error,
}

impl Default for OriginSettings {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            keys: Vec::new(),
            resolver: ResolverSettings::default(),
            connect_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            idle_connections: 64,
        }
    }
}

impl OriginSettings {
    /// The same with these rules, whose keys are read now. The rule of the very host holds before
    /// those of the domains above it, of which the longest holds first.
    ///
    /// # Errors
    /// [`KeyUnreadable`] for the first key that cannot be read.
    pub fn with_rules(mut self, mut rules: Vec<OriginRule>) -> Result<Self, KeyUnreadable> {
        rules.sort_by_key(|rule| match &rule.matches.hosts {
            HostPattern::Exact(_) => (0, 0),
            HostPattern::Below(domain) => (1, usize::MAX - domain.as_str().len()),
        });
        self.keys = rules.iter().map(key).collect::<Result<_, _>>()?;
        self.rules = rules;
        Ok(self)
    }

    /// The rule that holds for an origin.
    #[must_use]
    pub fn rule(&self, origin: &Origin) -> Option<&OriginRule> {
        self.index(origin).map(|index| &self.rules[index])
    }

    /// The place of that rule among all.
    pub(super) fn index(&self, origin: &Origin) -> Option<usize> {
        self.rules
            .iter()
            .position(|rule| rule.matches.matches(origin))
    }

    /// A rule by its place, and the key of its identity.
    pub(super) fn at(&self, index: usize) -> (&OriginRule, Option<&PrivateKeyDer<'static>>) {
        (&self.rules[index], self.keys[index].as_ref())
    }
}

fn key(rule: &OriginRule) -> Result<Option<PrivateKeyDer<'static>>, KeyUnreadable> {
    let read = |identity: &ClientIdentity| {
        PrivateKeyDer::from_pem_file(&identity.key).map_err(|source| KeyUnreadable {
            path: identity.key.clone(),
            source,
        })
    };
    rule.identity.as_ref().map(read).transpose()
}
