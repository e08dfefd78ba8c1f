//! The listeners of `serve`: bound, changed by a reload, and the files of their clients.

pub(crate) mod bind;
pub(crate) mod caller_sessions;
pub(crate) mod change;
pub(crate) mod issuers;
pub(crate) mod listeners;
pub(crate) mod names;
pub(crate) mod publish;
pub(crate) mod sandbox_ports;
