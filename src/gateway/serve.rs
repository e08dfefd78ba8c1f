//! From a client's connection to its exchanges: by which door it came, what it is to, and which
//! HTTP it speaks.

use std::collections::HashSet;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout_at};

use super::Worker;
use super::answer::AnswerBody;
use super::lingering::Lingering;
use super::live::Connection;
use super::refusal::Refusal;
use crate::audit::{Blame, Trail};
use crate::intercept::explicit::{self, Asked, Authentication};
use crate::intercept::paced::{Flooded, Paced};
use crate::intercept::prefixed::Prefixed;
use crate::intercept::socks::{self, Target};
use crate::intercept::strict::{Strict, Violations};
use crate::intercept::{
    Arrival, Destination, Entry, Rejected, Responder, SessionCa, dns, original_destination,
    terminate,
};
use crate::message::{Authority, Host, Scheme};
use crate::names::{ExchangeId, SessionId};
use crate::session::Session;

/// A TLS handshake record begins with this byte (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 22;
/// What a client may send of one upload that its origin does not take yet, in bytes; on a
/// connection, as much for each of its streams, so that uploads that no origin reads never stop the
/// others.
const STREAM_WINDOW: u32 = 256 << 10;
/// Held of one stream's answer for a client that does not read, in bytes (threats L02, Must show
/// 5).
const SEND_BUFFER: usize = 64 << 10;
/// Held of an HTTP/1.1 connection's bytes in each direction: more than a whole head (threats L02,
/// P05).
const HTTP1_BUFFER: usize = 128 << 10;
/// A request's fields, as HTTP/2 counts them (RFC 9113 §6.5.2), in bytes.
const HEADER_LIST: u32 = 48 << 10;

/// A listener's door: whose connections come through it, and how they say where they go.
pub struct Door {
    /// Whose they are: identity is the listener, never the peer's address (threats A18).
    pub session: Arc<Session>,
    /// What their TLS connections are terminated with.
    pub ca: Arc<SessionCa>,
    /// How they say where they go.
    pub way: Doorway,
}

/// How the connections of a listener say where they go.
pub enum Doorway {
    /// Captured: by the address that they were for, which may be one of the synthetic ones.
    Transparent(Arc<Responder>),
    /// By SNI, to a fixed port.
    Tls {
        /// The port of the origins.
        port: u16,
    },
    /// By CONNECT, absolute-form or SOCKS5.
    Proxy(Option<Arc<Authentication>>),
}

