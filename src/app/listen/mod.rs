//! The listeners of `serve`: bound, changed by a reload, and the files of their clients.

pub mod bind;
pub mod caller_sessions;
pub mod change;
pub mod issuers;
pub mod listeners;
pub mod names;
pub mod publish;
pub mod sandbox_ports;
