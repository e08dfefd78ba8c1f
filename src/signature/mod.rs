//! Room: signature. What a client signed with a phantom key, verified, and signed again with the
//! secret one.
//!
//! Pure: a signing key is never sent, so it cannot be swapped like another credential. Time, keys
//! and content are arguments here; no function of this room reads a clock, a socket or a store.

pub mod recipe;
pub mod sigv4;

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
