//! The interface of signing schemes, for code outside their own files.
//!
//! A signing credential's secret is never sent, so it cannot replace the phantom in the request.
//! Instead, the request is signed again in three steps, each of which produces the input of the
//! next: [`Signer::find`] reads the client's signature, [`ParsedSignature::verify`] verifies it
//! with the session's phantoms, and [`VerifiedSignature::sign`] signs with the secrets. The schemes
//! themselves are in `credential/signing`.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use gateway_body::{Content, HoldBudget};
use gateway_message::{EncodedSlash, Origin, OriginPattern, RequestHead};
use http::HeaderName;

use super::parts::{HeldParts, KnownPart, PartTexts};
use super::phantom::{Phantom, TemporaryPhantoms};
use super::refusal::{RequestPart, SignatureFault};

/// A signing scheme, with the limits on what one credential may sign.
pub trait Signer: fmt::Debug + Send + Sync {
    /// Returns the scheme's name in configuration, and in the text form of its place.
    fn name(&self) -> &str;

    /// Returns the parts of a credential. The first part identifies signed requests.
    fn parts(&self) -> Vec<KnownPart>;

    /// Returns the credential's origins, given those `named` in the configuration.
    fn origins(&self, named: &[OriginPattern]) -> Vec<OriginPattern>;

    /// Whether the credential may be used at an origin it is bound to.
    fn holds(&self, _origin: &Origin) -> bool {
        true
    }

    /// Returns how the origin reads the path of a signed request, if unlike other requests.
    fn paths(&self, _origin: &Origin) -> Option<EncodedSlash> {
        None
    }

    /// Whether no other scheme can read the requests of this one. Such schemes are tried first. An
    /// unknown signature of such a scheme is refused, whatever the other schemes would find.
    fn is_unmistakable(&self) -> bool {
        false
    }

    /// Reads the client's signature from a request head.
    ///
    /// # Errors
    /// [`SignatureFault`], if the credential may not sign what the request asks for.
    fn find(&self, head: &RequestHead, held: &HeldParts<'_>) -> Result<Finding, SignatureFault>;

    /// Judges a request to a host that the credential is bound to, given the signature found in it,
    /// if any, of any scheme. `managed` says whether any credential is bound to its origin.
    ///
    /// # Errors
    /// [`SignatureFault`], if the request must be signed with this scheme and is not.
    fn permits_unsigned(
        &self,
        _origin: &Origin,
        _signed: Option<&dyn ParsedSignature>,
        _managed: bool,
    ) -> Result<(), SignatureFault> {
        Ok(())
    }

    /// Checks that the parts fit together, by trying them on a request to the origin.
    ///
    /// # Errors
    /// [`SignatureFault`], if they do not.
    fn try_parts(
        &self,
        _origin: &OriginPattern,
        _parts: &PartTexts<'_>,
        _now: SystemTime,
    ) -> Result<(), SignatureFault> {
        Ok(())
    }

    /// Describes the reach of the credential, if it would surprise a person. `id` is the text of
    /// its first part, if that is in the environment.
    fn reach(&self, _id: Option<&str>) -> Option<String> {
        None
    }
}

/// The finding of a signer in a request head.
pub enum Finding {
    /// The request is not signed with this scheme.
    Nothing,
    /// It is signed with a key of this credential.
    Ours {
        /// The signature.
        claimed: Arc<dyn ParsedSignature>,
        /// The phantom that identifies the key.
        phantom: Phantom,
        /// The part of the request with the signature.
        part: RequestPart,
    },
    /// It is signed with a key of this credential, but another part is not this session's.
    StrangePart {
        /// The text of the foreign part.
        text: Vec<u8>,
        /// The part of the request that holds it.
        part: RequestPart,
    },
    /// It is signed with another key, which may belong to another credential.
    StrangeKey {
        /// The key's id.
        id: Vec<u8>,
        /// The part of the request that holds it.
        part: RequestPart,
    },
    /// It may be signed with this scheme, but cannot be read.
    Unsound(SignatureFault),
}

/// A client's signature with one of the session's keys, not yet verified.
pub trait ParsedSignature: Any + Send + Sync {
    /// Whether a field belongs to the signature and was judged with it.
    fn has_field(&self, name: &HeaderName) -> bool;

