//! Ways of signing requests, as far as everything but their own files knows them.
//!
//! What signs is never sent, so it cannot be put where its phantom stood. A request is signed again
//! in three steps, each of which gives what the next one takes: [`Signer::find`] reads the client's
//! signature, [`Claimed::verify`] proves it with the session's phantoms, and [`Proven::sign`] signs
//! with the secrets. The ways themselves are in `credential/signing`.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use http::HeaderName;

use super::parts::{HeldParts, KnownPart, PartTexts};
use super::phantom::{Phantom, TemporaryPhantoms};
use super::refusal::{RequestPart, SignatureFault};
use crate::body::{Content, HoldBudget};
use crate::message::{EncodedSlash, Origin, OriginPattern, RequestHead};
use crate::names::ReasonCode;

/// A way of signing, with what one credential may sign in it.
pub trait Signer: fmt::Debug + Send + Sync {
    /// Its name in configuration, and in the text form of its place.
    fn name(&self) -> &str;

    /// The parts of a credential. The first is that by which signed requests are known.
    fn parts(&self) -> Vec<KnownPart>;

    /// The origins of a credential for which `named` are written down.
    fn origins(&self, named: &[OriginPattern]) -> Vec<OriginPattern>;

    /// Whether the credential may be used at an origin that it is bound to.
    fn holds(&self, _origin: &Origin) -> bool {
        true
    }

    /// How the origin reads the path of a signed request, where that differs from other requests.
    fn paths(&self, _origin: &Origin) -> Option<EncodedSlash> {
        None
    }

    /// Whether no other way of signing reads what this one reads. Such ways are asked first, and a
    /// strange signature of theirs is refused whatever the others would find.
    fn is_unmistakable(&self) -> bool {
        false
    }

    /// Reads the client's signature from a head.
    ///
    /// # Errors
    /// [`SignatureFault`], where the credential may not sign what the request asks for.
    fn find(&self, head: &RequestHead, held: &HeldParts<'_>) -> Result<Found, SignatureFault>;

    /// Judges a request to a host for which the credential is bound, with the signature that was
    /// found in it, if any, in whatever way it is made. `managed` says whether any credential is
    /// bound to its origin.
    ///
    /// # Errors
    /// [`SignatureFault`], where the request must be signed in this way, and is not.
    fn permits_unsigned(
        &self,
        _origin: &Origin,
        _signed: Option<&dyn Claimed>,
        _managed: bool,
    ) -> Result<(), SignatureFault> {
        Ok(())
    }

    /// Whether the parts fit together, tried on a request to the origin.
    ///
    /// # Errors
    /// [`SignatureFault`], where they do not.
    fn try_parts(
        &self,
        _origin: &OriginPattern,
        _parts: &PartTexts<'_>,
        _now: SystemTime,
    ) -> Result<(), SignatureFault> {
        Ok(())
    }

    /// How far the credential reaches, in words, where a person would not expect it. `id` is the
    /// text of its first part, if that is in the environment.
    fn reach(&self, _id: Option<&str>) -> Option<String> {
        None
    }
}

/// What a signer finds in a head.
pub enum Found {
    /// The request is not signed in this way.
    Nothing,
    /// It is signed with a key of this credential.
    Ours {
        /// The signature.
        claimed: Arc<dyn Claimed>,
        /// The phantom by which it is known.
        phantom: Phantom,
        /// Where the signature is.
        part: RequestPart,
    },
    /// It is signed with a key of this credential, and another part beside it is a stranger's.
    StrangePart {
        /// The other part.
        text: Vec<u8>,
        /// Where it is.
        part: RequestPart,
    },
    /// It is signed with another key, which may be another credential's.
    StrangeKey {
        /// The key's id.
        id: Vec<u8>,
        /// Where it is.
        part: RequestPart,
    },
    /// It may be signed in this way, and cannot be read.
    Unsound(SignatureFault),
}

/// A signature of the client's, with a key of the session's, that is not proven yet.
pub trait Claimed: Any + Send + Sync {
    /// Whether a field is a part of the signature, and was judged with it.
    fn has_field(&self, name: &HeaderName) -> bool;

    /// Whether a query parameter is.
    fn has_parameter(&self, name: &str) -> bool;

