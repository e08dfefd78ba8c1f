//! The operator's settings for origins: trust, identity, addresses, protocol.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gateway_credential::UpstreamLogin;
use gateway_message::{Authority, HostPattern, Origin, OriginPattern};
use ipnet::IpNet;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::resolve::ResolverSettings;

/// Which HTTP version the gateway speaks with an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OriginProtocol {
    /// HTTP/1.1, except that gRPC uses HTTP/2 if the origin speaks it.
    #[default]
    Auto,
    /// Only HTTP/1.1.
    Http1,
    /// Only HTTP/2.
    Http2,
}

/// The client certificate for an origin that requests one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The chain, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The PEM file of the leaf's key.
    pub key: PathBuf,
}

/// An HTTP proxy through which origins are reached.
#[derive(Debug, PartialEq, Eq)]
pub struct UpstreamProxy {
    /// Its host and port.
    pub authority: Authority,
    /// The login that is presented to the proxy.
    pub login: Option<UpstreamLogin>,
}

/// How an origin is reached, if its own rule says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    /// Directly, even if there is a proxy for all origins.
    Direct,
    /// Through this proxy.
    Proxy(Arc<UpstreamProxy>),
}

impl fmt::Display for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

/// Settings for the origins that a pattern covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginRule {
    /// The origins.
    pub matches: OriginPattern,
    /// Roots that are trusted besides the system's or, with `replace_system_roots`, instead of
    /// them.
    pub roots: Vec<CertificateDer<'static>>,
    /// Whether the system's roots are not trusted.
    pub replace_system_roots: bool,
    /// The certificate and key for mutual TLS.
    pub identity: Option<ClientIdentity>,
    /// Networks that may be dialled although they are prohibited by default.
    pub addresses: Vec<IpNet>,
    /// A fixed address, instead of DNS. It may be dialled without being listed in `addresses`.
    pub connect: Option<SocketAddr>,
    /// The proxy for these origins, if it differs from the default.
    pub via: Option<Via>,
    /// The HTTP version.
    pub protocol: OriginProtocol,
    /// Whether an http origin may be reached, in cleartext. Credentials are never sent there.
    pub cleartext: bool,
    /// Whether `%2F` may occur inside a path segment.
    pub encoded_slash: bool,
    /// Whether `_` and `.` may occur in field names.
    pub underscores: bool,
    /// Whether tokens that these origins issue to the workload are passed on unchanged.
    pub passes_tokens: bool,
}

impl OriginRule {
    /// Returns a rule with only defaults for the origins that a pattern covers.
    pub fn of(matches: OriginPattern) -> Self {
        Self {
            matches,
            roots: Vec::new(),
            replace_system_roots: false,
            identity: None,
            addresses: Vec::new(),
            connect: None,
            via: None,
            protocol: OriginProtocol::Auto,
            cleartext: false,
            encoded_slash: false,
            underscores: false,
            passes_tokens: false,
        }
    }
}

/// The settings for every origin whose rule does not override them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OriginDefaults {
    /// Roots that are trusted besides the system's.
    pub roots: Vec<CertificateDer<'static>>,
    /// The proxy for all origins except those on loopback or with a fixed address.
    pub via: Option<Arc<UpstreamProxy>>,
}

/// The configuration of the origin side.
#[derive(PartialEq)]
pub struct OriginSettings {
    /// The rules. The first that covers an origin applies.
    rules: Vec<OriginRule>,
    /// The keys of the rules' identities, in the order of the rules.
    keys: Vec<Option<PrivateKeyDer<'static>>>,
    /// The settings for every origin.
    pub defaults: OriginDefaults,
    /// The resolver.
    pub resolver: ResolverSettings,
    /// How long connecting to an origin may take, over all of its addresses.
    pub connect_timeout: Duration,
    /// How long one TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
    /// How many idle connections are kept per pool key.
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
            defaults: OriginDefaults::default(),
            resolver: ResolverSettings::default(),
            connect_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            idle_connections: 64,
        }
    }
}

impl OriginSettings {
    /// Sets the rules, and reads their keys now.
    ///
    /// A rule for the exact host comes before rules for the domains above it. Of those, the longest
    /// domain comes first.
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

    /// Returns the rule that applies to an origin.
    pub fn rule(&self, origin: &Origin) -> Option<&OriginRule> {
        self.index(origin).map(|index| &self.rules[index])
    }

    /// Returns the proxy for an origin, given the rule that applies to it.
    pub(super) fn via<'a>(
        &'a self,
        origin: &Origin,
        rule: Option<&'a OriginRule>,
    ) -> Option<&'a Arc<UpstreamProxy>> {
        match rule.and_then(|rule| rule.via.as_ref()) {
            Some(Via::Direct) => None,
            Some(Via::Proxy(proxy)) => Some(proxy),
            None if rule.is_some_and(|rule| rule.connect.is_some()) => None,
            None if origin.authority.host.is_loopback() => None,
            None => self.defaults.via.as_ref(),
        }
    }

    /// Returns the index of the rule that applies to an origin.
    pub(super) fn index(&self, origin: &Origin) -> Option<usize> {
        self.rules
            .iter()
            .position(|rule| rule.matches.matches(origin))
    }

    /// Returns the rule at an index, and the key of its identity.
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
