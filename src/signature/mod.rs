//! Signatures: what a client signed with a phantom key, verified, and signed again with the secret one. Pure.
//!
//! A signing key is never sent, so it cannot be swapped like another credential. Time and key bytes are arguments here; no
//! function of this room reads a clock, a socket or a store.

pub mod recipe;
