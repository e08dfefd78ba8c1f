//! AWS Signature Version 4 and SigV4a: verifies the client's signature with its phantom, and signs
//! the request again.
//!
//! A secret key is never sent, so it cannot be swapped for its phantom. [`Claim::read`] parses the
//! client's signature, [`Claim::verify`] proves that it was made with the phantom key over this
//! very head, and [`sign()`] removes every trace of it and signs with the real key. Content that
//! streams in signed pieces is verified and signed piece by piece: [`Rechain`], [`Events`]. AWS
//! General Reference, "Signature Version 4 signing process"; Amazon S3 API Reference,
//! "Authenticating Requests (AWS Signature Version 4)".

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod account;
mod action;
mod canonical;
mod chain;
mod chunks;
mod claim;
mod ecdsa;
mod endpoint;
mod events;
mod fault;
mod key;
mod minted;
mod named;
mod parse;
mod payload;
mod scope;
mod sign;
mod stamp;
mod tables;
#[cfg(test)]
mod tests;
mod verify;

pub use account::account_of;
pub use action::{Action, ActionFault, PendingForm, Reading};
pub use chain::Chain;
pub use chunks::Rechain;
pub use claim::{Algorithm, Claim, Location, Regions};
pub use endpoint::{Endpoint, NotFirstParty, OwnStyle, ScopeMismatch, Style, domains};
pub use events::Events;
pub use fault::Fault;
pub use minted::{Illegible, Minted, replaced};
pub use named::Unreadable;
pub use payload::{Payload, Streaming};
pub use scope::{Asked, OutOfScope, PinMistake, Pins, Scope, Where};
pub use sign::{Signed, With, sign};
pub use stamp::Stamp;
pub use verify::Verified;
