//! From a client's connection to its exchanges: by which door it came, what it is to, and which
//! HTTP it speaks.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout_at};

use super::Worker;
use super::refusal::Refusal;
use crate::intercept::explicit::{self, Asked, Authentication};
use crate::intercept::prefixed::Prefixed;
use crate::intercept::socks::{self, Target};
use crate::intercept::{
    ConnectionContext, Destination, Entry, Responder, SessionCa, original_destination, terminate,
};
use crate::message::{Authority, Host, Scheme};
use crate::names::ReasonCode;
use crate::session::Session;

/// A TLS handshake record begins with this byte (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 22;
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
                .count("", ReasonCode::ConnectionLimit, self.shared.ids.next());
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

    pub(super) async fn connection(self: Arc<Self>, stream: TcpStream, door: &Door) {
        let deadline = Instant::now() + self.shared.limits.handshake_timeout;
        match &door.way {
            Doorway::Transparent(responder) => {
                self.captured(stream, door, responder, deadline).await
            }
            Doorway::Tls { port } => {
                let nowhere = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), *port);
                let target = TunnelTarget {
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
        let target = TunnelTarget {
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
                    let context = context(door, Entry::Forward, Scheme::Http, None, None, None);
                    return Box::pin(self.conversation(door, context).http1(io)).await;
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
                    TunnelTarget {
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
    ) -> Option<TunnelTarget> {
        let target = match target {
            Target::Named(authority) => {
                if !self.may_reach(door, &authority.host) {
                    self.record_opening(
                        door,
                        Entry::Socks,
                        Some(&authority),
                        ReasonCode::PolicyDefaultDeny,
                    );
                    let _ = socks::reply(io, socks::Reply::NotAllowed).await;
                    return None;
                }
                TunnelTarget {
                    entry: Entry::Socks,
                    named: Some(authority),
                    destination: None,
                }
            }
            Target::Address(address) => TunnelTarget {
                entry: Entry::Socks,
                named: None,
                destination: Some(address),
            },
        };
        socks::reply(io, socks::Reply::Succeeded)
            .await
            .ok()
            .map(|()| target)
    }

    /// Serves what is inside a tunnel or a captured connection: TLS, which is terminated, or HTTP
    /// in clear text. There is no third way: bytes that are neither go nowhere (threats A13).
    async fn tunnel(
        self: Arc<Self>,
        mut io: Prefixed<TcpStream>,
        door: &Door,
        to: TunnelTarget,
        deadline: Instant,
    ) {
        match timeout_at(deadline, io.ensure(1)).await {
            Ok(Ok(true)) => {}
            _ => return,
        }
        if io.ahead()[0] != TLS_HANDSHAKE {
            let clear = context(door, to.entry, Scheme::Http, to.named, None, to.destination);
            return Box::pin(self.conversation(door, clear).http1(io)).await;
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
                let context = context(door, to.entry, Scheme::Https, named, sni, to.destination);
                let conversation = self.conversation(door, context);
                if inside.http2 {
                    Box::pin(conversation.http2(inside.stream, door)).await;
                } else {
                    Box::pin(conversation.http1(inside.stream)).await;
                }
            }
            Err(cut) => {
                let host = to.named.as_ref();
                self.record_opening(door, to.entry, host, cut.reason());
            }
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
struct TunnelTarget {
    entry: Entry,
    named: Option<Authority>,
    destination: Option<SocketAddr>,
}

fn context(
    door: &Door,
    entry: Entry,
    scheme: Scheme,
    named: Option<Authority>,
    sni: Option<Host>,
    destination: Option<SocketAddr>,
) -> ConnectionContext {
    ConnectionContext {
        session: door.session.id().clone(),
        entry,
        scheme,
        named,
        sni,
        destination,
    }
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
