//! Identifies the session of a request: live sessions, their phantoms, and phantoms in requests.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod binding;
mod bindings;
mod clash;
mod content;
mod creation;
mod detect;
mod detected;
mod groups;
mod idle;
mod lend_list;
mod lifetime;
mod live;
mod messages;
mod operate;
mod origin_bindings;
mod parts;
mod passing_search;
mod path_phantom;
pub mod phantom;
mod refusal;
mod revocation;
mod signer;
mod signing;
#[cfg(any(test, feature = "test-support"))]
#[cfg_attr(not(test), expect(clippy::unwrap_used, reason = "used by tests alone"))]
#[doc(hidden)]
pub mod stage;
mod status;

pub use binding::{Binding, Foreign, When};
pub use bindings::Bindings;
pub use clash::{BindingMalformed, mistakes};
pub use content::ContentSearch;
pub use creation::{Creation, SessionSpec};
pub use detected::Location;
pub use detected::{CredentialUse, DetectedCredentials};
pub use lifetime::{Freshness, Lifetime, Moment, is_stale};
pub use messages::MessageSearch;
pub use origin_bindings::OriginBindings;
pub use parts::{HeldParts, KnownPart, PartTexts, SigningPart};
pub use passing_search::PassingText;
pub use refusal::{CredentialRefusal, RequestPart, SignatureFault};
pub use revocation::{Revocation, Revocations, Revoked, Severable};
pub use signer::{
    Finding, ParsedSignature, Signer, SigningContext, SigningFailure, VerifiedSignature,
};
pub use signing::{Role, Signing};

pub use live::{Error, Identified, Session, SessionConnection, SessionExchange, Sessions};
pub use operate::SessionEnded;
pub use status::{EndReason, SessionStatus};
