//! Room: signature. What a client signed with a phantom key, verified, and signed again with the secret one.
//!
//! Pure: a signing key is never sent, so it cannot be swapped like another credential. Time, keys and content are arguments
//! here; no function of this room reads a clock, a socket or a store.

pub mod recipe;
pub mod sigv4;
