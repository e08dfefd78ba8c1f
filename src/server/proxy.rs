//! The proxy port: CONNECT, SOCKS5, and requests in absolute form.

use std::sync::Arc;

use gateway_intercept::explicit::{self, Opening, OpeningRefused};
use gateway_intercept::prefixed::Prefixed;
use gateway_intercept::{ClientStream, ConnectionContext, Entry};
use gateway_message::Scheme;
use gateway_wire::socks::{Reply, SocksTarget};
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;

use super::listener::Inbound;
use super::tunnel::TunnelTarget;
use super::worker::Worker;

impl Worker {
    /// Serves a connection to the proxy port. `asked` is its opening, if it was read already.
    ///
    /// A tunnel to the proxy itself carries another such connection, of the same caller, once.
    pub(super) async fn proxied(
        self: Arc<Self>,
        mut io: Prefixed<ClientStream>,
        inbound: Inbound<'_>,
        asked: Option<Result<Opening, OpeningRefused>>,
        deadline: Instant,
    ) {
        let asked = Box::pin(self.asked(&mut io, inbound, asked, deadline)).await;
        match asked {
            Some(Ok(Opening::Connect { to, is_answered })) if explicit::is_itself(&to) => {
                if !is_answered && io.write_all(CONNECTED).await.is_err() {
                    return;
                }
                let inside = inbound.selected.inside();
                let inbound = Inbound {
                    selected: &inside,
                    reached: None,
                    ..inbound
                };
                let asked = Box::pin(self.asked(&mut io, inbound, None, deadline)).await;
                Box::pin(self.opened(io, inbound, asked, deadline)).await;
            }
            asked => Box::pin(self.opened(io, inbound, asked, deadline)).await,
        }
    }

    /// Returns what the client requests; `None` if it sends no request in time.
    async fn asked(
        &self,
        io: &mut Prefixed<ClientStream>,
        inbound: Inbound<'_>,
        asked: Option<Result<Opening, OpeningRefused>>,
        deadline: Instant,
    ) -> Option<Result<Opening, OpeningRefused>> {
        match asked {
            None => {
                self.opening(inbound.from.listener, deadline, explicit::ask(io))
                    .await
            }
            asked => asked,
        }
    }

    async fn opened(
        self: Arc<Self>,
        mut io: Prefixed<ClientStream>,
        inbound: Inbound<'_>,
        asked: Option<Result<Opening, OpeningRefused>>,
        deadline: Instant,
    ) {
        let asked = match asked {
            Some(Ok(asked)) => asked,
            Some(Err(why)) => return self.refuse_opening(io, inbound, why).await,
            None => return,
        };
        let opened = match asked {
            Opening::Requests => {
                let context = absolute_form(inbound);
                return Box::pin(self.conversation(inbound, context).http1(io)).await;
            }
            Opening::Connect { to, is_answered } => {
                let opened = if is_answered {
                    Ok(())
                } else {
                    io.write_all(CONNECTED).await
                };
                opened.map(|()| (Entry::Connect, Some(to), None))
            }
            Opening::Socks(to) => {
                let (named, destination) = match to {
                    SocksTarget::Named(authority) => (Some(authority), None),
                    SocksTarget::Address(address) => (None, Some(address)),
                };
                let opened = io.write_all(&Reply::Succeeded.message()).await;
                opened.map(|()| (Entry::Socks, named, destination))
            }
        };
        // A refusal by policy is sent inside the tunnel, where clients show it.
        if let Ok((entry, named, destination)) = opened {
            let target = TunnelTarget {
                entry,
                named,
                destination,
            };
            Box::pin(self.tunnel(io, inbound, target, deadline)).await;
        }
    }
}

const CONNECTED: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

/// Returns the context of requests in absolute form. Each request names its own destination.
pub(super) fn absolute_form(inbound: Inbound<'_>) -> ConnectionContext {
    ConnectionContext {
        session: inbound.selected.session.id().clone(),
        before: inbound.selected.session.before(),
        caller: inbound.selected.caller.clone(),
        entry: Entry::Forward,
        scheme: Scheme::Http,
        aliases: None,
        named: None,
        sni: None,
        destination: None,
        client: inbound.from.client,
        tie: Arc::default(),
        reached: inbound.reached.cloned(),
    }
}
