//! Serves HTTP on one connection. Each request is an exchange of its own.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use gateway_intercept::paced::{FloodFlag, PacedStream};
use gateway_intercept::strict::{StrictStream, ViolationHandle};
use gateway_intercept::{
    ClientVerifier, ConnectionContext, Entry, Presented, PresentedDenied, Rejected, SessionCa,
};
use gateway_names::ReasonCode;
use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::answer_body::AnswerBody;
use super::exchange::Exchange;
use super::guard::{Closing, ConnectionGuard};
use super::lingering::Lingering;
use super::listener::{Inbound, ListenerState};
use super::refusal::Refusal;
use super::route::LatestRoute;
use super::worker::Worker;

/// How many bytes of one upload a client may send before the origin accepts them. A connection
/// allows this much for each of its streams, so an upload that its origin does not read never
/// stalls the others.
const STREAM_WINDOW: u32 = 256 << 10;
/// How many bytes of one stream's response are buffered for a client that does not read (threats
/// L02, Must show 5).
const SEND_BUFFER: usize = 64 << 10;
/// How many bytes of an HTTP/1.1 connection are buffered in each direction: more than a whole head
/// (threats L02, P05).
const HTTP1_BUFFER: usize = 128 << 10;
/// The limit for a request's fields, in bytes as HTTP/2 counts them (RFC 9113 §6.5.2).
const HEADER_LIST: u32 = 48 << 10;

impl Worker {
    /// Prepares the exchanges of a connection. Each is judged by itself (threats E06, E07, L06).
    pub(super) fn conversation(
        self: Arc<Self>,
        inbound: Inbound<'_>,
        connection: ConnectionContext,
    ) -> Conversation {
        let listener = inbound.from.listener;
        let guard = self.watchdog.connection(&listener.state.leaves);
        guard.is_of(connection.caller.as_ref());
        self.conversation_on(guard, inbound, connection)
    }

    /// Like [`Self::conversation`], for some requests of a connection that has a guard already.
    pub(super) fn conversation_on(
        self: Arc<Self>,
        guard: Arc<ConnectionGuard>,
        inbound: Inbound<'_>,
        connection: ConnectionContext,
    ) -> Conversation {
        Conversation {
            guard,
            worker: self,
            connection: Arc::new(connection),
            listener: inbound.from.listener.state.clone(),
            ca: inbound.selected.ca.clone(),
            latest: Arc::default(),
            violations: None,
        }
    }
}

/// What the exchanges of one connection share.
pub(super) struct Conversation {
    worker: Arc<Worker>,
    connection: Arc<ConnectionContext>,
    listener: Arc<ListenerState>,
    ca: Arc<SessionCa>,
    latest: Arc<LatestRoute>,
    guard: Arc<ConnectionGuard>,
    violations: Option<ViolationHandle>,
}

impl Conversation {
    /// Serves HTTP/1.
    pub(super) async fn http1<IO>(mut self, io: IO)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let strict = StrictStream::new(Lingering::new(io));
        let guard = self.guard.clone();
        guard.watch_heads(strict.violations());
        self.violations = Some(strict.violations());
        let mut serving = pin!(
            hyper::server::conn::http1::Builder::new()
                .half_close(true)
                .max_buf_size(HTTP1_BUFFER)
                .serve_connection(
                    TokioIo::new(strict),
                    service_fn(move |request| self.answer(request)),
                )
                .with_upgrades()
        );
        loop {
            tokio::select! {
                // What has arrived is read first, so that a request is not mistaken for silence.
                biased;
                ended = serving.as_mut() => return log(ended),
                closing = guard.closing() => match closing {
                    // RFC 9112 §9.6: the next response says so. hyper's shutdown would close a
                    // connection whose next request is on its way.
                    Closing::Draining => {}
                    Closing::AtRest if guard.is_at_rest() => serving.as_mut().graceful_shutdown(),
                    Closing::AtRest => {}
                    Closing::AtOnce => return,
                },
            }
        }
    }

    /// Serves HTTP/2.
    pub(super) async fn http2<IO>(self, io: IO, inbound: Inbound<'_>)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (guard, worker, connection) = (
            self.guard.clone(),
            self.worker.clone(),
            self.connection.clone(),
        );
        let mut http2 = http2(worker.shared.look().limits.streams_per_connection);
        http2.enable_connect_protocol();
        let service = service_fn(move |request| self.answer(request));
        if serve_http2(io, &http2, service, &guard).await.is_so() {
            let (entry, named) = (connection.entry, connection.named.as_ref());
            worker.record_opening(inbound, entry, named, ReasonCode::Http2Flood);
        }
    }

    /// Answers a request.
    pub(super) fn answer(
        &self,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<AnswerBody>, Infallible>> + Send + use<> {
        let violations = self.violations.clone();
        // Once for each request, in order.
        let begun = violations.as_ref().map_or(Ok(()), ViolationHandle::begin);
        let begun = begun.map_err(|malformed| Rejected::Wire(malformed).into());
        let presented = self.as_presented(request.headers_mut());
        let presented = presented.map_err(Refusal::Presented);
        let (refusal, connection) = match begun.and(presented) {
            Ok(connection) => (None, connection),
            Err(refusal) => (Some(refusal), self.connection.clone()),
        };
        let exchange = Exchange::begin(
            &self.worker,
            &connection,
            &self.guard,
            violations.clone(),
            self.ca.clone(),
            self.latest.clone(),
        );
        let guard = self.guard.clone();
        let is_head = request.method() == Method::HEAD;
        // Boxed because hyper moves it.
        Box::pin(async move {
            let mut response = exchange.respond(connection, request, refusal).await;
            if is_head {
                response.body_mut().leave_out();
            }
            if let Some(violations) = violations {
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    violations.upgraded();
                } else if guard.is_draining() {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, close);
                }
            }
            Ok(response)
        })
    }

    /// Returns the connection as a request in absolute-form, or to a base URL, presents it: each
    /// such request presents credentials of its own.
    fn as_presented(
        &self,
        fields: &mut HeaderMap,
    ) -> Result<Arc<ConnectionContext>, PresentedDenied> {
        let own = &self.connection;
        let by = self.listener.verifier.as_ref();
        let (by, presented) = match (by, own.entry) {
            (Some(by), Entry::Forward) => (by, Presented::of(fields)),
            (Some(by), Entry::Base) => (by, ClientVerifier::token_in(fields)?),
            _ => return Ok(own.clone()),
        };
        let caller = by.take_again(own.caller.as_ref(), presented)?;
        Ok(caller.map_or_else(
            || own.clone(),
            |caller| {
                let caller = Some(caller);
                Arc::new(ConnectionContext {
                    caller,
                    ..ConnectionContext::clone(own)
                })
            },
        ))
    }
}

