//! Serves what a tunnel or a captured connection carries: TLS, which is terminated, or HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::Instant;

use super::listener::SessionListener;
use super::worker::Worker;
use crate::intercept::prefixed::Prefixed;
use crate::intercept::{ConnectionContext, Destination, Entry, terminate};
use crate::message::{Authority, Host, Scheme};

/// A TLS handshake record begins with this byte (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 22;

/// Where a tunnel or a captured connection goes.
pub(super) struct TunnelTarget {
    pub(super) entry: Entry,
    pub(super) named: Option<Authority>,
    pub(super) destination: Option<SocketAddr>,
}

impl TunnelTarget {
    /// Combines what the connection claims with the scheme inside it and the name in its TLS
    /// handshake.
    fn context(
        self,
        listener: &SessionListener,
        scheme: Scheme,
        sni: Option<Host>,
    ) -> ConnectionContext {
        ConnectionContext {
            session: listener.session.id().clone(),
            entry: self.entry,
            scheme,
            named: self.named,
            sni,
            destination: self.destination,
        }
    }
}

impl Worker {
    /// Serves a tunnel or a captured connection.
    ///
    /// It carries either TLS, which is terminated, or HTTP in clear text. Other bytes are never
    /// forwarded (threats A13).
    pub(super) async fn tunnel(
        self: Arc<Self>,
        mut io: Prefixed<TcpStream>,
        listener: &SessionListener,
        mut to: TunnelTarget,
        deadline: Instant,
    ) {
        match self.opening(deadline, io.ensure(1)).await {
            Some(Ok(true)) => {}
            _ => return,
        }
        if io.ahead()[0] != TLS_HANDSHAKE {
            let clear = to.context(listener, Scheme::Http, None);
            return Box::pin(self.conversation(listener, clear).http1(io)).await;
        }
        let destination = match (&to.named, to.destination) {
            (Some(named), _) => Destination::Named(&named.host),
            (None, Some(address)) => Destination::Address(address.ip()),
            (None, None) => return,
        };
        // Boxed, so that a connection does not keep memory for its handshake.
        match Box::pin(terminate(io, &listener.ca, destination, deadline)).await {
            Ok(inside) => {
                let sni = inside.named_by_sni.then(|| inside.host.clone());
                if to.named.is_none() && !inside.named_by_sni {
                    // Without SNI, the address itself is the host, if policy permits it (threats
                    // A11).
                    to.named = to.destination.map(|address| Authority {
                        host: inside.host.clone(),
                        port: address.port(),
                    });
                }
                let context = to.context(listener, Scheme::Https, sni);
                let conversation = self.conversation(listener, context);
                if inside.http2 {
                    Box::pin(conversation.http2(inside.stream, listener)).await;
                } else {
                    Box::pin(conversation.http1(inside.stream)).await;
                }
            }
            Err(error) => {
                let host = to.named.as_ref();
                self.record_opening(listener, to.entry, host, error.reason());
            }
        }
    }
}
