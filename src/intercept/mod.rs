//! Room: intercept.

mod accepted;
mod budget;
pub mod ca;
mod connection;
pub mod destination;
pub mod dns;
pub mod explicit;
pub mod hello;
mod key;
pub mod leaves;
pub mod paced;
pub mod prefixed;
mod request;
pub mod responder;
pub mod socks;
pub mod strict;
pub mod synthetic;
pub mod websocket;

pub use accepted::{Accepted, Addressed, Rejected};
pub use ca::{CaError, CaSettings, MintRefused, SessionCa};
pub use connection::{ConnectionContext, Entry};
pub use destination::original_destination;
pub use hello::{Cut, Destination, Opening, Terminated, opening, terminate};
pub use leaves::MayMint;
pub use request::{Request, Upgrade};
pub use responder::{Responder, serve_tcp, serve_udp};
pub use synthetic::Synthetic;
