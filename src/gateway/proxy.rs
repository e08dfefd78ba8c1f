//! The proxy port: CONNECT, SOCKS5, and requests in absolute form.

use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;

use super::listener::Inbound;
use super::tunnel::TunnelTarget;
use super::worker::Worker;
use crate::intercept::explicit::{self, Asked, OpeningRefused};
use crate::intercept::prefixed::Prefixed;
use crate::intercept::{ClientStream, ConnectionContext, Entry};
use crate::message::Scheme;
use crate::wire::socks::{Reply, SocksTarget};

impl Worker {
    /// Serves a connection to the proxy port, whose client may have `asked` already.
    pub(super) async fn proxied(
        self: Arc<Self>,
        mut io: Prefixed<ClientStream>,
        inbound: Inbound<'_>,
        asked: Option<Result<Asked, OpeningRefused>>,
        deadline: Instant,
    ) {
        let asking = async {
            match asked {
                Some(asked) => asked,
                None => explicit::ask(&mut io).await,
            }
        };
        let asking = Box::pin(asking);
        let asked = match self.opening(inbound.listener, deadline, asking).await {
            Some(Ok(asked)) => asked,
            Some(Err(why)) => return Box::pin(self.refuse_opening(io, inbound, why)).await,
            None => return,
        };
        let opened = match asked {
            Asked::Requests => {
                let context = absolute_form(inbound);
                return Box::pin(self.conversation(inbound, context).http1(io)).await;
            }
            Asked::Connect(authority) => {
                let opened = io.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                opened.map(|()| (Entry::Connect, Some(authority), None))
            }
            Asked::Socks(to) => {
                let (named, destination) = match to {
                    SocksTarget::Named(authority) => (Some(authority), None),
                    SocksTarget::Address(address) => (None, Some(address)),
                };
                let opened = io.write_all(&Reply::Succeeded.message()).await;
                opened.map(|()| (Entry::Socks, named, destination))
            }
        };
        // Whether policy allows anything there is told inside, where clients show it.
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

/// The context of requests in absolute form. Each request names its own destination.
pub(super) fn absolute_form(inbound: Inbound<'_>) -> ConnectionContext {
    ConnectionContext {
        session: inbound.selected.session.id().clone(),
        caller: inbound.selected.caller.clone(),
        entry: Entry::Forward,
        scheme: Scheme::Http,
        aliases: None,
        named: None,
        sni: None,
        destination: None,
        client: inbound.client,
    }
}
