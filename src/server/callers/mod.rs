//! Callers at listeners: their TLS, the credentials that they present, and the sessions that they
//! select.

mod by_http2;
mod by_presented;
mod by_tls;
mod needs;
mod refused;
mod sessions;

pub use needs::{ClientEnvironment, ClientPages, ClientProxy};
pub use refused::RefusedCallers;
pub use sessions::{CallerSessions, ListenerSessions, LivePair, LiveSessions, SessionRequest};
