//! AWS Signature Version 4 and SigV4a: verifies the client's signature with its phantom, and signs
//! the request again.
//!
//! A secret key is never sent, so it cannot be swapped for its phantom. [`ClientSignature::read`]
//! parses the client's signature. [`ClientSignature::verify`] proves that it was made with the
//! phantom key over this very head. [`sign()`] removes every trace of it and signs with the real
//! key. Content that streams in signed pieces is verified and signed piece by piece, by
//! [`ChunkResigner`] and [`EventResigner`].
//!
//! Sources: AWS General Reference, "Signature Version 4 signing process"; Amazon S3 API Reference,
//! "Authenticating Requests (AWS Signature Version 4)".

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod action;
mod algorithm;
mod amz_date;
mod canonical;
mod chain;
mod chunks;
mod client_signature;
mod credential_scope;
mod ecdsa;
mod endpoint;
mod events;
mod fault;
mod held_chunk;
mod hosts;
mod key;
mod key_account;
mod mentions;
mod parse;
mod payload;
mod scope;
mod sign;
mod signed_fields;
mod tables;
mod temporary;
#[cfg(test)]
mod tests;
mod trailer;
mod verify;

pub use action::{Action, ActionFault, Lookup, PendingForm};
pub use algorithm::Algorithm;
pub use amz_date::AmzDate;
pub use chunks::ChunkResigner;
pub use client_signature::{ClientSignature, Location};
pub use credential_scope::Regions;
pub use endpoint::{Endpoint, OwnStyle, ScopeMismatch};
pub use events::EventResigner;
pub use fault::Fault;
pub use hosts::{NotFirstParty, domains};
pub use key_account::account_of;
pub use mentions::Unreadable;
pub use payload::{Payload, Streaming};
pub use scope::{OutOfScope, PinMistake, Pins, Scope, SignedFor, Where};
pub use sign::{SignedChains, SigningParams, sign, sign_own};
pub use temporary::{TemporaryCredentials, UnreadableCredentials, replaced};
pub use verify::VerifiedHead;
