//! Accepts connections on listeners, and determines their destination.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gateway_intercept::explicit::{Opening, OpeningRefused};
use gateway_intercept::prefixed::Prefixed;
use gateway_intercept::{
    Caller, ClientStream, ConnectionContext, Entry, Responder, UdpQuestions, authority_of,
    converse, is_of_this_machine, original_destination, serve_udp,
};
use gateway_message::Authority;
use gateway_names::{ReasonCode, User};
use tokio::time::{Instant, timeout, timeout_at};

use super::listener::{
    Arrival, Inbound, ListenerMode, ListenerSlot, SelectedSession, SessionListener, SessionNames,
};
use super::listening_socket::{BoundSocket, ListeningSocket, is_of_one_connection};
use super::proxy::absolute_form;
use super::tunnel::TunnelTarget;
use super::worker::Worker;

/// Users whose DNS queries recently waited for their session to be made.
#[derive(Default)]
struct DnsWaits(HashMap<User, Instant>);

impl DnsWaits {
    /// Returns how long a query of this user may block others. Then it is lost, and repeated.
    fn patience(&mut self, user: Option<&User>) -> Duration {
        let now = Instant::now();
        self.0.retain(|_, at| now - *at < Duration::from_secs(1));
        match user {
            Some(user) if !self.0.contains_key(user) => {
                self.0.insert(user.clone(), now);
                Duration::from_millis(100)
            }
            _ => Duration::ZERO,
        }
    }
}

impl Worker {
    /// Takes a bound socket, to be served on this worker's thread. If it is `inherited`, a service
    /// manager holds it, too.
    ///
    /// # Errors
    /// The error of registering it with the worker's runtime.
    pub fn take(&self, socket: BoundSocket, inherited: bool) -> io::Result<ListeningSocket> {
        let _entered = self.runtime.enter();
        ListeningSocket::new(socket, inherited)
    }

    /// Serves a socket on this worker's thread, until its slot closes or the gateway stops. Then
    /// serves the connections that wait to be accepted, and closes the socket.
    ///
    /// The socket counts as listening from this call on.
    pub fn listen(self: &Arc<Self>, socket: ListeningSocket, slot: Arc<ListenerSlot>) {
        let listening = ConnectionSlot::count(&self.shared.listening, usize::MAX);
        slot.sockets.fetch_add(1, Ordering::AcqRel);
        let worker = self.clone();
        self.runtime.spawn(async move {
            let _listening = listening;
            tokio::select! {
                () = worker.accept(&socket, &slot) => {}
                () = slot.closes.cancelled() => {}
            }
            for stream in socket.close().await {
                worker.admit(stream, slot.listener());
            }
            slot.sockets.fetch_sub(1, Ordering::AcqRel);
        });
    }

    /// Answers the DNS queries that arrive over UDP at a listener, on this worker's thread, until
    /// its slot closes.
    pub fn answer_names(self: &Arc<Self>, socket: std::net::UdpSocket, slot: Arc<ListenerSlot>) {
        let worker = self.clone();
        self.runtime.spawn(async move {
            loop {
                let listener = slot.listener();
                let (ListenerMode::Dns(names), Ok(socket)) = (&listener.mode, socket.try_clone())
                else {
                    return;
                };
                tokio::select! {
                    biased;
                    () = slot.closes.cancelled() => return,
                    () = listener.state.leaves.cancelled() => {}
                    ended = worker.answer_udp(socket, &listener, names) => {
                        tracing::warn!(?ended, "names are no longer answered by UDP");
                        return;
                    }
                }
            }
        });
    }

    async fn answer_udp(
        &self,
        socket: std::net::UdpSocket,
        listener: &SessionListener,
        names: &SessionNames,
    ) -> io::Result<()> {
        if let Some(session) = listener.session_of_all() {
            return serve_udp(socket, names(session)).await;
        }
        let (mut questions, mut waited) = (UdpQuestions::new(socket)?, DnsWaits::default());
        loop {
            questions.next().await?;
            // A captured query carries no other evidence.
            let selected = match questions.caller() {
                Ok(caller) => {
                    let patience = waited.patience(caller.user.as_ref());
                    let selecting = timeout(patience, listener.select(Some(caller)));
                    let Ok(selected) = selecting.await else {
                        continue;
                    };
                    selected
                }
                Err(refused) => Err(refused),
            };
            match selected {
                Ok(selected) => {
                    let names = names(selected.session.id());
                    questions.answer_admitted(&names, selected.caller.as_deref());
                }
                Err(refused) => drop(self.record_caller(listener.arrival(None), refused, None)),
            }
        }
    }

