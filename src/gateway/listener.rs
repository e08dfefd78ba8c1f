//! What the connections of one listener have in common.

use std::sync::Arc;

use crate::intercept::explicit::Authentication;
use crate::intercept::{Responder, SessionCa};
use crate::session::Session;

/// A session's listener: whose its connections are, and how they say where they go.
pub struct SessionListener {
    /// Whose they are: identity is the listener, never the peer's address (threats A18).
    pub session: Arc<Session>,
    /// What their TLS connections are terminated with.
    pub ca: Arc<SessionCa>,
    /// How they say where they go.
    pub mode: ListenerMode,
}

/// How the connections of a listener say where they go.
pub enum ListenerMode {
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
