//! Who makes a request: live sessions, their phantoms, and the phantoms that a request presents.

mod binding;
mod live;
mod locate;
pub mod phantom;
mod presented;
mod refusal;
mod signing;
#[cfg(test)]
pub(crate) mod stage;

pub use binding::{Binding, BindingMalformed, Bindings, Foreign, MAX_PLACES, When};
pub(crate) use presented::Spot;
pub use presented::{FormWatch, Lend, Presented};
pub use refusal::{CredentialRefusal, RequestPart, SignatureFault};
pub use signing::{
    Claimed, Found, HeldParts, KnownPart, PartTexts, Proven, Role, Signer, Signing, SigningContext,
    SigningFailure, SigningPart,
};

pub use live::{Connected, Error, Identified, Session, Sessions, Underway};
