//! A proxy whose clients present credentials. These select the session before any request is
//! answered.

use std::io;
use std::sync::Arc;

use gateway_intercept::explicit::{self, Opening, OpeningRefused};
use gateway_intercept::prefixed::Prefixed;
use gateway_intercept::socks::PasswordResult;
use gateway_intercept::{
    Caller, CallerRefused, ClientStream, Presented, PresentedDenied, TokenPeer, socks,
};
use gateway_message::Authority;
use gateway_names::ExchangeId;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::listener::{
    Arrival, Bearer, ListenerMode, PeerCaller, SelectedSession, SessionListener,
};
use crate::opening::write_refusal;
use crate::refusal::Refusal;
use crate::worker::Worker;

/// Who a client is, and the request that had to be read to find out, if any.
struct IdentifiedClient {
    by: Result<Bearer, PresentedDenied>,
    asked: Option<Result<Opening, OpeningRefused>>,
    /// Whether the client has already been refused, so that nothing more is to be written.
    is_told: bool,
}

impl Worker {
    /// Serves a connection to a proxy whose clients present credentials.
    pub(crate) async fn by_presented(
        self: Arc<Self>,
        stream: ClientStream,
        listener: &SessionListener,
        deadline: Instant,
    ) {
        let from = listener.arrival(listener.client(&stream));
        let (peer, beside) = (TokenPeer::of(&stream), listener.caller(&stream).await);
        let mut io = Prefixed::new(stream);
        // A client may answer a 407 on the same connection (Java does only that).
        for _ in 0..3 {
            let showing = Box::pin(show(&mut io, listener, (&peer, &beside)));
            let Some(Ok(shown)) = self.opening(listener, deadline, showing).await else {
                return;
            };
            let (is_told, asked) = (shown.is_told, shown.asked);
            let denied = match judge(shown.by, &beside, is_told) {
                Access::Selected(selected) => {
                    let serving = self.serve(io, from, &selected, asked, deadline);
                    return Box::pin(serving).await;
                }
                Access::Caller(caller) => {
                    let selecting = self.select(io, from, caller, asked, deadline);
                    return Box::pin(selecting).await;
                }
                Access::Refused(refused) => {
                    let refusing = self.refuse_caller(io, from, refused, asked, deadline);
                    return Box::pin(refusing).await;
                }
                Access::Denied(denied) => denied,
            };
            let refused = self.deny(from, denied, explicit::asks_for(&io).as_ref());
            let is_over = is_told
                || write_refusal(&mut io, None, refused).await.is_err()
                || !explicit::forget_head(&mut io);
            if is_over {
                return;
            }
        }
    }

    /// Records that a client's credentials are refused.
    pub(super) fn deny(
        &self,
        from: Arrival<'_>,
        denied: PresentedDenied,
        asked: Option<&Authority>,
    ) -> (ExchangeId, Refusal) {
        let refusal = Refusal::Presented(denied);
        let refused = CallerRefused {
            reason: refusal.reason(),
            ..CallerRefused::of(None, denied.to_string())
        };
        (self.record_caller(from, refused, asked), refusal)
    }
}

/// What a listener decides about a client.
pub(super) enum Access {
    /// Its token selected a session.
    Selected(SelectedSession),
    /// A caller, or none; the session is still to be selected.
    Caller(Option<Arc<Caller>>),
    /// The client is refused.
    Refused(CallerRefused),
    /// The client's credentials are refused or missing.
    Denied(PresentedDenied),
}

/// Judges a client by its credentials, or by its connection's evidence if it presents none.
pub(super) fn judge(by: Result<Bearer, PresentedDenied>, peer: &PeerCaller, told: bool) -> Access {
    match (by, peer) {
        (Ok(Bearer::Selected(selected)), _) => Access::Selected(selected),
        (Ok(Bearer::Caller(caller)), _) => Access::Caller(Some(caller)),
        (Err(PresentedDenied::Missing), Ok(caller)) if !told => Access::Caller(caller.clone()),
        (Err(PresentedDenied::Missing), Err(refused)) if !told && refused.user.is_some() => {
            Access::Refused(refused.clone())
        }
        (Err(denied), _) => Access::Denied(denied),
    }
}

/// Finds out who a client is by what it presents. Consumes nothing of an HTTP stream. A SOCKS
/// client has by then been answered whether its login is accepted.
async fn show(
    io: &mut Prefixed<ClientStream>,
    listener: &SessionListener,
    beside: (&TokenPeer, &PeerCaller),
) -> io::Result<IdentifiedClient> {
    if !io.ensure(1).await? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let only = |by, is_told| IdentifiedClient {
        by,
        asked: None,
        is_told,
    };
    let is_base = matches!(listener.mode, ListenerMode::Base(_));
    if is_base || !explicit::is_socks(io) {
        let presented = explicit::presented_ahead(io, is_base).await?;
        return Ok(only(listener.by_presented(presented, beside).await, false));
    }
    if beside.1.is_ok() && !socks::offers_login(io).await? {
        return Ok(only(Err(PresentedDenied::Missing), false));
    }
    let by = Mutex::new(Err(PresentedDenied::Missing));
    let accepts = |user: &[u8], password: &[u8]| -> PasswordResult<'_> {
        let (login, by) = (Presented::login(user, password), &by);
        Box::pin(async move {
            let known = listener.by_presented(Some(login), beside).await;
            let is_taken = known.is_ok();
            *by.lock() = known;
            is_taken
        })
    };
    let asked = socks::negotiate(io, Some(&accepts)).await;
    let by = by.into_inner();
    Ok(match asked {
        Err(socks::Error::Io(error)) => return Err(error),
        Err(_) if by.is_err() => only(by, true),
        asked => IdentifiedClient {
            by,
            is_told: false,
            asked: Some(asked.map(Opening::Socks).map_err(OpeningRefused::Socks)),
        },
    })
}
