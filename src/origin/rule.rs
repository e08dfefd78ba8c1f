//! What the operator says of origins: trust, identity, addresses, protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::resolve::ResolverSettings;
use super::vet::AddressRange;
use crate::message::{HostPattern, Origin, Scheme};

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
pub struct ClientIdentity {
    /// The chain, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The leaf's key.
    pub key: PrivateKeyDer<'static>,
}

/// Settings for the origins that a pattern covers.
pub struct OriginRule {
    /// Scheme; `None` for both.
    pub scheme: Option<Scheme>,
    /// Host or domain.
    pub host: HostPattern,
    /// Port; `None` for every port.
    pub port: Option<u16>,
    /// Roots beside (or, with `only_roots`, in place of) the system's.
    pub roots: Vec<CertificateDer<'static>>,
    /// Whether the system's roots do not count.
    pub only_roots: bool,
    /// Certificate and key for mutual TLS.
    pub identity: Option<Arc<ClientIdentity>>,
    /// Addresses excepted from the floor.
    pub exceptions: Vec<AddressRange>,
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
    fn covers(&self, origin: &Origin) -> bool {
        self.scheme.is_none_or(|scheme| scheme == origin.scheme)
            && self.port.is_none_or(|port| port == origin.authority.port)
            && self.host.matches(&origin.authority.host)
    }
}

/// Everything the origin side is configured by.
pub struct OriginSettings {
    /// Rules; the first that covers an origin holds.
    pub rules: Vec<OriginRule>,
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

impl Default for OriginSettings {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            resolver: ResolverSettings {
                servers: Vec::new(),
                hosts_file: true,
            },
            connect_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            idle_connections: 64,
        }
    }
}

impl OriginSettings {
    /// The index of the first rule that covers the origin.
    #[must_use]
    pub fn rule(&self, origin: &Origin) -> Option<usize> {
        self.rules.iter().position(|rule| rule.covers(origin))
    }
}
