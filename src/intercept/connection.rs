//! What is known of a connection before its first request.

use std::net::SocketAddr;

use crate::message::{Authority, ConnectionClaims, Host, Scheme};
use crate::names::SessionId;

/// The kind of listener through which a connection came, and how it said where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Captured in a namespace.
    Transparent,
    /// A TLS listener reached by SNI.
    Tls,
    /// `CONNECT` to the proxy port.
    Connect,
    /// Absolute-form to the proxy port.
    Forward,
    /// SOCKS5 to the proxy port.
    Socks,
}

impl Entry {
    /// The name in policy and audit.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transparent => "transparent",
            Self::Tls => "tls",
            Self::Connect => "connect",
            Self::Forward => "forward",
            Self::Socks => "socks",
        }
    }
}

/// Whose a connection is, and every claim that it makes about its destination.
#[derive(Debug, Clone)]
pub struct ConnectionContext {
    /// The session, by the listener that accepted the connection.
    pub session: SessionId,
    /// How it came.
    pub entry: Entry,
    /// The scheme inside: TLS was terminated or not.
    pub scheme: Scheme,
    /// The target of CONNECT or SOCKS, or the name behind a synthetic address.
    pub named: Option<Authority>,
    /// The host of the TLS handshake.
    pub sni: Option<Host>,
    /// The address that a captured connection was for.
    pub destination: Option<SocketAddr>,
}

impl ConnectionContext {
    /// The host as the connection names it, unchecked; empty where it names none.
    #[must_use]
    pub fn said_host(&self) -> &str {
        let named = self
            .sni
            .as_ref()
            .or(self.named.as_ref().map(|named| &named.host));
        named.map_or("", |host| host.as_str())
    }

    pub(super) fn claims(&self) -> ConnectionClaims<'_> {
        ConnectionClaims {
            scheme: self.scheme,
            sni: self.sni.as_ref(),
            tunnel: self.named.as_ref(),
            port: self.destination.map(|address| address.port()),
        }
    }
}
