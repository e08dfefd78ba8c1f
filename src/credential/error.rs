//! Why a credential was not lent, a session not started, or an answer not passed on.

use super::inject::AttachFailure;
use super::login::UnmappedToken;
use super::scrub::{Guessed, Unscrubbable};
use super::secret::SecretUnsafe;
use super::store::Unavailable;
use crate::body::HoldFault;
use crate::names::{CredentialName, ReasonCode};
use crate::session::phantom::PhantomFailure;
use crate::session::{CredentialRefusal, Revoked, SigningFailure};
use crate::sigv4::UnreadableCredentials;

/// Why a request did not get its credential. The request is then not sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The credential is revoked.
    #[error(transparent)]
    Revoked(#[from] Revoked),
    /// No such credential is configured.
    #[error("the credential is not configured")]
    Unknown,
    /// The store cannot provide it now.
    #[error("the credential cannot be had from its store")]
    Unavailable(#[source] Box<Unavailable>),
    /// The secret is not valid in the phantom's place.
    #[error("the credential does not fit where its phantom is")]
    Unfit(#[source] AttachFailure),
    /// Echoes of the secret could not be detected in answers.
    #[error("the credential could not be kept from coming back")]
    Unscrubbable(#[source] Unscrubbable),
    /// The content had to be held and could not be.
    #[error(transparent)]
    Held(HoldFault),
    /// The content contains a foreign credential, or cannot be checked for one.
    #[error(transparent)]
    Misplaced(CredentialRefusal),
    /// The request cannot be signed again.
    #[error(transparent)]
    Signing(#[from] SigningFailure),
    /// Answers to the session contained too many different parts of secrets.
    #[error(transparent)]
    Guessed(#[from] Guessed),
    /// The temporary credentials in the answer could not be kept.
    #[error("the temporary credentials of the answer cannot be kept")]
    Minted(#[from] MintFailure),
    /// The answer has a token that the workload may not see, and that could not be replaced.
    #[error(transparent)]
    Unmapped(#[from] UnmappedToken),
}

impl Error {
    /// The reason code in refusals and audit.
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Revoked(_) => ReasonCode::CredentialRevoked,
            Self::Unknown => ReasonCode::CredentialUnknown,
            Self::Unavailable(_) => ReasonCode::SecretUnavailable,
            Self::Unfit(why) => why.reason(),
            Self::Unscrubbable(_) => ReasonCode::SecretUnsafe,
            Self::Signing(why) => why.reason(),
            Self::Held(why) => why.reason(),
            Self::Misplaced(why) => why.reason(),
            Self::Guessed(why) => why.reason(),
            Self::Minted(why) => why.reason(),
            Self::Unmapped(_) => ReasonCode::UnmappedToken,
        }
    }
}

/// Why a session's phantoms were not issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueFailure {
    /// A secret had to be read and was not available.
    #[error("credential `{credential}` cannot be had from its store")]
    Unavailable {
        /// The credential.
        credential: CredentialName,
        /// The cause.
        #[source]
        cause: Unavailable,
    },
    /// No phantom could be made.
    #[error(transparent)]
    Phantom(#[from] PhantomFailure),
}

/// Why temporary credentials were not passed on. The origin has issued them, and they are
/// discarded.
#[derive(Debug, thiserror::Error)]
pub enum MintFailure {
    /// The answer does not have the service's format.
    #[error(transparent)]
    Illegible(#[from] UnreadableCredentials),
    /// The answer is too long to hold credentials, or broke off.
    #[error("the answer with temporary credentials is too long or broke off")]
    Unheld,
    /// The credentials are not valid in a request.
    #[error(transparent)]
    Unsafe(#[from] SecretUnsafe),
    /// No phantoms could be drawn for them.
    #[error(transparent)]
    Phantom(#[from] PhantomFailure),
    /// The system provided no randomness.
    #[error("the system's generator of random numbers failed")]
    Random,
}

impl MintFailure {
    /// The reason code in refusals and audit.
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Illegible(_) | Self::Unheld => ReasonCode::MintedUnread,
            Self::Unsafe(_) | Self::Phantom(_) => ReasonCode::MintedUnsafe,
            Self::Random => ReasonCode::NoRandomness,
        }
    }
}
