//! Callers at listeners: the tokens that they present, and the sessions that they select.

mod by_token;
mod sessions;

pub use sessions::{AskedSession, CallerSessions, ListenerSessions, LivePair, LiveSessions};
