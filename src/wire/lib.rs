//! Parsers of the bytes of a connection: ClientHello, SOCKS5, DNS, WebSocket frames, lines of git,
//! messages of SSH agents, and HTTP/1 by its strictest reading. No socket and no clock.
//!
//! Every format is read in one way. A [`Cursor`] goes over the bytes that are here. A reader takes
//! a message from the front and returns a plain value, of which all lengths and forms are checked,
//! or a [`ReadError`]: how the bytes are malformed, or that they end inside the message. A reader
//! keeps nothing, so it reads a whole buffer and a stream alike. Code that reads a stream shows it
//! the same bytes again with more behind them ([`Cursor::whole`]), or has them held ([`Pending`]).
//! A payload is counted and not held ([`Cursor::payload`]). A type that follows many messages
//! ([`Chunked`], [`websocket::Frames`]) keeps only its position. Lines of HTTP/1 are searched for
//! their end, each byte once; ClientHello and DNS are parsed by rustls and hickory. A value that
//! the gateway also writes has its writer beside its reader. A property test states that what is
//! written is read, and a fuzz target (`fuzz/targets`) what holds for all bytes.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod chunked;
mod cursor;
pub mod dns;
mod head;
pub mod hello;
mod lines;
mod malformed;
pub mod pkt_line;
pub mod socks;
pub mod ssh_agent;
pub mod websocket;

pub use chunked::Chunked;
pub use cursor::{Cursor, Pending, ReadError};
pub use head::{Framing, HeadReader, ParsedHead, parse_head};
pub use malformed::WireMalformed;
