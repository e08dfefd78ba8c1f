//! A session's listener, how its connections name their destination, and what reloads change.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use gateway_intercept::{
    Aliases, Caller, CallerRefused, ClientStream, ClientVerifier, Entry, Evidence, JwtKeys,
    JwtVerifier, Presented, PresentedDenied, Proof, ProxyTls, Responder, SessionCa, TokenPeer,
    UserPassword,
};
use gateway_message::Origin;
use gateway_names::SessionId;
use gateway_session::Session;
use tokio_util::sync::CancellationToken;

use super::callers::ListenerSessions;
use super::shared::SharedState;

/// A listener, and the sessions of its connections.
pub struct SessionListener {
    sessions: ListenerSessions,
    /// How its connections name their destination.
    pub mode: ListenerMode,
    /// The evidence that identifies callers; empty if the listener alone does.
    evidence: Vec<Evidence>,
    pub(super) state: Arc<ListenerState>,
}

/// Where a connection arrived, and from whom.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'l> {
    pub(super) listener: &'l SessionListener,
    /// Its client. `None` if it was captured: addresses in a sandbox identify no client.
    pub(super) client: Option<SocketAddr>,
}

/// A connection that a listener accepted.
#[derive(Clone, Copy)]
pub(super) struct Inbound<'l> {
    pub(super) from: Arrival<'l>,
    pub(super) selected: &'l SelectedSession,
    /// The address at which its client reached the listener, if the connection itself shows it.
    pub(super) reached: Option<&'l Origin>,
}

/// What a connection's evidence selects.
pub(super) struct SelectedSession {
    pub(super) session: Arc<Session>,
    /// The CA that terminates the connection's TLS.
    pub(super) ca: Arc<SessionCa>,
    /// The caller, if there is evidence besides the listener.
    pub(super) caller: Option<Arc<Caller>>,
}

impl SelectedSession {
    /// Returns the same selection for a tunnel to the proxy itself.
    pub(super) fn inside(&self) -> Self {
        Self {
            session: self.session.clone(),
            ca: self.ca.clone(),
            caller: self.caller.as_ref().map(Caller::inside),
        }
    }
}

/// What a client's credentials identify.
pub(super) enum Bearer {
    /// Its token selected a session.
    Selected(SelectedSession),
    /// A caller; the session is still to be selected.
    Caller(Arc<Caller>),
}

/// The caller that a connection's evidence shows, apart from the client's credentials.
pub(super) type PeerCaller = Result<Option<Arc<Caller>>, CallerRefused>;

/// How the connections of a listener name their destination.
pub enum ListenerMode {
    /// Captured connections: by the address that the client dialled, which may be synthetic.
    Transparent {
        /// Resolves the synthetic addresses back to names.
        names: SessionNames,
        /// The port that it listens on, if a client could dial that. Connections to this port at
        /// this machine's own addresses were not captured, and are refused.
        own_port: Option<u16>,
    },
    /// By SNI, to a fixed port.
    Tls {
        /// The port of the origins.
        port: u16,
    },
    /// By CONNECT, absolute-form or SOCKS5.
    Proxy,
    /// By the alias that their paths begin with.
    Base(Arc<Aliases>),
    /// No destination: its connections are DNS queries.
    Dns(SessionNames),
}

/// Finds the DNS server of a session.
pub type SessionNames = Arc<dyn Fn(&SessionId) -> Arc<Responder> + Send + Sync>;

impl ListenerMode {
    /// Returns the entry of a connection from which nothing has been read yet.
    pub(super) fn entry(&self) -> Entry {
        match self {
            Self::Transparent { .. } | Self::Dns(_) => Entry::Transparent,
            Self::Tls { .. } => Entry::Tls,
            Self::Proxy => Entry::Connect,
            Self::Base(_) => Entry::Base,
        }
    }
}