impl Worker {
    /// Serves a listener until the task is dropped.
    pub async fn listen(self: Arc<Self>, listener: TcpListener, door: Arc<Door>) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.admit(stream, &door),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    // Out of descriptors or memory: the listener waits and goes on, never ends
                    // (threats P04).
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn admit(self: &Arc<Self>, stream: TcpStream, door: &Arc<Door>) {
        let limits = &self.shared.limits;
        let opened = Opened::count(&self.shared.open, limits.connections);
        let Some(place) = opened.zip(door.session.connect(limits.connections_per_session)) else {
            // Told once a kind at the end, and not for each: a flood is not to fill the operator's
            // terminal.
            self.shared
                .refused
                .count("", "connection_limit", self.shared.ids.next());
            tracing::debug!(session = %door.session.id(), "over a limit of connections; one was closed");
            return;
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection was gone before it was served");
            return;
        }
        let (worker, door) = (self.clone(), door.clone());
        tokio::spawn(async move {
            let _place = place;
            worker.connection(stream, &door).await;
        });
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, door: &Door) {
        let deadline = Instant::now() + self.shared.limits.handshake_timeout;
        match &door.way {
            Doorway::Transparent(responder) => {
                self.captured(stream, door, responder, deadline).await
            }
            Doorway::Tls { port } => {
                let nowhere = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), *port);
                let target = Whither {
                    entry: Entry::Tls,
                    named: None,
                    destination: Some(nowhere),
                };
                self.tunnel(Prefixed::new(stream), door, target, deadline)
                    .await;
            }
            Doorway::Proxy(authentication) => {
                self.proxied(stream, door, authentication.as_deref(), deadline)
                    .await
            }
        }
    }

    async fn captured(
        self: Arc<Self>,
        stream: TcpStream,
        door: &Door,
        names: &Responder,
        deadline: Instant,
    ) {
        let destination = match original_destination(&stream) {
            Ok(destination) => destination,
            Err(error) => {
                return tracing::debug!(%error, "a connection without a destination was closed");
            }
        };
        let named = names.name(destination.ip()).map(|host| Authority {
            host,
            port: destination.port(),
        });
        let target = Whither {
            entry: Entry::Transparent,
            named,
            destination: Some(destination),
        };
        self.tunnel(Prefixed::new(stream), door, target, deadline)
            .await;
    }

    async fn proxied(
        self: Arc<Self>,
        stream: TcpStream,
        door: &Door,
        authentication: Option<&Authentication>,
        deadline: Instant,
    ) {
        let mut io = Prefixed::new(stream);
        // A client may answer a 407 on the connection that it came on (clients.md: Java does only
        // that).
        for _ in 0..3 {
            let asked = match timeout_at(deadline, Box::pin(explicit::ask(&mut io, authentication)))
                .await
            {
                Ok(Ok(asked)) => asked,
                Ok(Err(refused)) => return Box::pin(self.refuse_opening(io, door, refused)).await,
                Err(_) => return,
            };
            let target = match asked {
                Asked::Requests => {
                    let arrival = arrival(door, Entry::Forward, Scheme::Http, None, None, None);
                    return Box::pin(self.converse(io, door, arrival, false)).await;
                }
                Asked::ConnectUnauthenticated => {
                    if self
                        .answer_opening(&mut io, door, None, Refusal::ProxyAuthentication)
                        .await
                        .is_err()
                    {
                        return;
                    }
                    continue;
                }
                Asked::Connect(authority) => {
                    if !self.may_reach(door, &authority.host) {
                        let refusal = Refusal::Unreachable {
                            host: authority.host.clone(),
                            port: authority.port,
                        };
                        // What follows could be a tunnel's bytes: the connection ends here.
                        let _ = self
                            .answer_opening(&mut io, door, Some(&authority), refusal)
                            .await;
                        return;
                    }
                    if io.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.is_err() {
                        return;
                    }
                    Whither {
                        entry: Entry::Connect,
                        named: Some(authority),
                        destination: None,
                    }
                }
                Asked::Socks(target) => match self.socks(&mut io, door, target).await {
                    Some(target) => target,
                    None => return,
                },
            };
            return self.tunnel(io, door, target, deadline).await;
        }
    }

    async fn socks(
        &self,
        io: &mut Prefixed<TcpStream>,
        door: &Door,
        target: Target,
    ) -> Option<Whither> {
        let whither = match target {
            Target::Named(authority) => {
                if !self.may_reach(door, &authority.host) {
                    self.record_opening(
                        door,
                        Entry::Socks,
                        Some(&authority),
                        "policy_default_deny",
                        Blame::Policy,
                    );
                    let _ = socks::reply(io, socks::Reply::NotAllowed).await;
                    return None;
                }
                Whither {
                    entry: Entry::Socks,
                    named: Some(authority),
                    destination: None,
                }
            }
            Target::Address(address) => Whither {
                entry: Entry::Socks,
                named: None,
                destination: Some(address),
            },
        };
        socks::reply(io, socks::Reply::Succeeded)
            .await
            .ok()
            .map(|()| whither)
    }

    /// Serves what is inside a tunnel or a captured connection: TLS, which is terminated, or HTTP
    /// in clear text. There is no third way: bytes that are neither go nowhere (threats A13).
    async fn tunnel(
        self: Arc<Self>,
        mut io: Prefixed<TcpStream>,
        door: &Door,
        to: Whither,
        deadline: Instant,
    ) {
        match timeout_at(deadline, io.ensure(1)).await {
            Ok(Ok(true)) => {}
            _ => return,
        }
        if io.ahead()[0] != TLS_HANDSHAKE {
            let clear = arrival(door, to.entry, Scheme::Http, to.named, None, to.destination);
            return Box::pin(self.converse(io, door, clear, false)).await;
        }
        let destination = match (&to.named, to.destination) {
            (Some(named), _) => Destination::Named(&named.host),
            (None, Some(address)) => Destination::Address(address.ip()),
            (None, None) => return,
        };
        // Boxed, so that a connection does not keep room for its handshake.
        match Box::pin(terminate(io, &door.ca, destination, deadline)).await {
            Ok(inside) => {
                let sni = inside.named_by_sni.then(|| inside.host.clone());
                let named = to.named.or_else(|| {
                    // Without SNI the address itself is the host, where policy permits it (threats
                    // A11).
                    let port = to.destination.map(|address| address.port())?;
                    (!inside.named_by_sni).then(|| Authority {
                        host: inside.host.clone(),
                        port,
                    })
                });
                let arrival = arrival(door, to.entry, Scheme::Https, named, sni, to.destination);
                Box::pin(self.converse(inside.stream, door, arrival, inside.http2)).await;
            }
            Err(cut) => {
                let host = to.named.as_ref();
                self.record_opening(door, to.entry, host, cut.reason(), Blame::Client);
            }
        }
    }

    /// Serves the HTTP of one connection, every exchange judged by itself (threats E06, E07, L06).
    async fn converse<IO>(self: Arc<Self>, io: IO, door: &Door, arrival: Arrival, http2: bool)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = self.live.connection();
        let idle = std::future::poll_fn({
            let connection = connection.clone();
            move |cx| connection.poll_idle(cx)
        });
        let limits = self.shared.limits.clone();
        let connection_heads = connection.clone();
        // Inside a tunnel the client has shown who it is; in absolute-form each request does.
        let authentication = match &door.way {
            Doorway::Proxy(known) if arrival.entry == Entry::Forward => known.clone(),
            _ => None,
        };
        // Boxed, and only where it is needed, so that an idle connection does not keep room for it.
        let of_a_flood =
            http2.then(|| Box::new((self.clone(), arrival.entry, arrival.named.clone())));
        let conversation = Conversation {
            worker: self,
            arrival: Arc::new(arrival),
            authentication,
            connection,
            violations: None,
        };
        // The exchange's future is kept where hyper keeps the conversation, and not allocated for
        // each.
        let serve =
            |conversation: Conversation| service_fn(move |request| conversation.answer(request));
        let ended = if http2 {
            let flooded = Flooded::default();
            let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(connection_window(limits.streams_per_connection))
                .max_concurrent_streams(limits.streams_per_connection)
                .max_send_buf_size(SEND_BUFFER)
                .max_header_list_size(HEADER_LIST)
                .enable_connect_protocol()
                .serve_connection(
                    TokioIo::new(Paced::new(io, flooded.clone())),
                    serve(conversation),
                );
            let ended = tokio::select! { ended = serving => ended, () = idle => Ok(()) };
            if flooded.is_so()
                && let Some((worker, entry, named)) = of_a_flood.map(|of| *of)
            {
                worker.record_opening(door, entry, named.as_ref(), "http2_flood", Blame::Client);
            }
            ended
        } else {
            let strict = Strict::new(Lingering::new(io));
            connection_heads.heads(strict.violations());
            let conversation = Conversation {
                violations: Some(strict.violations()),
                ..conversation
            };
            let serving = hyper::server::conn::http1::Builder::new()
                .half_close(true)
                .max_buf_size(HTTP1_BUFFER)
                .serve_connection(TokioIo::new(strict), serve(conversation))
                .with_upgrades();
            tokio::select! { ended = serving => ended, () = idle => Ok(()) }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a client's connection ended");
        }
    }

    fn may_reach(&self, door: &Door, host: &Host) -> bool {
        let session = &door.session;
        self.shared
            .policies
            .current()
            .may_resolve(session.id(), session.groups(), host)
    }
}