    /// Whether a field holds the signature without a part beside it: it is no foreign credential,
    /// and has no phantom either.
    fn is_signature_field(&self, _name: &HeaderName) -> bool {
        false
    }

    /// Whether a query parameter does.
    fn is_signature_parameter(&self, _name: &str) -> bool {
        false
    }

    /// Whether a field holds a credential that is bound to the key of the signature.
    fn goes_with(&self, _name: &HeaderName, _value: &[u8]) -> bool {
        false
    }

    /// What the request asks for, by the names that pins have.
    fn actions(&self) -> Vec<String> {
        Vec::new()
    }

    /// The temporary credentials that it is signed with, if it is not signed with the credential
    /// itself, and the names of their parts.
    fn temporary(&self) -> Option<(&Arc<TemporaryPhantoms>, [&'static str; 3])> {
        None
    }

    /// Judges the time that the head tells, before any content is waited for.
    ///
    /// # Errors
    /// [`SigningFailure::Skewed`] and [`SigningFailure::Expired`].
    fn judge_time(&self, _now: SystemTime) -> Result<(), SigningFailure> {
        Ok(())
    }

    /// Whether the content must be held to verify it.
    fn needs_content(&self, head: &RequestHead, content: &Content) -> bool;

    /// Proves that the request was signed with the session's phantoms, and that it may be.
    ///
    /// # Errors
    /// [`SigningFailure`] by cause.
    fn verify(
        self: Arc<Self>,
        head: &RequestHead,
        content: &Content,
        phantoms: &PartTexts<'_>,
        now: SystemTime,
    ) -> Result<Box<dyn Proven>, SigningFailure>;
}

/// A signature that was proven. It is signed again once.
pub trait Proven: Send + Sync {
    /// Whether the answer holds temporary credentials that are to be kept.
    fn mints(&self) -> bool {
        false
    }

    /// Signs the request with the secrets, and has its content follow. Gives the signature as it is
    /// written, in each way in which it could be.
    ///
    /// # Errors
    /// [`SigningFailure`] by cause. The request must then be dropped, for it may be half changed.
    fn sign(
        self: Box<Self>,
        head: &mut RequestHead,
        content: &mut Content,
        with: &SigningContext<'_>,
    ) -> Result<Vec<Vec<u8>>, SigningFailure>;
}

/// What a request is signed with.
pub struct SigningContext<'a> {
    /// The secrets.
    pub parts: PartTexts<'a>,
    /// The gateway's clock.
    pub now: SystemTime,
    /// The greatest number that was used once with the credential.
    pub last: &'a AtomicU64,
    /// What all held content of the session may take.
    pub budget: &'a Arc<HoldBudget>,
}

/// Why a signed request is not signed again.
#[derive(Debug, thiserror::Error)]
pub enum SigningFailure {
    /// The client's signature is not that of the session's phantom over this request.
    #[error("the request's signature is refused: {0}")]
    Signature(SignatureFault),
    /// The credential may not sign what the request asks for.
    #[error("the credential may not sign this request: {0}")]
    Unsignable(SignatureFault),
    /// The client's clock is too far off.
    #[error("the client's clock is more than 15 minutes off the gateway's")]
    Skewed,
    /// A presigned request's time is over.
    #[error("the presigned request, or what it is signed with, has expired")]
    Expired,
    /// The request could not be signed with the credential.
    #[error("the request cannot be signed with the credential")]
    Unsigned(#[source] SignatureFault),
    /// The system gives no random bytes for a number that is used once.
    #[error("the system gives no random bytes")]
    NoRandomness,
    /// A part that it needs is not there.
    #[error("the credential is not configured")]
    Incomplete,
}

impl SigningFailure {
    /// The reason code in refusals and audit.
    #[must_use]
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Signature(fault) | Self::Unsignable(fault) | Self::Unsigned(fault) => {
                fault.reason()
            }
            Self::Skewed => ReasonCode::SignatureSkew,
            Self::Expired => ReasonCode::SignatureExpired,
            Self::NoRandomness => ReasonCode::NoRandomness,
            Self::Incomplete => ReasonCode::CredentialUnknown,
        }
    }
}
