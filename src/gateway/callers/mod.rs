//! Callers at listeners: their TLS, the tokens that they present, and the sessions that they
//! select.

mod by_tls;
mod by_token;
mod sessions;

pub use sessions::{AskedSession, CallerSessions, ListenerSessions, LivePair, LiveSessions};
