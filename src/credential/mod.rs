//! The only module that sees secrets: fetches each from its store and replaces its phantom.

mod attach;
mod check;
mod credentialed;
mod credentials;
mod error;
mod exposed;
mod fetch;
mod given;
mod guesses;
mod holding;
mod inject;
mod issue;
pub mod login;
mod mint;
mod part;
pub mod preset;
mod redactor;
mod revocation;
pub mod ring;
pub mod scrub;
mod searched;
mod secret;
mod signatures;
pub mod signing;
mod store;
mod stored;
mod upstream_login;
mod verify;

pub use check::{CheckedCredential, CredentialProblem, unexpected_reach};
pub use credentialed::{AnswerPlan, Credentialed};
pub use credentials::Credentials;
pub use error::{Error, IssueFailure, MintFailure};
pub use guesses::Guesses;
pub use holding::Holding;
pub use inject::AttachFailure;
pub use mint::Minting;
pub use redactor::Redactor;
pub use revocation::{Revocation, Revoked, Severable};
pub use scrub::{
    EchoSearch, FrameFault, Guessed, ScrubBody, ScrubFault, ScrubFrames, Scrubber, SecretForms,
};
pub use secret::{MAX_BYTES, MIN_BYTES, Secret, SecretUnsafe};
pub use store::{
    CachedSecret, DEFAULT_SERVICE, Forgotten, HttpAnswer, HttpClient, KeySource, LoginMethod,
    LoginSettings, Logins, ReferenceMalformed, RowLogin, SecretRef, SecretSource, StoreError,
    StoreFuture, Stores, Unavailable, UnreadRow, Vault, VaultLogin, VaultSettings, unfit,
    variable_name,
};
pub use stored::Stored;
pub use upstream_login::{LoginUnavailable, UpstreamLogin};
pub use verify::Verified;
