//! Relays a connection that became a WebSocket, and scrubs the frames to the client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use gateway_audit::Outcome;
use gateway_body::Meter;
use gateway_credential::{FrameFault, InjectMessages, MessageFault, Redactor, ScrubFrames};
use gateway_intercept::Upgrade;
use gateway_names::{ExchangeId, ReasonCode};
use gateway_origin as origin;
use http::header::{CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, UPGRADE};
use http::{HeaderValue, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::answer_body::AnswerBody;
use super::frame_edge::FrameEdge;
use super::guard::{Abort, ExchangeGuard};
use super::lingering::LINGER;
use super::refusal::Refusal;

/// How many bytes are read at once from either side.
const BUFFER: usize = 16 << 10;

/// Answers the client's upgrade with the origin's response, and relays from then on.
///
/// # Errors
/// [`origin::Error::BadUpgrade`] if the origin's answer does not fit the request (RFC 6455 §4.1).
pub(super) fn switch(
    mut response: Response<AnswerBody>,
    upgrade: Upgrade,
    origin: OnUpgrade,
    (lent, mut messages): (Option<Redactor>, Option<Box<InjectMessages>>),
    (guard, id): (Arc<ExchangeGuard>, ExchangeId),
) -> Result<Response<AnswerBody>, Refusal> {
    if !upgrade.expected.holds(response.headers()) {
        return Err(origin::Error::BadUpgrade.into());
    }
    let Upgrade {
        on: client, accept, ..
    } = upgrade;
    let fields = response.headers_mut();
    fields.remove(CONTENT_LENGTH);
    match accept {
        Some(accept) => {
            fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
            let accept = HeaderValue::from_str(&accept).expect("base64 is a field value");
            fields.insert(SEC_WEBSOCKET_ACCEPT, accept);
        }
        None => {
            // RFC 8441 §5: over HTTP/2, a 2xx opens the stream, and there is no accept value.
            fields.remove(SEC_WEBSOCKET_ACCEPT);
            *response.status_mut() = StatusCode::OK;
        }
    }
    *response.body_mut() = AnswerBody::switched();
    // The two connections own this task: it ends when either of them ends, or on abort.
    tokio::spawn(async move {
        let mut frames = lent.map(|lent| lent.scrub_frames());
        let joined = join(client, origin, (&mut messages, &mut frames), (&guard, id)).await;
        let fault = joined.as_ref().err().and_then(fault_of);
        let cut = fault.or(guard.abort_reason().map(|why| why.reason()));
        let outcome = cut.map_or(Outcome::Whole, |_| Outcome::Cut);
        guard.end(outcome, cut, frames.map_or(0, |frames| frames.replaced()));
        if let Err(error) = joined {
            tracing::debug!(%error, "a WebSocket ended");
        }
    });
    Ok(response)
}

/// Returns why the gateway cut a WebSocket whose frames could not be relayed.
fn fault_of(error: &io::Error) -> Option<ReasonCode> {
    let fault = error.get_ref()?;
    let of_origin = fault.downcast_ref::<FrameFault>().map(|it| it.reason());
    of_origin.or_else(|| Some(fault.downcast_ref::<MessageFault>()?.reason()))
}

/// Returns the close status and the reason for the client, if the gateway itself ends a WebSocket.
fn close_status(error: &io::Error) -> Option<(u16, ReasonCode)> {
    let fault = error.get_ref()?;
    let cut = fault.downcast_ref();
    let cut = cut.map(|why: &Abort| (GOING_AWAY, why.reason()));
    cut.or_else(|| {
        let fault = fault.downcast_ref::<MessageFault>()?;
        Some((fault.close_status(), fault.reason()))
    })
}

async fn join(
    client: OnUpgrade,
    origin: OnUpgrade,
    (messages, frames): (&mut Option<Box<InjectMessages>>, &mut Option<ScrubFrames>),
    (guard, id): (&ExchangeGuard, ExchangeId),
) -> io::Result<()> {
    let (client, origin) = tokio::try_join!(client, origin).map_err(io::Error::other)?;
    let (client_in, client_out) = tokio::io::split(TokioIo::<Upgraded>::new(client));
    let (origin_in, origin_out) = tokio::io::split(TokioIo::<Upgraded>::new(origin));
    let up = relay_up(client_in, origin_out, messages, &guard.meter);
    let mut client_out = FrameEdge::new(client_out);
    let down = relay_down(origin_in, &mut client_out, frames, &guard.meter);
    let ended = tokio::select! {
        ended = async { tokio::try_join!(up, down) } => ended.map(|_| ()),
        why = guard.aborted() => Err(io::Error::other(why)),
    };
    if let Some((status, reason)) = ended.as_ref().err().and_then(close_status) {
        let why = format!("gateway: {reason}; gateway why {id}");
        // A client that reads nothing is not waited for.
        let _ = tokio::time::timeout(TOLD_WITHIN, client_out.close(status, &why)).await;
        // RFC 6455 §7.1.1: what the client still sends is read, so that no reset of the connection
        // hides the Close frame.
        tokio::spawn(async move { tokio::time::timeout(LINGER, client_out.shutdown()).await });
    }
    ended
}

/// The status of a WebSocket that is cut (RFC 6455 §7.4.1).
const GOING_AWAY: u16 = 1001;
/// How long sending the Close frame of a cut WebSocket may take.
const TOLD_WITHIN: Duration = Duration::from_millis(100);

pub(super) async fn relay_up(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    messages: &mut Option<Box<InjectMessages>>,
    meter: &Meter,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        match messages {
            Some(messages) => {
                let settled = messages.push(&buffer[..count]).map_err(io::Error::other)?;
                to.write_all(&settled).await?;
            }
            None => to.write_all(&buffer[..count]).await?,
        }
        to.flush().await?;
        meter.add_up(count);
        // A WebSocket with many small frames yields to other tasks.
        tokio::task::yield_now().await;
    }
}

pub(super) async fn relay_down(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    frames: &mut Option<ScrubFrames>,
    meter: &Meter,
) -> io::Result<()> {
    let mut buffer = bytes::BytesMut::with_capacity(BUFFER);
    loop {
        buffer.reserve(BUFFER);
        let count = from.read_buf(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        let chunk = buffer.split().freeze();
        let chunk = match frames {
            Some(frames) => frames.push(chunk).map_err(io::Error::other)?,
            None => chunk,
        };
        to.write_all(&chunk).await?;
        to.flush().await?;
        meter.add_down(count);
        tokio::task::yield_now().await;
    }
}
