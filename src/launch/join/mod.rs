//! A second command in a running sandbox (`gateway exec --into`): its caller, the sandbox's first
//! process that starts it, and their protocol.

mod client;
mod protocol;
mod server;

pub use client::JoinListener;
pub use protocol::{JoinError, JoinSender};

pub(crate) use protocol::receive;
pub(crate) use server::JoinedCommands;
