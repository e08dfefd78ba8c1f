//! The credentials that a request uses, and where each one appears.

use std::sync::Arc;

use gateway_audit::Text;
use gateway_body::{HeldBody, digest};
use gateway_intercept::Request;
use gateway_message::{Place, RequestHead, RequestTarget};
use gateway_names::CredentialName;
use http::{HeaderName, HeaderValue, header};
use smallvec::SmallVec;
use zeroize::Zeroizing;

use super::bindings::Bound;
use super::origin_bindings::OriginBindings;
use super::phantom::Phantom;
use super::refusal::CredentialRefusal;
use super::revocation::Revocations;
use super::signer::ParsedSignature;
use super::signing::Signing;

/// The credentials that a request uses, each at most once, and the fields to remove from the
/// request.
///
/// Made only by [`Bindings::detect`](super::Bindings::detect). Nothing has been fetched or changed
/// yet: policy judges this first.
#[derive(Debug)]
pub struct DetectedCredentials {
    /// The credentials to use, in the order in which they were found.
    pub lends: SmallVec<[CredentialUse; 1]>,
    /// The target with `{}` in place of a phantom, if one is lent in the path.
    pub(super) target: Option<RequestTarget>,
    pub(super) strip: SmallVec<[HeaderName; 1]>,
    /// The cookies that are passed on, if the origin is managed.
    pub(super) cookies: Option<HeaderValue>,
    /// Whether the request holds many requests in one.
    pub batch: bool,
    /// The bindings of the origin.
    pub here: Arc<OriginBindings>,
}

/// One credential at one place of one request.
#[derive(Clone)]
pub struct CredentialUse {
    pub(super) bound: Arc<Bound>,
    pub(super) place: usize,
    pub(super) spot: Location,
    pub(super) phantom: Phantom,
}

/// The exact location of a phantom.
#[derive(Clone)]
pub enum Location {
    /// The whole value of a field, after its scheme.
    Field,
    /// One half of Basic credentials. This is the other half.
    Basic(Zeroizing<Vec<u8>>),
    /// The range of bytes in the cookie field.
    Cookie(std::ops::Range<usize>),
    /// The value of the query parameter with this index.
    Query(usize),
    /// The position of `{}` in the path.
    Path,
    /// The range of bytes in the content, still escaped.
    Content(std::ops::Range<usize>),
    /// In a message, after the request has upgraded its connection to a WebSocket.
    Message,
    /// Nowhere: the credential is always injected.
    Absent,
    /// The key of this signature.
    Signature(Arc<dyn ParsedSignature>),
}

impl DetectedCredentials {
    /// Returns the credentials to use, in the order in which they were found.
    pub fn lends(&self) -> &[CredentialUse] {
        &self.lends
    }

    /// Whether one of them is in the content.
    pub fn is_in_content(&self) -> bool {
        self.lends
            .iter()
            .any(|lend| matches!(lend.spot, Location::Content(_)))
    }

    /// Whether one of them signs the request.
    pub fn is_signed(&self) -> bool {
        self.lends.iter().any(|lend| lend.claimed().is_some())
    }

    /// Checks that the held content may be changed.
    ///
    /// # Errors
    /// [`CredentialRefusal::Digest`] if a digest or a signature covers it.
    pub fn allow_change(&self, request: &Request) -> Result<(), CredentialRefusal> {
        let trailers = request.content.held().and_then(HeldBody::trailers);
        if !self.is_signed() && digest::may_change(&request.head.fields, trailers) {
            Ok(())
        } else {
            Err(CredentialRefusal::Digest)
        }
    }

    /// Masks a phantom that is lent in the path, and removes fields with foreign credentials and
    /// cookies that must not be passed on. Policy judges the result.
    pub fn settle(&self, head: &mut RequestHead) {
        if let Some(target) = &self.target {
            head.target = target.clone();
        }
        let fields = &mut head.fields;
        for name in &self.strip {
            fields.remove(name);
        }
        match &self.cookies {
            Some(kept) if kept.is_empty() => drop(fields.remove(header::COOKIE)),
            Some(kept) => drop(fields.insert(header::COOKIE, kept.clone())),
            None => {}
        }
    }
}

impl CredentialUse {
    /// Returns the credential.
    pub fn credential(&self) -> &CredentialName {
        &self.bound.binding.credential
    }

    /// Returns the place. Policy and audit see its text form.
    pub fn place(&self) -> &Place {
        &self.bound.binding.places[self.place]
    }

    /// Returns the text form of the place.
    pub fn place_text(&self) -> &Text {
        &self.bound.place_texts[self.place]
    }

    /// Returns the session's phantom, which replaces the secret if the response echoes it.
    pub fn phantom(&self) -> &Phantom {
        &self.phantom
    }

    /// The index of the binding in the configuration.
    pub fn index(&self) -> usize {
        self.bound.index
    }

    /// The index of the place in the binding.
    pub fn place_index(&self) -> usize {
        self.place
    }

    /// All places of the binding.
    pub fn places(&self) -> &[Place] {
        &self.bound.binding.places
    }

    /// The user name to pair with a Basic password that is always injected.
    pub fn basic_user(&self) -> Option<&str> {
        self.bound.binding.basic_user.as_deref()
    }

    /// Where exactly the phantom is.
    pub fn spot(&self) -> &Location {
        &self.spot
    }

    /// The signature made with it, if it signs.
    pub fn claimed(&self) -> Option<&Arc<dyn ParsedSignature>> {
        match &self.spot {
            Location::Signature(claimed) => Some(claimed),
            _ => None,
        }
    }

    /// The actions it is used to ask for, by the names used in pins. Empty if it does not sign.
    pub fn actions(&self) -> Vec<String> {
        self.claimed()
            .map_or_else(Vec::new, |claimed| claimed.actions())
    }

    /// What revokes it: the binding's, and that of the temporary credentials that sign.
    pub fn revocations(&self) -> Revocations {
        let temporary = self.claimed().and_then(|claimed| claimed.temporary());
        let temporary = temporary.into_iter().flat_map(|(set, _)| set.revocations());
        let own = self.bound.binding.revocations.iter();
        own.chain(temporary).cloned().collect()
    }

    /// How the request is signed with it, if it signs.
    pub fn signing(&self) -> Option<&Signing> {
        self.bound.binding.signing()
    }
}

impl std::fmt::Debug for CredentialUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "CredentialUse({} at {})",
            self.credential(),
            self.place()
        )
    }
}
