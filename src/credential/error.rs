//! Why a credential was not lent, a session not started, or a response not passed on.

use gateway_body::HoldFault;
use gateway_names::CredentialName;
use gateway_session::phantom::PhantomFailure;
use gateway_session::{CredentialRefusal, Revoked, SigningFailure};
use gateway_sigv4::UnreadableCredentials;

use super::inject::AttachFailure;
use super::login::UnmappedToken;
use super::scrub::{Guessed, Unscrubbable};
use super::secret::SecretUnsafe;
use super::store::Unavailable;

gateway_names::faults! {
    /// Why a request did not get its credential. The request is then not sent.
    #[derive(Debug, thiserror::Error)]
    pub enum Error {
        /// The credential is revoked.
        Revoked(#[from] Revoked) = CredentialRevoked transparent,
        /// The gateway may lack a revocation.
        Stale = StateStale "the gateway may lack decisions of its fleet",
        /// No such credential is configured.
        Unknown = CredentialUnknown "the credential is not configured",
        /// The store cannot provide it now.
        Unavailable(#[source] Box<Unavailable>) = SecretUnavailable
            "the credential cannot be had from its store",
        /// The secret is not valid in the phantom's place.
        Unfit(#[source] AttachFailure) = inner "the credential does not fit where its phantom is",
        /// Echoes of the secret could not be detected in responses.
        Unscrubbable(#[source] Unscrubbable) = SecretUnsafe
            "the credential could not be kept from coming back",
        /// The content had to be held and could not be.
        Held(HoldFault) = inner transparent,
        /// The content contains a foreign credential, or cannot be checked for one.
        Misplaced(CredentialRefusal) = inner transparent,
        /// The request cannot be signed again.
        Signing(#[from] SigningFailure) = inner transparent,
        /// Responses to the session contained too many different parts of secrets.
        Guessed(#[from] Guessed) = inner transparent,
        /// The temporary credentials in the response could not be kept.
        Minted(#[from] MintFailure) = inner
            "the temporary credentials of the answer cannot be kept",
        /// The response has a token that the workload may not see, and that could not be replaced.
        Unmapped(#[from] UnmappedToken) = UnmappedToken transparent,
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

gateway_names::faults! {
    /// Why temporary credentials were not passed on. The origin has issued them, and they are
    /// discarded.
    #[derive(Debug, thiserror::Error)]
    pub enum MintFailure {
        /// The response does not have the service's format.
        Illegible(#[from] UnreadableCredentials) = MintedUnread transparent,
        /// The response is too long to hold credentials, or broke off.
        Unheld = MintedUnread "the answer with temporary credentials is too long or broke off",
        /// The credentials are not valid in a request.
        Unsafe(#[from] SecretUnsafe) = MintedUnsafe transparent,
        /// No phantoms could be drawn for them.
        Phantom(#[from] PhantomFailure) = MintedUnsafe transparent,
        /// The system provided no randomness.
        Random = NoRandomness "the system's generator of random numbers failed",
    }
}