/// Returns a builder for HTTP/2 with this many concurrent streams.
pub(super) fn http2(streams: u32) -> http2::Builder<TokioExecutor> {
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    http2
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(connection_window(streams))
        .max_concurrent_streams(streams)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADER_LIST);
    http2
}

/// Serves HTTP/2 on a connection until it ends or its guard ends it. Returns whether its client
/// sent too many frames that carry no request.
pub(super) async fn serve_http2<IO, S>(
    io: IO,
    http2: &http2::Builder<TokioExecutor>,
    service: S,
    guard: &ConnectionGuard,
) -> FloodFlag
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<AnswerBody>>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Future: Send + 'static,
{
    let flooded = FloodFlag::default();
    let io = TokioIo::new(PacedStream::new(io, flooded.clone()));
    let mut serving = pin!(http2.serve_connection(io, service));
    loop {
        tokio::select! {
            biased;
            ended = serving.as_mut() => break log(ended),
            closing = guard.closing() => match closing {
                // RFC 9113 §6.8: GOAWAY, twice, so that streams on their way are served.
                // It closes by itself once all of its streams are written.
                Closing::Draining => serving.as_mut().graceful_shutdown(),
                // The client had a second or two to show whether a request was on its way.
                Closing::AtRest if guard.is_at_rest() => break,
                Closing::AtRest => {}
                Closing::AtOnce => break,
            },
        }
    }
    flooded
}

fn log(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a client's connection ended");
    }
}

/// Returns the flow-control window of a connection. RFC 9113 §6.9.1: at most 2^31-1.
fn connection_window(streams: u32) -> u32 {
    STREAM_WINDOW
        .saturating_mul(streams.max(2))
        .min(i32::MAX as u32)
}

#[cfg(test)]
mod tests {
    use gateway_intercept::ClientStream;
    use gateway_intercept::prefixed::Prefixed;

    use super::*;
    use crate::listener::SessionListener;

    fn size<A, B, C, F>(_: impl FnOnce(A, B, C) -> F) -> usize {
        std::mem::size_of::<F>()
    }

    type Tls = tokio_rustls::server::TlsStream<Prefixed<ClientStream>>;

    /// Bounds the memory of a waiting connection and of an exchange, in bytes, without
    /// optimisation. performance.md allows at most 34 KiB per connection, including the buffers of
    /// TLS and HTTP.
    #[test]
    fn a_connection_and_an_exchange_are_small() {
        let connection = size(
            |worker: Arc<Worker>, stream: ClientStream, listener: &'static Arc<SessionListener>| {
                worker.connection(stream, listener)
            },
        );
        let conversation = size(
            |worker: Arc<Worker>,
             stream: Tls,
             (inbound, context): (Inbound<'static>, ConnectionContext)| {
                worker.conversation(inbound, context).http1(stream)
            },
        );
        let exchange = size(|exchange: Box<Exchange>, connection, request| {
            exchange.respond(connection, request, None)
        });
        assert!(connection <= 4096, "{connection}");
        assert!(conversation <= 6144, "{conversation}");
        assert!(exchange <= 6912, "{exchange}");
    }
}
