//! Verifies what a client signed with a phantom key, and signs it again with the real one.
//!
//! A signing key is never sent, so it cannot be swapped like another credential. Everything here is
//! pure: time, keys and content are arguments; no function reads a clock, a socket or a store.

pub use gateway_recipe as recipe;
pub use gateway_sigv4 as sigv4;
