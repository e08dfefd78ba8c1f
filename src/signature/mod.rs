//! Verifies what a client signed with a phantom key, and signs it again with the real one.
//!
//! A signing key is never sent, so it cannot be swapped like another credential. Everything here is
//! pure: time, keys and content are arguments; no function reads a clock, a socket or a store.

pub use gateway_recipe as recipe;
pub use gateway_sigv4 as sigv4;

use crate::names::ReasonCode;

/// Why a signed request is refused, in whichever way it is signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// In the manner of AWS.
    #[error(transparent)]
    SigV4(#[from] sigv4::Fault),
    /// By a recipe.
    #[error(transparent)]
    Recipe(#[from] recipe::Fault),
}

impl Fault {
    /// The short code for refusals and audit records.
    #[must_use]
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::SigV4(fault) => fault.reason(),
            Self::Recipe(fault) => fault.reason(),
        }
    }
}
