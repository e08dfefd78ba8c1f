//! A session's listener, and how its connections name their destination.

use std::sync::Arc;

use crate::intercept::explicit::Authentication;
use crate::intercept::{Responder, SessionCa};
use crate::session::Session;

/// A listener that belongs to one session.
pub struct SessionListener {
    /// The session of its connections. The listener identifies it, never the peer's address
    /// (threats A18).
    pub session: Arc<Session>,
    /// The CA that terminates their TLS.
    pub ca: Arc<SessionCa>,
    /// How they name their destination.
    pub mode: ListenerMode,
}

/// How the connections of a listener name their destination.
pub enum ListenerMode {
    /// Captured connections: by the address that the client dialled, which may be synthetic.
    Transparent(Arc<Responder>),
    /// By SNI, to a fixed port.
    Tls {
        /// The port of the origins.
        port: u16,
    },
    /// By CONNECT, absolute-form or SOCKS5.
    Proxy(Option<Arc<Authentication>>),
}
