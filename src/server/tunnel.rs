//! Serves what a tunnel or a captured connection carries: TLS, which is terminated, or HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gateway_intercept::first::{FirstBytes, server_speaks_first};
use gateway_intercept::prefixed::Prefixed;
use gateway_intercept::{
    ClientStream, ConnectionContext, Destination, Entry, authority_of, terminate,
};
use gateway_message::{Authority, Host, Scheme};
use gateway_names::ReasonCode;
use gateway_policy::Requester;
use tokio::time::{Instant, timeout_at};

use super::listener::{Inbound, SelectedSession};
use super::worker::Worker;

/// How long a client may be silent on a port where it is the server that speaks first.
const SERVER_FIRST: Duration = Duration::from_millis(300);

/// Where a tunnel or a captured connection goes.
pub(super) struct TunnelTarget {
    pub(super) entry: Entry,
    pub(super) named: Option<Authority>,
    pub(super) destination: Option<SocketAddr>,
}

impl TunnelTarget {
    /// Combines what the connection claims with the scheme inside it and the name in its TLS
    /// handshake.
    fn context(self, inbound: Inbound<'_>, scheme: Scheme, sni: Option<Host>) -> ConnectionContext {
        ConnectionContext {
            session: inbound.selected.session.id().clone(),
            before: inbound.selected.session.before(),
            caller: inbound.selected.caller.clone(),
            entry: self.entry,
            scheme,
            aliases: None,
            named: self.named,
            sni,
            destination: self.destination,
            client: inbound.from.client,
            tie: Arc::default(),
            reached: inbound.reached.cloned(),
        }
    }
}

impl TunnelTarget {
    /// Returns where the connection goes, as far as it shows that.
    fn authority(&self) -> Option<Authority> {
        let dialled = || authority_of(self.destination?);
        self.named.clone().or_else(dialled)
    }

    /// Returns where the connection goes, given the server name, which overrides an address.
    fn authority_by(&self, sni: Option<Host>) -> Option<Authority> {
        let by_name = || {
            let port = self.destination?.port();
            sni.map(|host| Authority { host, port })
        };
        let named = self.named.clone().or_else(by_name);
        named.or_else(|| self.authority())
    }

    /// Reads the first bytes; `None` if the connection ends before its protocol is known.
    ///
    /// A client that sends nothing until the deadline is refused for that, and sooner on ports
    /// where the server speaks first. HTTP clients open connections that they may never use, so
    /// silence on the ports of HTTP is no refusal.
    async fn first_bytes(
        &self,
        io: &mut Prefixed<ClientStream>,
        deadline: Instant,
    ) -> Option<FirstBytes> {
        let port = self.authority().map_or(0, |to| to.port);
        let limit = if server_speaks_first(port) {
            deadline.min(Instant::now() + SERVER_FIRST)
        } else {
            deadline
        };
        match timeout_at(limit, FirstBytes::read(io)).await {
            Ok(read) => read.ok().flatten(),
            Err(_) if matches!(port, 0 | 80 | 443) => None,
            Err(_) if io.ahead().is_empty() => Some(FirstBytes::Foreign(ReasonCode::ClientSilent)),
            Err(_) => Some(FirstBytes::Foreign(ReasonCode::UnknownProtocol)),
        }
    }
}

impl Worker {
    /// Serves a tunnel or a captured connection.
    ///
    /// It carries either TLS, which is terminated, or HTTP in clear text. Anything else is refused
    /// at once, and never forwarded (threats A13).
    pub(super) async fn tunnel(
        self: Arc<Self>,
        mut io: Prefixed<ClientStream>,
        inbound: Inbound<'_>,
        mut to: TunnelTarget,
        deadline: Instant,
    ) {
        let reading = Box::pin(to.first_bytes(&mut io, deadline));
        match self
            .opening(inbound.from.listener, deadline, reading)
            .await
            .flatten()
        {
            None => return,
            Some(FirstBytes::Tls) => {}
            Some(FirstBytes::Http) => {
                let clear = to.context(inbound, Scheme::Http, None);
                return Box::pin(self.conversation(inbound, clear).http1(io)).await;
            }
            Some(FirstBytes::Foreign(reason)) => {
                let host = to.authority();
                self.record_opening(inbound, to.entry, host.as_ref(), reason);
                return;
            }
        }
        let destination = match (&to.named, to.destination) {
            (Some(named), _) => Destination::Named(&named.host),
            (None, Some(address)) => Destination::Address(address.ip()),
            (None, None) => return,
        };
        // Boxed, so that a connection does not keep memory for its handshake.
        let terminated = Box::pin(async {
            let (ca, mut said) = (&inbound.selected.ca, None);
            let ended = terminate(io, ca, destination, deadline, &mut said).await;
            ended.map_err(|error| (error.reason(), said))
        });
        match terminated.await {
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
                let context = to.context(inbound, Scheme::Https, sni);
                let conversation = self.conversation(inbound, context);
                if inside.http2 {
                    Box::pin(conversation.http2(inside.stream, inbound)).await;
                } else {
                    Box::pin(conversation.http1(inside.stream)).await;
                }
            }
            Err((reason, said)) => {
                let host = to.authority_by(said);
                let reason = self.cause(inbound, host.as_ref(), reason);
                self.record_opening(inbound, to.entry, host.as_ref(), reason);
            }
        }
    }

    /// Returns why a connection failed. A client that does not trust the CA leaves before it can
    /// learn that no policy reaches the host, and trusting the CA alone would not help.
    fn cause(&self, inbound: Inbound<'_>, to: Option<&Authority>, ended: ReasonCode) -> ReasonCode {
        let by_client = matches!(ended, ReasonCode::TlsHandshake | ReasonCode::ClientLeft);
        let snapshot = self.shared.look();
        let policies = snapshot.policies.generation();
        let SelectedSession {
            session, caller, ..
        } = inbound.selected;
        let is_reached = |to: &Authority| {
            let asker = Requester::of(session, caller.as_deref(), policies.number());
            policies.may_resolve(asker.principal(), &to.host)
        };
        match to {
            Some(to) if by_client && !is_reached(to) => ReasonCode::HostNotPermitted,
            _ => ended,
        }
    }
}
