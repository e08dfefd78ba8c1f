//! A proxy that takes tokens: what the client presents selects the session, before anything else
//! of it is answered.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::gateway::listener::{Beside, Selected, SessionListener};
use crate::gateway::refusal::Refusal;
use crate::gateway::worker::Worker;
use crate::intercept::explicit::{self, Asked, OpeningRefused};
use crate::intercept::prefixed::Prefixed;
use crate::intercept::{
    CallerRefused, ClientStream, TokenDenied, TokenPeer, socks, token_of_login,
};
use crate::names::ReasonCode;

/// What a client presents, and what it asked for if it had to be asked for that first.
struct Presented {
    taken: Result<Selected, TokenDenied>,
    asked: Option<Result<Asked, OpeningRefused>>,
    /// Whether it knows that it is refused, and there is no more to say.
    is_told: bool,
}

impl Worker {
    /// Serves a connection to a proxy that takes tokens.
    pub(in crate::gateway) async fn by_token(
        self: Arc<Self>,
        stream: ClientStream,
        listener: &SessionListener,
        deadline: Instant,
    ) {
        let client = listener.client(&stream);
        let (peer, beside) = (TokenPeer::of(&stream), listener.caller(&stream).await);
        let mut io = Prefixed::new(stream);
        // A client may answer a 407 on the same connection (clients.md: Java does only that).
        for _ in 0..3 {
            let presenting = Box::pin(present(&mut io, listener, (&peer, &beside)));
            let presented = self.opening(listener, deadline, presenting).await;
            let Some(Ok(presented)) = presented else {
                return;
            };
            let is_told = presented.is_told;
            let denied = match (presented.taken, &beside) {
                (Ok(selected), _) => {
                    let asked = presented.asked;
                    let serving = self.serve(io, (listener, client), &selected, asked, deadline);
                    return Box::pin(serving).await;
                }
                (Err(TokenDenied::Missing), Ok(caller)) if !is_told => {
                    let caller = caller.clone();
                    let selecting = Box::pin(self.select(io, (listener, client), caller, deadline));
                    return selecting.await;
                }
                (Err(TokenDenied::Missing), Err(refused)) if !is_told && refused.user.is_some() => {
                    let refused = refused.clone();
                    let refusing = self.refuse_caller(io, (listener, client), refused, deadline);
                    return Box::pin(refusing).await;
                }
                (Err(denied), _) => denied,
            };
            let refused = CallerRefused {
                reason: ReasonCode::TokenRefused,
                cause: denied.to_string(),
                ..CallerRefused::of(None, "")
            };
            let id = self.record_caller((listener, client), refused);
            let is_over = is_told || {
                let refusal = Refusal::Token(denied);
                let written =
                    crate::gateway::opening::write_refusal(&mut io, None, (id, refusal)).await;
                written.is_err() || !explicit::forget_connect(&mut io)
            };
            if is_over {
                return;
            }
        }
    }
}

/// Finds out what a client presents. Of HTTP, nothing is taken from the stream; a client of SOCKS
/// has been told by then whether it is taken.
async fn present(
    io: &mut Prefixed<ClientStream>,
    listener: &SessionListener,
    beside: (&TokenPeer, &Beside),
) -> io::Result<Presented> {
    if !io.ensure(1).await? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let only = |taken, is_told| Presented {
        taken,
        asked: None,
        is_told,
    };
    if !explicit::is_socks(io) {
        let token = explicit::token_ahead(io).await?;
        return Ok(only(listener.by_token(token, beside), false));
    }
    if beside.1.is_ok() && !socks::offers_login(io).await? {
        return Ok(only(Err(TokenDenied::Missing), false));
    }
    let taken = Mutex::new(Err(TokenDenied::Missing));
    let accepts = |user: &[u8], password: &[u8]| {
        let selected = listener.by_token(token_of_login(user, password), beside);
        let is_taken = selected.is_ok();
        *taken.lock() = selected;
        is_taken
    };
    let asked = socks::negotiate(io, Some(&accepts)).await;
    let taken = taken.into_inner();
    Ok(match asked {
        Err(socks::Error::Io(error)) => return Err(error),
        Err(_) if taken.is_err() => only(taken, true),
        asked => Presented {
            taken,
            is_told: false,
            asked: Some(asked.map(Asked::Socks).map_err(OpeningRefused::Socks)),
        },
    })
}
