//! Room: who asks. Live sessions, their phantoms, and which phantoms a request presents where.

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
pub use refusal::{CredentialRefusal, Part};
pub use signing::{
    OwnEndpoint, Role, SIGV4_PARTS, SigV4, SigV4Request, Signer, Signing, SigningPart, Unsignable,
};

pub(crate) use live::IdentifiedParts;
pub use live::{Connected, Error, Identified, Session, Sessions, Underway};
