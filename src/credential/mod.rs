//! The only room that sees a secret: fetches it from its store and puts it where its phantom stood.

mod attach;
mod credentialed;
mod examine;
mod exposed;
mod given;
mod guesses;
mod inject;
mod mint;
mod part;
pub mod preset;
mod recodes;
pub mod ring;
pub mod scrub;
mod secret;
mod sign;
mod signatures;
mod store;
mod stored;
mod verify;

pub use attach::{Credentials, Error, IssueFailure};
pub use credentialed::{AnswerPlan, Credentialed, Lent};
pub use examine::{Examined, Lack, account_in_environment};
pub use guesses::Guesses;
pub use inject::AttachFailure;
pub use mint::{MintFailure, Minting};
pub use scrub::{
    EchoSearch, FrameFault, Guessed, ScrubBody, ScrubFault, ScrubFrames, Scrubber, SecretForms,
};
pub use secret::{MAX_BYTES, MIN_BYTES, Secret, SecretUnsafe};
pub use store::{
    CachedSecret, DEFAULT_SERVICE, HttpAnswer, HttpClient, LoginMethod, ReferenceMalformed,
    SecretRef, SecretSource, StoreError, StoreFuture, Stores, Unavailable, Vault, VaultLogin,
    VaultSettings, variable_name,
};
pub use stored::Stored;
pub use verify::{Holding, Verified};
