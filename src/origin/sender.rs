//! A connection to an origin that can send requests.

use http::{HeaderValue, Version};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Error;
use super::pool::StreamSlot;
use crate::body::Content;
use crate::message::Origin;

/// How many bytes of one response an HTTP/2 origin may send before the client reads them.
const STREAM_WINDOW: u32 = 512 << 10;
/// The same for all responses on a connection: enough for 256 whole streams, so that unread
/// responses never stall the others.
const CONNECTION_WINDOW: u32 = 256 * STREAM_WINDOW;
/// How many bytes are read from an HTTP/1.1 origin at once. A response buffers a few times this.
const READ_BUFFER: usize = 64 << 10;
/// The longest response head, in bytes (threats P05).
const ANSWER_HEAD: usize = 64 << 10;

pub(super) enum Sender {
    /// With the `Host` of its origin, made once per connection.
    Http1(http1::SendRequest<Content>, HeaderValue),
    Http2(http2::SendRequest<Content>, StreamSlot),
}

impl Sender {
    /// The `Host` that an HTTP/1.1 request needs.
    pub(super) fn host(&self) -> Option<&HeaderValue> {
        match self {
            Self::Http1(_, host) => Some(host),
            Self::Http2(..) => None,
        }
    }

    /// The HTTP version of the connection.
    pub(super) fn version(&self) -> Version {
        match self {
            Self::Http1(..) => Version::HTTP_11,
            Self::Http2(..) => Version::HTTP_2,
        }
    }
}

/// Speaks HTTP/1.1 over a stream.
pub(super) async fn http1_over<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: T,
    origin: &Origin,
) -> Result<Sender, Error> {
    let host = host_field(origin)?;
    let (sender, connection) = http1::Builder::new()
        .max_header_size(ANSWER_HEAD)
        .max_buf_size(READ_BUFFER)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(Error::Http)?;
    // Owned by the sender: the task ends when the last sender is dropped or the origin closes.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to an origin ended");
        }
    });
    Ok(Sender::Http1(sender, host))
}

/// Speaks HTTP/2 over a stream.
pub(super) async fn http2_over<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: T,
) -> Result<http2::SendRequest<Content>, Error> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(ANSWER_HEAD as u32)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(Error::Http)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to an origin ended");
        }
    });
    Ok(sender)
}

/// The value of `Host` for an origin.
pub(super) fn host_field(origin: &Origin) -> Result<HeaderValue, Error> {
    HeaderValue::try_from(origin.host_field()).map_err(|_| Error::Protocol)
}
