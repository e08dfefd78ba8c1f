//! Accepts client connections: capture, proxy protocols, TLS termination, DNS, and one strict
//! reading of HTTP/1 in front of hyper.

mod accepted;
mod budget;
pub mod ca;
pub mod destination;
pub mod dns;
pub mod explicit;
pub mod hello;
mod key;
pub mod leaves;
pub mod paced;
pub mod prefixed;
pub mod responder;
pub mod socks;
pub mod strict;
pub mod synthetic;
pub mod websocket;

pub(crate) use accepted::AcceptedParts;
pub use accepted::{Accepted, Arrival, Entry, Rejected, Upgrade};
pub use ca::{CaError, CaSettings, MintRefused, SessionCa};
pub use destination::original_destination;
pub use hello::{Cut, Destination, Opening, Terminated, opening, terminate};
pub use leaves::MayMint;
pub use responder::{Responder, serve_tcp, serve_udp};
pub use synthetic::Synthetic;