    /// Whether a query parameter belongs to the signature and was judged with it.
    fn has_parameter(&self, name: &str) -> bool;

    /// Whether a field holds only the signature itself: neither a foreign credential nor a phantom.
    fn is_signature_field(&self, _name: &HeaderName) -> bool {
        false
    }

    /// Whether a query parameter holds only the signature itself.
    fn is_signature_parameter(&self, _name: &str) -> bool {
        false
    }

    /// Whether a field holds a credential that is bound to the signature's key.
    fn goes_with(&self, _name: &HeaderName, _value: &[u8]) -> bool {
        false
    }

    /// Returns the actions that the request asks for, named as in pins.
    fn actions(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the temporary credentials it is signed with, and the names of their parts. `None` if
    /// it is signed with the credential itself.
    fn temporary(&self) -> Option<(&Arc<TemporaryPhantoms>, [&'static str; 3])> {
        None
    }

    /// Checks the time stated in the head, before waiting for any content.
    ///
    /// # Errors
    /// [`SigningFailure::Skewed`] or [`SigningFailure::Expired`].
    fn judge_time(&self, _now: SystemTime) -> Result<(), SigningFailure> {
        Ok(())
    }

    /// Whether verification requires the whole content to be held.
    fn needs_content(&self, head: &RequestHead, content: &Content) -> bool;

    /// Verifies that the request was signed with the session's phantoms and may be signed.
    ///
    /// # Errors
    /// [`SigningFailure`] by cause.
    fn verify(
        self: Arc<Self>,
        head: &RequestHead,
        content: &Content,
        phantoms: &PartTexts<'_>,
        now: SystemTime,
    ) -> Result<Box<dyn VerifiedSignature>, SigningFailure>;
}

/// A verified signature. The request is signed again once.
pub trait VerifiedSignature: Send + Sync {
    /// Whether the response contains temporary credentials to keep.
    fn mints(&self) -> bool {
        false
    }

    /// Signs the request with the secrets, and changes its content to match. Returns the new
    /// signature in every form in which it could be written.
    ///
    /// # Errors
    /// [`SigningFailure`] by cause. The request must then be dropped: it may be changed in part.
    fn sign(
        self: Box<Self>,
        head: &mut RequestHead,
        content: &mut Content,
        with: &SigningContext<'_>,
    ) -> Result<Vec<Vec<u8>>, SigningFailure>;
}

/// The values needed to sign a request.
pub struct SigningContext<'a> {
    /// The secrets.
    pub parts: PartTexts<'a>,
    /// The gateway's clock.
    pub now: SystemTime,
    /// The highest nonce used with the credential.
    pub last: &'a AtomicU64,
    /// The budget for all held content of the session.
    pub budget: &'a Arc<HoldBudget>,
}

gateway_names::faults! {
    /// Why a signed request is not signed again.
    #[derive(Debug, thiserror::Error)]
    pub enum SigningFailure {
        /// The client's signature was not made with the session's phantom over this request.
        Signature(SignatureFault) = inner "the request's signature is refused: {0}",
        /// The credential may not sign the request's actions.
        Unsignable(SignatureFault) = inner "the credential may not sign this request: {0}",
        /// The client's clock is too far off.
        Skewed = SignatureSkew "the client's clock is more than 15 minutes off the gateway's",
        /// A presigned request has expired.
        Expired = SignatureExpired "the presigned request, or what it is signed with, has expired",
        /// The request could not be signed with the credential.
        Unsigned(#[source] SignatureFault) = inner
            "the request cannot be signed with the credential",
        /// The system provides no random bytes for a nonce.
        NoRandomness = NoRandomness "the system gives no random bytes",
        /// A required part is missing.
        Incomplete = CredentialUnknown "the credential is not configured",
    }
}
