//! Tokens: macaroons that name a session of the gateway, and narrow what may be done in it.
//!
//! `libmacaroon` reads and writes the format and adds caveats. The chain of MACs is checked here,
//! and only then are caveats read, each into one type by one grammar ([`Caveat`]). A caveat only
//! ever refuses. No clock, no socket, no store: keys, times and what was revoked are arguments.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod caveat;
mod chain;
mod format;
mod judge;
mod key;
mod verify;

pub use caveat::{Caveat, CaveatMalformed, TokenLimit};
pub use chain::PrefixId;
pub use format::{PREFIX, Token, TokenMalformed, UnverifiedToken, attenuate, inspect};
pub use judge::{CaveatDenied, ConnectionEvidence, TokenUse};
pub use key::TokenKey;
pub use verify::{TokenRefused, VerifiedToken, verify};
