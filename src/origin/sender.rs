//! A connection to an origin that can send requests.

use std::future::{Future as _, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gateway_body::Outgoing;
use gateway_message::Origin;
use http::{HeaderValue, Request, Response, Version};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Error;
use super::response_progress::{ANSWER_FIELDS, ResponseProgress, noted};

/// How many bytes of one response an HTTP/2 origin may send before the client reads them.
const STREAM_WINDOW: u32 = 512 << 10;
/// The same for all responses on a connection: enough for 256 whole streams, so that unread
/// responses never stall the others.
const CONNECTION_WINDOW: u32 = 256 * STREAM_WINDOW;
/// The largest response head, in bytes (threats P05). No more bytes than this are buffered from an
/// HTTP/1.1 origin, because a head is parsed within the buffer.
const ANSWER_HEAD: usize = 128 << 10;

/// A stream of an HTTP/2 connection, used by one exchange. Holds the origin's limit of streams.
pub(super) type StreamSlot = Arc<AtomicUsize>;

pub(super) enum Sender {
    Http1(Box<Http1>),
    Http2(http2::SendRequest<Outgoing>, StreamSlot),
}

/// An HTTP/1.1 connection, which carries one exchange at a time.
pub(super) struct Http1 {
    pub(super) requests: http1::SendRequest<Outgoing>,
    /// The `Host` of its origin, made once.
    host: HeaderValue,
    heard: ResponseProgress,
    /// The address that was dialled.
    pub(super) remote: SocketAddr,
}

impl Sender {
    /// The `Host` that an HTTP/1.1 request needs.
    pub(super) fn host(&self) -> Option<&HeaderValue> {
        match self {
            Self::Http1(http1) => Some(&http1.host),
            Self::Http2(..) => None,
        }
    }

    /// Returns the notes of what is read in response to the next request.
    pub(super) fn heard(&self) -> ResponseProgress {
        match self {
            Self::Http1(http1) => http1.heard.clone(),
            Self::Http2(..) => ResponseProgress::default(),
        }
    }

    /// The HTTP version of the connection.
    pub(super) fn version(&self) -> Version {
        match self {
            Self::Http1(..) => Version::HTTP_11,
            Self::Http2(..) => Version::HTTP_2,
        }
    }

    /// Sends a request, and returns its response once the head has arrived.
    pub(super) async fn send(
        &mut self,
        request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Outgoing>>> {
        match self {
            Self::Http1(http1) => {
                http1.heard.clear();
                http1.requests.try_send_request(request).await
            }
            Self::Http2(requests, _) => requests.try_send_request(request).await,
        }
    }

    /// Whether any byte of a response to the request was read before it failed.
    pub(super) fn has_heard(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.heard.is_so(),
            // hyper returns only whole heads from a stream.
            Self::Http2(..) => false,
        }
    }
}

/// Speaks HTTP/1.1 over a stream.
pub(super) async fn http1_over<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: T,
    origin: &Origin,
    remote: SocketAddr,
) -> Result<Sender, Error> {
    let host = host_field(origin)?;
    let heard = ResponseProgress::default();
    let (requests, connection) = http1::Builder::new()
        .max_header_size(ANSWER_HEAD)
        .max_headers(ANSWER_FIELDS)
        .max_buf_size(ANSWER_HEAD)
        // RFC 9112 §5.1 and §5.2: a proxy removes the space before a response's colon, and makes
        // one line of a folded one.
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .handshake(TokioIo::new(noted(stream, &heard)))
        .await
        .map_err(|error| Error::Unreachable(Some(io::Error::other(error))))?;
    // Owned by the sender: the task ends when the last sender is dropped or the origin closes.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to an origin ended");
        }
    });
    Ok(Sender::Http1(Box::new(Http1 {
        requests,
        host,
        heard,
        remote,
    })))
}

/// Speaks HTTP/2 over a stream.
pub(super) async fn http2_over<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: T,
) -> Result<(http2::SendRequest<Outgoing>, StreamSlot), Error> {
    let (sender, mut connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(ANSWER_HEAD as u32)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Error::Unreachable(Some(io::Error::other(error))))?;
    let slot = StreamSlot::new(connection.current_max_send_streams().into());
    let accepted = Arc::downgrade(&slot);
    tokio::spawn(async move {
        let ended = poll_fn(|cx| {
            let ended = Pin::new(&mut connection).poll(cx);
            if let Some(accepted) = accepted.upgrade() {
                accepted.store(connection.current_max_send_streams(), Ordering::Relaxed);
            }
            ended
        });
        if let Err(error) = ended.await {
            tracing::debug!(%error, "a connection to an origin ended");
        }
    });
    Ok((sender, slot))
}

/// Returns the value of `Host` for an origin.
pub(super) fn host_field(origin: &Origin) -> Result<HeaderValue, Error> {
    HeaderValue::try_from(origin.host_field()).map_err(|_| Error::Protocol)
}
