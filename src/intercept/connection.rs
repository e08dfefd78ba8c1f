//! What is known about a connection before its first request.

use std::net::SocketAddr;
use std::sync::Arc;

use gateway_message::{Authority, ConnectionClaims, Host, Origin, Scheme};
use gateway_names::{SessionId, Tie};

use super::base::Aliases;
use super::caller::Caller;

gateway_names::words! {
    /// How a connection reached the gateway and named its destination; the names are those in
    /// policy and audit.
    pub enum Entry {
        /// Captured in a namespace.
        Transparent = "transparent",
        /// A TLS listener reached by SNI.
        Tls = "tls",
        /// `CONNECT` to the proxy port.
        Connect = "connect",
        /// Absolute-form to the proxy port.
        Forward = "forward",
        /// SOCKS5 to the proxy port.
        Socks = "socks",
        /// A path below the alias of an origin.
        Base = "base",
    }
}

/// The session of a connection, and all claims that the connection makes about its destination.
#[derive(Debug, Clone)]
pub struct ConnectionContext {
    /// The session of the listener that accepted the connection.
    pub session: SessionId,
    /// How many earlier sessions had that name.
    pub before: u64,
    /// The caller, if there is evidence besides the listener.
    pub caller: Option<Arc<Caller>>,
    /// How the connection reached the gateway.
    pub entry: Entry,
    /// The scheme inside, which shows whether TLS was terminated.
    pub scheme: Scheme,
    /// The aliases of a `base` listener, with which paths begin.
    pub aliases: Option<Arc<Aliases>>,
    /// The target of CONNECT or SOCKS, or the name behind a synthetic address.
    pub named: Option<Authority>,
    /// The server name of the TLS handshake.
    pub sni: Option<Host>,
    /// The address that the client of a captured connection dialled.
    pub destination: Option<SocketAddr>,
    /// The client's address, if it tells clients of the session apart.
    pub client: Option<SocketAddr>,
    /// The proxy's origin as its client dialled it, if the connection shows that.
    pub reached: Option<Origin>,
    /// Ties connections to origins to this connection, where they may not be shared.
    pub tie: Arc<Tie>,
}

impl ConnectionContext {
    /// Returns where the connection goes, unchecked; `None` if only its requests say. The server
    /// name overrides an address, as in [`mod@gateway_message::agree`].
    #[must_use]
    pub fn said_origin(&self) -> Option<Origin> {
        let dialled = self.destination.map(|address| address.port());
        let port = self.named.as_ref().map(|named| named.port).or(dialled);
        let by_sni = self.sni.clone().zip(port);
        let authority = match by_sni {
            Some((host, port)) => Authority { host, port },
            None => (self.named.clone()).or_else(|| authority_of(self.destination?))?,
        };
        let scheme = self.scheme;
        Some(Origin { scheme, authority })
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

/// Returns an address as a host and port; `None` if it is unspecified.
#[must_use]
pub fn authority_of(address: SocketAddr) -> Option<Authority> {
    (!address.ip().is_unspecified()).then(|| Authority {
        host: Host::from_ip(address.ip()),
        port: address.port(),
    })
}