impl Worker {
    /// A refusal before there is an exchange: recorded, and told in HTTP where the client speaks
    /// it.
    async fn answer_opening(
        &self,
        io: &mut Prefixed<TcpStream>,
        door: &Door,
        to: Option<&Authority>,
        refusal: Refusal,
    ) -> io::Result<()> {
        let id = self.record_opening(door, Entry::Connect, to, refusal.reason(), refusal.blame());
        let (status, fields, content) = refusal.answer(id, Version::HTTP_11, None);
        let mut message = format!("HTTP/1.1 {} Refused\r\n", status.as_u16()).into_bytes();
        for (name, value) in &fields {
            message.extend_from_slice(
                &[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat(),
            );
        }
        message.extend_from_slice(b"\r\n");
        message.extend_from_slice(&content);
        io.write_all(&message).await
    }

    async fn refuse_opening(
        &self,
        mut io: Prefixed<TcpStream>,
        door: &Door,
        refused: explicit::Refused,
    ) {
        match refused {
            explicit::Refused::Io(_) => {}
            explicit::Refused::Socks(why) => {
                self.record_opening(door, Entry::Socks, None, why.reason(), Blame::Client);
            }
            other => {
                // The client may be gone; the refusal is recorded either way.
                let _ = self
                    .answer_opening(&mut io, door, None, Refusal::Opening(other))
                    .await;
            }
        }
    }

    fn record_opening(
        &self,
        door: &Door,
        entry: Entry,
        to: Option<&Authority>,
        reason: &'static str,
        blame: Blame,
    ) -> ExchangeId {
        let mut trail = Trail::begin(&self.shared.log, self.shared.ids.next(), entry.as_str());
        trail.session(door.session.id(), door.session.clone());
        // It is refused in either case; over the session's share it is counted, and has no record.
        let _ = trail.admit();
        trail.method("CONNECT");
        if let Some(to) = to {
            trail.authority(to.host.as_str(), to.port);
        }
        trail.refuse(reason, blame);
        self.shared
            .refused
            .count(to.map_or("", |to| to.host.as_str()), reason, trail.id());
        // Dropped unanswered, the trail writes its record.
        trail.id()
    }
}

impl Worker {
    /// Sees a session's questions for names: what is refused is recorded, each name once.
    pub fn name_observer(
        self: &Arc<Self>,
        session: &SessionId,
    ) -> Box<dyn Fn(&dns::Answer) + Send + Sync> {
        let (shared, session) = (self.shared.clone(), session.clone());
        let seen = Mutex::new(HashSet::new());
        Box::new(move |answer| {
            let Some(host) = answer
                .host
                .as_ref()
                .filter(|_| answer.verdict == dns::Verdict::NameRefused)
            else {
                return;
            };
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            // A flood of names is one line each up to a bound, then none: the log is not the
            // workload's to fill.
            if seen.len() >= REFUSED_NAMES || !seen.insert(host.clone()) {
                return;
            }
            drop(seen);
            let mut trail = Trail::begin(&shared.log, shared.ids.next(), "dns");
            if let Some(known) = shared.sessions.get(&session) {
                trail.session(&session, known);
                let _ = trail.admit();
            }
            trail.authority(host.as_str(), 0);
            trail.refuse(answer.verdict.reason(), Blame::Policy);
            shared
                .refused
                .count(host.as_str(), answer.verdict.reason(), trail.id());
        })
    }
}

/// Names whose refusal is recorded, for each session.
const REFUSED_NAMES: usize = 4096;

/// One of all open connections; it is given back when this is dropped.
struct Opened(Arc<AtomicUsize>);

impl Opened {
    fn count(open: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let before = open.fetch_add(1, Ordering::Relaxed);
        let opened = Self(open.clone());
        (before < most).then_some(opened)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where a tunnel or a captured connection goes.
struct Whither {
    entry: Entry,
    named: Option<Authority>,
    destination: Option<SocketAddr>,
}

fn arrival(
    door: &Door,
    entry: Entry,
    scheme: Scheme,
    named: Option<Authority>,
    sni: Option<Host>,
    destination: Option<SocketAddr>,
) -> Arrival {
    Arrival {
        session: door.session.id().clone(),
        entry,
        scheme,
        named,
        sni,
        destination,
    }
}

/// RFC 9113 §6.9.1: at most 2^31-1.
fn connection_window(streams: u32) -> u32 {
    STREAM_WINDOW
        .saturating_mul(streams.max(2))
        .min(i32::MAX as u32)
}

/// Whether an accept failed for the one connection only, which is gone (accept(2), "Error
/// handling").
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// What the exchanges of one connection have in common.
struct Conversation {
    worker: Arc<Worker>,
    arrival: Arc<Arrival>,
    authentication: Option<Arc<Authentication>>,
    connection: Arc<Connection>,
    violations: Option<Violations>,
}

impl Conversation {
    fn answer(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<AnswerBody>, Infallible>> + Send + use<> {
        let malformed = self
            .violations
            .as_ref()
            .and_then(|violations| violations.begin().err())
            .map(Rejected::Wire);
        let unknown = self
            .authentication
            .as_ref()
            .is_some_and(|known| !known.accepts_fields(request.headers()));
        let refusal = malformed
            .map(Refusal::from)
            .or(unknown.then_some(Refusal::ProxyAuthentication));
        let (worker, arrival, connection) = (
            self.worker.clone(),
            self.arrival.clone(),
            self.connection.clone(),
        );
        let violations = self.violations.clone();
        async move {
            let response = worker
                .respond(arrival, &connection, request, refusal, violations.as_ref())
                .await;
            if let Some(violations) = violations
                && response.status() == http::StatusCode::SWITCHING_PROTOCOLS
            {
                violations.upgraded();
            }
            Ok(response)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, C, F>(_: impl FnOnce(A, B, C) -> F) -> usize {
        std::mem::size_of::<F>()
    }

    type Tls = tokio_rustls::server::TlsStream<Prefixed<TcpStream>>;

    /// What a waiting connection and an exchange hold, in bytes, without optimisation
    /// (performance.md: at most 34 KiB a connection, buffers of TLS and HTTP included).
    #[test]
    fn a_connection_and_an_exchange_are_small() {
        let connection = size(
            |worker: Arc<Worker>, stream: TcpStream, door: &'static Door| {
                worker.connection(stream, door)
            },
        );
        let conversation = size(
            |worker: Arc<Worker>, stream: Tls, (door, arrival): (&'static Door, Arrival)| {
                worker.converse(stream, door, arrival, false)
            },
        );
        let exchange = size(
            |worker: Arc<Worker>,
             (arrival, connection): (Arc<Arrival>, &'static Arc<Connection>),
             request| { worker.respond(arrival, connection, request, None, None) },
        );
        assert!(connection <= 4096, "{connection}");
        assert!(conversation <= 6144, "{conversation}");
        assert!(exchange <= 6144, "{exchange}");
    }
}