    async fn accept(self: &Arc<Self>, socket: &ListeningSocket, slot: &ListenerSlot) {
        loop {
            match socket.accept().await {
                Ok(stream) => self.admit(stream, slot.listener()),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    // Out of descriptors or memory: the listener waits and tries again. It never
                    // ends (threats P04).
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn admit(self: &Arc<Self>, stream: ClientStream, listener: Arc<SessionListener>) {
        let look = self.shared.look();
        let limits = &look.limits;
        let opened = ConnectionSlot::count(&self.shared.open, limits.connections);
        // Connections without a session are limited for each listener, so that others have room.
        let without = &listener.state.without_session;
        let waiting = ConnectionSlot::count(without, limits.connections_per_session);
        let Some(counted) = opened.zip(waiting) else {
            return self.over_limit();
        };
        drop(look);
        if let Err(error) = stream.set_nodelay() {
            tracing::debug!(%error, "a connection was gone before it was served");
            return;
        }
        let worker = self.clone();
        tokio::spawn(async move {
            let _counted = counted;
            worker.connection(stream, &listener).await;
        });
    }

    /// Counts a connection that is closed because there are too many. The count is reported once at
    /// the end, so that a flood does not fill the operator's terminal.
    pub(super) fn over_limit(&self) {
        let refused = &self.shared.refused;
        refused.count("", ReasonCode::ConnectionLimit, self.shared.ids.next());
        tracing::debug!("over a limit of connections; one was closed");
    }

    pub(super) async fn connection(
        self: Arc<Self>,
        stream: ClientStream,
        listener: &Arc<SessionListener>,
    ) {
        let deadline = Instant::now() + self.shared.look().limits.handshake_timeout;
        let stream = match &listener.state.tls {
            None => stream,
            // Boxed, so that a connection does not keep memory for its handshake.
            Some(door) => match Box::pin(self.by_tls(stream, (listener, door), deadline)).await {
                Some(stream) => stream,
                None => return,
            },
        };
        if stream.is_http2() {
            return Box::pin(self.by_http2(stream, listener.clone(), deadline)).await;
        }
        if listener.state.verifier.is_some() {
            return Box::pin(self.by_presented(stream, listener, deadline)).await;
        }
        let from = listener.arrival(listener.client(&stream));
        match listener.caller(&stream).await {
            Ok(caller) => {
                self.select(Prefixed::new(stream), from, caller, None, deadline)
                    .await;
            }
            Err(refused) => {
                let io = Prefixed::new(stream);
                Box::pin(self.refuse_caller(io, from, refused, None, deadline)).await;
            }
        }
    }

    /// Serves a caller's connection in the session that it selects. `asked` is the opening of a
    /// proxy's client, if it was read already.
    pub(super) async fn select(
        self: Arc<Self>,
        io: Prefixed<ClientStream>,
        from: Arrival<'_>,
        caller: Option<Arc<Caller>>,
        asked: Option<Result<Opening, OpeningRefused>>,
        deadline: Instant,
    ) {
        let selecting = timeout_at(deadline, from.listener.select(caller));
        match Box::pin(selecting).await {
            Ok(Ok(selected)) => {
                Box::pin(self.serve(io, from, &selected, asked, deadline)).await;
            }
            Ok(Err(refused)) => {
                Box::pin(self.refuse_caller(io, from, refused, asked, deadline)).await;
            }
            Err(_) => {}
        }
    }

    /// Serves a connection in its session. `asked` is the proxy client's opening, if already read.
    pub(super) async fn serve(
        self: Arc<Self>,
        io: Prefixed<ClientStream>,
        from: Arrival<'_>,
        selected: &SelectedSession,
        asked: Option<Result<Opening, OpeningRefused>>,
        deadline: Instant,
    ) {
        let most = self.shared.look().limits.connections_per_session;
        let Some(_place) = selected.session.connect(most) else {
            return self.over_limit();
        };
        let _known = SessionSlot::count(&from.listener.state.without_session);
        let reached = io.get_ref().reached();
        let inbound = Inbound {
            from,
            selected,
            reached: reached.as_ref(),
        };
        match &from.listener.mode {
            ListenerMode::Transparent { names, own_port } => {
                let names = names(selected.session.id());
                self.captured(io, inbound, (&names, *own_port), deadline)
                    .await;
            }
            ListenerMode::Dns(names) => tokio::select! {
                // Its end is no event: a client asks again.
                _ = converse(io, names(selected.session.id()), selected.caller.clone()) => {}
                () = from.listener.state.leaves.cancelled() => {}
            },
            ListenerMode::Tls { port } => {
                let nowhere = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), *port);
                let target = TunnelTarget {
                    entry: Entry::Tls,
                    named: None,
                    destination: Some(nowhere),
                };
                self.tunnel(io, inbound, target, deadline).await;
            }
            ListenerMode::Base(aliases) => {
                let context = ConnectionContext {
                    entry: Entry::Base,
                    aliases: Some(aliases.clone()),
                    ..absolute_form(inbound)
                };
                Box::pin(self.conversation(inbound, context).http1(io)).await;
            }
            ListenerMode::Proxy => self.proxied(io, inbound, asked, deadline).await,
        }
    }

    async fn captured(
        self: Arc<Self>,
        io: Prefixed<ClientStream>,
        inbound: Inbound<'_>,
        (names, own_port): (&Responder, Option<u16>),
        deadline: Instant,
    ) {
        // Captured connections never use a Unix socket.
        let ClientStream::Tcp(stream) = io.get_ref() else {
            return;
        };
        let destination = match original_destination(stream) {
            Ok(destination) => destination,
            Err(error) => {
                return tracing::debug!(%error, "a connection without a destination was closed");
            }
        };
        if own_port == Some(destination.port()) && is_of_this_machine(destination.ip()) {
            let to = authority_of(destination);
            let reason = ReasonCode::OwnAddress;
            self.record_opening(inbound, Entry::Transparent, to.as_ref(), reason);
            return;
        }
        let named = names.name(destination.ip()).map(|host| Authority {
            host,
            port: destination.port(),
        });
        let target = TunnelTarget {
            entry: Entry::Transparent,
            named,
            destination: Some(destination),
        };
        self.tunnel(io, inbound, target, deadline).await;
    }
}

/// A place among all open connections, freed on drop.
pub(super) struct ConnectionSlot(Arc<AtomicUsize>);

impl ConnectionSlot {
    pub(super) fn count(open: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let before = open.fetch_add(1, Ordering::Relaxed);
        let opened = Self(open.clone());
        (before < most).then_some(opened)
    }
}

/// A connection that has a session, and counts again as one without when this is dropped.
pub(super) struct SessionSlot(Arc<AtomicUsize>);

impl SessionSlot {
    pub(super) fn count(without: &Arc<AtomicUsize>) -> Self {
        without.fetch_sub(1, Ordering::Relaxed);
        Self(without.clone())
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
