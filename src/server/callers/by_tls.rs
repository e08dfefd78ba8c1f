//! A proxy that speaks TLS to its clients, before anything else of them is read.

use std::error::Error as _;
use std::sync::Arc;

use arc_swap::ArcSwap;
use gateway_intercept::{CallerRefused, ClientStream, ProxyTls, TlsRefused, enter};
use gateway_names::ReasonCode;
use tokio::time::Instant;

use crate::listener::SessionListener;
use crate::opening::write_refusal;
use crate::refusal::{Refusal, chain};
use crate::worker::Worker;

impl Worker {
    /// Does the TLS handshake of a proxy; `None` if the client is refused or too slow.
    pub(crate) async fn by_tls(
        &self,
        stream: ClientStream,
        (listener, door): (&SessionListener, &Arc<ArcSwap<ProxyTls>>),
        deadline: Instant,
    ) -> Option<ClientStream> {
        let from = listener.arrival(listener.client(&stream));
        let entering = enter(stream, door);
        let refused = match self.opening(listener, deadline, entering).await? {
            Ok(stream) => return Some(stream),
            Err(refused) => refused,
        };
        let (reason, cause) = match &refused {
            TlsRefused::Http(_) | TlsRefused::Clear => (ReasonCode::ProxyTls, String::new()),
            TlsRefused::Certificate(cause) => (ReasonCode::CallerRefused, (*cause).to_owned()),
            TlsRefused::Handshake(error) => {
                let cause = error.source().map_or_else(|| error.to_string(), chain);
                (error.reason(), cause)
            }
        };
        let unseen = CallerRefused::of(None, cause);
        let id = self.record_caller(from, CallerRefused { reason, ..unseen }, None);
        if let TlsRefused::Http(mut io) = refused {
            // The client may be gone.
            let _ = write_refusal(&mut io, None, (id, Refusal::ClearText)).await;
        }
        None
    }
}
