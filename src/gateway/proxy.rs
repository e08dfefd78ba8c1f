//! The proxy port: CONNECT, SOCKS5, and requests in absolute form.

use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::floor::floor;
use super::listener::{Inbound, SessionListener};
use super::refusal::Refusal;
use super::tunnel::TunnelTarget;
use super::worker::Worker;
use crate::intercept::explicit::{self, Asked};
use crate::intercept::prefixed::Prefixed;
use crate::intercept::socks::{self, SocksTarget};
use crate::intercept::{ConnectionContext, Entry};
use crate::message::{Authority, Host, Origin, Scheme};
use crate::names::ReasonCode;
use crate::session;

impl Worker {
    /// Serves a connection to the proxy port.
    pub(super) async fn proxied(
        self: Arc<Self>,
        stream: TcpStream,
        inbound: Inbound<'_>,
        deadline: Instant,
    ) {
        let mut io = Prefixed::new(stream);
        let login = inbound.listener.state.login.load_full();
        // A client may answer a 407 on the same connection (clients.md: Java does only that).
        for _ in 0..3 {
            let asking = Box::pin(explicit::ask(&mut io, login.as_deref()));
            let asked = match self.opening(inbound.listener, deadline, asking).await {
                Some(Ok(asked)) => asked,
                Some(Err(why)) => return Box::pin(self.refuse_opening(io, inbound, why)).await,
                None => return,
            };
            let target = match asked {
                Asked::Requests => {
                    let context = absolute_form(inbound);
                    return Box::pin(self.conversation(inbound.listener, context, None).http1(io))
                        .await;
                }
                Asked::ConnectUnauthenticated => {
                    let refusal = Refusal::ProxyAuthentication;
                    let answered = self.answer_opening(&mut io, inbound, None, refusal);
                    match answered.await {
                        Ok(()) => continue,
                        Err(_) => return,
                    }
                }
                Asked::Connect(authority) => self.connect(&mut io, inbound, authority).await,
                Asked::Socks(target) => self.socks(&mut io, inbound, target).await,
            };
            if let Some(mut target) = target {
                target.login = login;
                self.tunnel(io, inbound, target, deadline).await;
            }
            return;
        }
    }

    async fn connect(
        &self,
        io: &mut Prefixed<TcpStream>,
        inbound: Inbound<'_>,
        authority: Authority,
    ) -> Option<TunnelTarget> {
        let refusal = if inbound.listener.session.is_over() {
            Some(Refusal::Session(session::Error::Ended))
        } else if !self.may_reach(inbound.listener, &authority.host) {
            let origin = Origin {
                scheme: Scheme::Https,
                authority: authority.clone(),
            };
            Some(Refusal::Unreachable {
                floor: floor(&origin, &self.shared.current().origins),
                to: origin.authority,
            })
        } else {
            None
        };
        if let Some(refusal) = refusal {
            // What follows may be bytes for the tunnel, so the connection ends here.
            let _ = self
                .answer_opening(io, inbound, Some(&authority), refusal)
                .await;
            return None;
        }
        io.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
        Some(TunnelTarget {
            entry: Entry::Connect,
            named: Some(authority),
            destination: None,
            login: None,
        })
    }

    async fn socks(
        &self,
        io: &mut Prefixed<TcpStream>,
        inbound: Inbound<'_>,
        target: SocksTarget,
    ) -> Option<TunnelTarget> {
        let (named, destination) = match target {
            SocksTarget::Named(authority) => (Some(authority), None),
            SocksTarget::Address(address) => (None, Some(address)),
        };
        let is_unreachable = |to: &Authority| !self.may_reach(inbound.listener, &to.host);
        let reason = if inbound.listener.session.is_over() {
            Some(ReasonCode::SessionEnded)
        } else {
            let unreachable = named.as_ref().is_some_and(is_unreachable);
            unreachable.then_some(ReasonCode::PolicyDefaultDeny)
        };
        if let Some(reason) = reason {
            self.record_opening(inbound, Entry::Socks, named.as_ref(), reason);
            let _ = socks::reply(io, socks::Reply::NotAllowed).await;
            return None;
        }
        socks::reply(io, socks::Reply::Succeeded).await.ok()?;
        Some(TunnelTarget {
            entry: Entry::Socks,
            named,
            destination,
            login: None,
        })
    }

    fn may_reach(&self, listener: &SessionListener, host: &Host) -> bool {
        let session = &listener.session;
        let snapshot = self.shared.look();
        let policies = snapshot.policies.generation();
        policies.may_resolve(session.id(), &session.groups(policies.number()), host)
    }
}

/// The context of requests in absolute form. Each request names its own destination.
fn absolute_form(inbound: Inbound<'_>) -> ConnectionContext {
    ConnectionContext {
        session: inbound.listener.session.id().clone(),
        entry: Entry::Forward,
        scheme: Scheme::Http,
        named: None,
        sni: None,
        destination: None,
        client: inbound.client,
    }
}