/// The state of a listener that changes while its connections are open.
pub(super) struct ListenerState {
    /// Verifies the credentials of clients; `None` if they present none.
    pub(super) verifier: Option<Arc<ClientVerifier>>,
    /// The TLS of a proxy now; `None` if its clients speak in clear text.
    pub(super) tls: Option<Arc<ArcSwap<ProxyTls>>>,
    /// How many connections have no session yet.
    pub(super) without_session: Arc<AtomicUsize>,
    /// Cancelled when the listener's connections are to drain.
    pub(super) leaves: CancellationToken,
}

impl SessionListener {
    /// Creates a listener of a gateway.
    #[must_use]
    pub fn new(
        shared: &SharedState,
        sessions: impl Into<ListenerSessions>,
        mode: ListenerMode,
    ) -> Self {
        let state = ListenerState {
            verifier: None,
            tls: None,
            without_session: Arc::default(),
            leaves: shared.draining.child_token(),
        };
        Self {
            sessions: sessions.into(),
            mode,
            evidence: Vec::new(),
            state: Arc::new(state),
        }
    }

    /// Requires this evidence of every connection. If it includes credentials that clients present,
    /// `verifier` verifies them. Clients speak `tls` to the listener, if it is given.
    #[must_use]
    pub fn with_evidence(
        self,
        evidence: Vec<Evidence>,
        verifier: Option<Arc<ClientVerifier>>,
        tls: Option<Arc<ProxyTls>>,
    ) -> Self {
        let state = ListenerState {
            verifier,
            tls: tls.map(|tls| Arc::new(ArcSwap::new(tls))),
            without_session: Arc::default(),
            leaves: self.state.leaves.clone(),
        };
        Self {
            evidence,
            state: Arc::new(state),
            ..self
        }
    }

    /// Returns the verifier of JWTs, if the listener accepts them.
    #[must_use]
    pub fn jwts(&self) -> Option<&Arc<JwtVerifier>> {
        self.state.verifier.as_ref()?.jwts.as_ref()
    }

    /// Returns where a connection comes from, if that tells clients of the session apart.
    pub(super) fn client(&self, stream: &ClientStream) -> Option<SocketAddr> {
        match self.mode {
            ListenerMode::Transparent { .. } | ListenerMode::Dns(_) => None,
            ListenerMode::Tls { .. } | ListenerMode::Proxy | ListenerMode::Base(_) => {
                stream.peer_addr()
            }
        }
    }

