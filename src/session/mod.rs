//! Room: who asks. Live sessions, their phantoms, and which phantoms a request presents where.

mod binding;
mod live;
mod locate;
pub mod phantom;
mod presented;
mod reference;
mod refusal;
mod signing;
#[cfg(test)]
pub(crate) mod stage;

pub use binding::{Binding, BindingMalformed, Bindings, Foreign, MAX_PLACES, When};
pub(crate) use presented::Spot;
pub use presented::{FormWatch, Lend, Presented};
pub(crate) use reference::{CommandLine, FIXED_PATH, Keeper, MAX_TTL_SECONDS};
pub use reference::{DEFAULT_SERVICE, Member, Reference};
pub use refusal::{CredentialRefusal, Part};
pub use signing::{
    OwnEndpoint, Role, SIGV4_PARTS, SigV4, SigV4Request, Signer, Signing, SigningPart, Unsignable,
};

pub use live::{Connected, Error, Identified, Session, Sessions, Underway};
