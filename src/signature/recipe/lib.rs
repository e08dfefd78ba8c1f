//! Recipes: how a service wants its requests signed, as data, and the engine that verifies and
//! signs by them.
//!
//! A recipe names its *parts* (key id, secret, passphrase), its *values* (time, nonce, list of
//! signed fields), the *steps* from them to a key and a text, the algorithm, and the *places* for
//! parts, values and signature. A place is a template that is written when we sign and parsed when
//! a client has signed, so one description serves both directions.
//!
//! `docs/signing-recipes.md` is the reference; `policies/signers` has the presets.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod algorithm;
mod canonical;
mod check;
mod client_signature;
mod components;
mod encoding;
mod evaluate;
mod fault;
mod filter;
mod hash;
mod json;
mod key;
mod key_fault;
mod keytext;
mod load;
mod load_value;
mod loader;
mod model;
mod name;
mod nonce;
mod part;
mod place;
mod preset;
mod primitive;
mod raw;
mod rsa;
mod sign;
mod template;
#[cfg(test)]
mod tests;
mod timestamp;
mod value;
mod verify;

pub use algorithm::Algorithm;
pub use client_signature::ClientSignature;
pub use fault::Fault;
pub use hash::MacHash;
pub use key::KeyForm;
pub use key_fault::KeyFault;
pub use loader::Mistake;
pub use model::{ContentNeed, Recipe};
pub use nonce::{Nonce, NonceKind};
pub use part::{Part, Parts, Role};
pub use preset::{preset, presets};
pub use sign::SignedContent;
pub use verify::VerifiedClaim;
