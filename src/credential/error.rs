//! Why a credential is not lent, a session not begun, or an answer not given on.

use super::inject::AttachFailure;
use super::scrub::{Guessed, Unscrubbable};
use super::secret::SecretUnsafe;
use super::store::Unavailable;
use crate::body::HoldFault;
use crate::names::{CredentialName, ReasonCode};
use crate::session::phantom::PhantomFailure;
use crate::session::{CredentialRefusal, SigningFailure};
use crate::sigv4::UnreadableCredentials;

/// Why a request did not get its credential. It is not sent then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such credential is configured.
    #[error("the credential is not configured")]
    Unknown,
    /// The store does not give it now.
    #[error("the credential cannot be had from its store")]
    Unavailable(#[source] Box<Unavailable>),
    /// The secret cannot stand where the phantom stood.
    #[error("the credential does not fit where its phantom stands")]
    Unfit(#[source] AttachFailure),
    /// Echoes of the secret could not be found again.
    #[error("the credential could not be kept from coming back")]
    Unscrubbable(#[source] Unscrubbable),
    /// The content had to be held and could not be.
    #[error(transparent)]
    Held(HoldFault),
    /// A foreign credential stands in the content, or it cannot be told whether one does.
    #[error(transparent)]
    Misplaced(CredentialRefusal),
    /// It is not signed again.
    #[error(transparent)]
    Signing(#[from] SigningFailure),
    /// Answers to the session held too many different parts of secrets.
    #[error(transparent)]
    Guessed(#[from] Guessed),
    /// The temporary credentials of the answer could not be kept.
    #[error("the temporary credentials of the answer cannot be kept")]
    Minted(#[from] MintFailure),
}

impl Error {
    /// The reason code in refusals and audit.
    #[must_use]
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Unknown => ReasonCode::CredentialUnknown,
            Self::Unavailable(_) => ReasonCode::SecretUnavailable,
            Self::Unfit(why) => why.reason(),
            Self::Unscrubbable(_) => ReasonCode::SecretUnsafe,
            Self::Signing(why) => why.reason(),
            Self::Held(why) => why.reason(),
            Self::Misplaced(why) => why.reason(),
            Self::Guessed(why) => why.reason(),
            Self::Minted(why) => why.reason(),
        }
    }
}

/// Why a session's phantoms were not issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueFailure {
    /// A secret had to be looked at and there was none.
    #[error("credential `{credential}` cannot be had from its store")]
    Unavailable {
        /// The credential.
        credential: CredentialName,
        /// Why.
        #[source]
        cause: Unavailable,
    },
    /// No phantom could be made.
    #[error(transparent)]
    Phantom(#[from] PhantomFailure),
}

/// Why temporary credentials are not given on. The origin has made them, and they are forgotten.
#[derive(Debug, thiserror::Error)]
pub enum MintFailure {
    /// The answer is not as the service's answers are.
    #[error(transparent)]
    Illegible(#[from] UnreadableCredentials),
    /// The answer is too long for one that holds credentials, or broke off.
    #[error("the answer with temporary credentials is too long or broke off")]
    Unheld,
    /// They could not stand in a request.
    #[error(transparent)]
    Unsafe(#[from] SecretUnsafe),
    /// No phantoms could be drawn for them.
    #[error(transparent)]
    Phantom(#[from] PhantomFailure),
    /// The system gave no randomness.
    #[error("the system's generator of random numbers failed")]
    Random,
}

impl MintFailure {
    /// The reason code in refusals and audit.
    #[must_use]
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Illegible(_) | Self::Unheld => ReasonCode::MintedUnread,
            Self::Unsafe(_) | Self::Phantom(_) => ReasonCode::MintedUnsafe,
            Self::Random => ReasonCode::NoRandomness,
        }
    }
}
