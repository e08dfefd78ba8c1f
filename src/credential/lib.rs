//! The only crate that sees secrets: fetches each from its store and replaces its phantom.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod attach;
mod buffer_limits;
mod check;
mod configured;
mod credentialed;
mod credentials;
mod error;
mod exposed;
mod fetch;
mod guesses;
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
mod search_snapshot;
mod secret;
mod secret_history;
mod signatures;
pub mod signing;
mod store;
mod upstream_login;
mod verify;

pub use buffer_limits::BufferLimits;
pub use check::{CheckedCredential, CredentialProblem, unexpected_reach};
pub use configured::ConfiguredCredential;
pub use credentialed::{AnswerPlan, Credentialed};
pub use credentials::Credentials;
pub use error::{Error, IssueFailure, MintFailure};
pub use guesses::Guesses;
pub use inject::AttachFailure;
pub use inject::messages::{InjectMessages, MessageFault};
pub use mint::{KeptCredentials, Minting};
pub use redactor::Redactor;
pub use revocation::RevokedSecrets;
pub use scrub::{
    EchoSearch, FrameFault, Guessed, ScrubBody, ScrubFault, ScrubFrames, Scrubber, SecretForms,
};
pub use secret::{MAX_BYTES, MIN_BYTES, Secret, SecretUnsafe};
pub use store::{
    AwsService, AwsSettings, CachedSecret, ConfiguredStore, DEFAULT_SERVICE, ForgetOutcome,
    HttpAnswer, HttpClient, KeySource, LoginMethod, LoginSettings, Logins, OpSettings,
    ReferenceMalformed, RowLogin, SecretRef, SecretSource, StoreError, StoreFuture, StoreKind,
    StoreSettings, Stores, Unavailable, UnreadRow, VaultLogin, VaultSettings, is_store_name, tell,
    unfit, variable_name,
};
pub use upstream_login::{LoginUnavailable, UpstreamLogin};
pub use verify::{Settled, Verified};