    /// Describes a connection of this client.
    pub(super) fn arrival(&self, client: Option<SocketAddr>) -> Arrival<'_> {
        let listener = self;
        Arrival { listener, client }
    }

    /// Identifies the caller of a connection before it is read; `None` if no evidence is required.
    pub(super) async fn caller(&self, stream: &ClientStream) -> PeerCaller {
        match self.evidence[..] {
            [] => Ok(None),
            ref all => Evidence::first(all, stream).await.map(Some),
        }
    }

    /// Returns the one session of all connections, if no evidence is required.
    pub(super) fn session_of_all(&self) -> Option<&SessionId> {
        match &self.sessions {
            ListenerSessions::One(session, _) if self.evidence.is_empty() => Some(session.id()),
            _ => None,
        }
    }

    /// Verifies what a client presents. A token selects a session; the evidence `beside` it still
    /// identifies the caller. In a caller's own session, the user is that caller.
    pub(super) async fn by_presented(
        &self,
        presented: Option<Presented>,
        (peer, beside): (&TokenPeer, &PeerCaller),
    ) -> Result<Bearer, PresentedDenied> {
        let by = self.state.verifier.as_ref();
        let by = by.ok_or(PresentedDenied::Missing)?;
        if let ListenerSessions::EachCaller(all) = &self.sessions
            && let Some(token) = by.token_of(presented.as_ref())
        {
            all.learn(&token).await;
        }
        let (token, presented) = match by.take(presented, peer)? {
            Proof::Caller(caller) => return Ok(Bearer::Caller(caller)),
            Proof::Token(token, presented) => (token, presented),
        };
        let live = match &self.sessions {
            ListenerSessions::One(session, ca) => Some((session.clone(), ca.clone())),
            ListenerSessions::EachCaller(all) => all.live.get(token.session().0),
        };
        // The session whose key verified the token, and no later one of the same name.
        let live = live.filter(|(one, _)| (one.id(), one.before()) == token.session());
        let (session, ca) = live.ok_or(PresentedDenied::Other)?;
        let (user, beside) = match beside {
            Ok(caller) => (None, caller.clone()),
            Err(refused) => (refused.user.clone(), None),
        };
        let user = session.user().cloned().or(user);
        let caller = Some(Arc::new(Caller::with_token(
            (token, presented),
            user,
            beside,
        )));
        Ok(Bearer::Selected(SelectedSession {
            session,
            ca,
            caller,
        }))
    }

    /// Finds the session that a caller selects.
    pub(super) async fn select(
        &self,
        caller: Option<Arc<Caller>>,
    ) -> Result<SelectedSession, CallerRefused> {
        let (session, ca) = match (&self.sessions, &caller) {
            (ListenerSessions::One(session, ca), _) => (session.clone(), ca.clone()),
            (ListenerSessions::EachCaller(all), Some(caller)) => all.of(caller).await?,
            (ListenerSessions::EachCaller(_), None) => return Err(CallerRefused::of(None, "")),
        };
        Ok(SelectedSession {
            session,
            ca,
            caller,
        })
    }

    /// Replaces the passwords of a proxy, the keys of its JWTs, and its TLS. Connections that used
    /// a removed password or key end. Connections keep the TLS that they began with, for as long as
    /// the new TLS accepts their certificates.
    pub fn ask_for(
        &self,
        (passwords, keys): (Vec<UserPassword>, Option<&JwtKeys>),
        tls: Option<Arc<ProxyTls>>,
    ) {
        if let Some((door, tls)) = self.state.tls.as_ref().zip(tls)
            && *door.load_full() != *tls
        {
            door.store(tls);
        }
        let verifier = self.state.verifier.as_ref();
        if let Some(known) = verifier.and_then(|by| by.passwords.as_ref()) {
            known.replace(passwords);
        }
        if let Some((known, keys)) = self.jwts().zip(keys) {
            known.replace(keys.clone());
        }
    }
}

/// A listening address. A reload may give its next connections to another listener.
pub struct ListenerSlot {
    now: ArcSwap<SessionListener>,
    pub(super) closes: CancellationToken,
    /// The sockets that may still give it connections.
    pub(super) sockets: AtomicUsize,
}

impl ListenerSlot {
    /// Creates a slot whose next connections go to a listener.
    #[must_use]
    pub fn new(shared: &SharedState, listener: SessionListener) -> Self {
        Self {
            now: ArcSwap::from_pointee(listener),
            closes: shared.draining.child_token(),
            sockets: AtomicUsize::new(0),
        }
    }

    /// Whether connections may still come, or have come and have no session yet. The others count
    /// as their session's.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let waiting = || {
            self.now
                .load()
                .state
                .without_session
                .load(Ordering::Acquire)
        };
        self.sockets.load(Ordering::Acquire) > 0 || waiting() > 0
    }

    /// Returns the listener of the next connection.
    #[must_use]
    pub fn listener(&self) -> Arc<SessionListener> {
        self.now.load_full()
    }

    /// Gives the next connections to another listener. Once [`SharedState::announce`] was called,
    /// the connections of the replaced one drain. Returns a slot for it, which gets no more.
    pub fn replace(&self, listener: SessionListener) -> Arc<Self> {
        let before = self.now.swap(Arc::new(listener));
        before.state.leaves.cancel();
        Arc::new(Self {
            now: ArcSwap::new(before),
            closes: self.closes.clone(),
            sockets: AtomicUsize::new(0),
        })
    }

    /// Stops listening. The connections drain, once [`SharedState::announce`] was called.
    pub fn close(&self) {
        self.now.load().state.leaves.cancel();
        self.closes.cancel();
    }
}
