//! Accepts client connections: capture, proxy protocols, TLS termination, DNS, and one strict
//! reading of HTTP/1 in front of hyper.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod accepted;
mod base;
mod budget;
mod ca;
mod caller;
mod client_stream;
mod connection;
mod destination;
pub mod dns;
mod enter;
mod evidence;
pub mod explicit;
pub mod first;
mod hello;
mod key;
mod leaves;
mod mint;
pub mod nss;
pub mod paced;
pub mod prefixed;
mod proxy_tls;
mod request;
pub mod responder;
pub mod socks;
pub mod strict;
pub mod synthetic;
pub mod websocket;

pub use accepted::{Accepted, Addressed, Rejected};
pub use base::{Aliases, answer_of};
pub use ca::SessionCa;
pub use caller::{Caller, CallerRefused};
pub use client_stream::ClientStream;
pub use connection::{ConnectionContext, Entry, authority_of};
pub use destination::{is_of_this_machine, original_destination};
pub use enter::{TlsRefused, enter};
pub use evidence::{
    ClientVerifier, Evidence, HeldToken, JwtKeys, JwtSettings, JwtVerifier, KEY_NUMBER,
    PRESENTED_USER, Passwords, PeerUsers, Presented, PresentedDenied, Proof, RevokedTokens,
    TAILNET_SOCKET, Tailnet, TokenDenied, TokenPeer, TokenVerifier, UserPassword,
};
pub use gateway_token::{PrefixId, TokenLimit, TokenUse};
pub use hello::{Destination, terminate};
pub use leaves::leaves_minted;
pub use mint::{CaSettings, KeptCa};
pub use proxy_tls::{HTTP1, HTTP2, ProxyTls, ProxyTlsMalformed, ProxyTlsSettings, is_over};
pub use request::{Request, Upgrade};
pub use responder::{Responder, UdpQuestions, converse, serve_tcp, serve_udp};
pub use synthetic::{AddressPool, GATEWAY_NAME, is_synthetic};
