//! Parsers of the bytes of a connection: ClientHello, SOCKS5, DNS, WebSocket frames, and HTTP/1 by
//! its strictest reading. No socket and no clock.
//!
//! Each reader checks lengths once, through [`Cursor`] or line by line, and returns a plain value
//! that owns its parts or borrows them. It distinguishes malformed input from incomplete input.
//! Each has a property test or a fuzz target (`fuzz/targets`) that states what holds for all bytes.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod chunked;
mod cursor;
pub mod dns;
mod head;
pub mod hello;
mod lines;
mod malformed;
pub mod socks;
pub mod websocket;

pub use chunked::Chunked;
pub use cursor::{Cursor, Incomplete};
pub use head::{Framing, HeadReader, ParsedHead, parse_head};
pub use malformed::WireMalformed;
