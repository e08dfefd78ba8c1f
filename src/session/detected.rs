//! What a request presents: which credentials are to be lent, and where each stands.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use zeroize::Zeroizing;

use super::bindings::Bound;
use super::phantom::{Phantom, Phantoms};
use super::refusal::{CredentialRefusal, RequestPart};
use super::signer::Claimed;
use super::signing::Signing;
use crate::body::FormKind;
use crate::message::{Place, folded_parameter};
use crate::names::CredentialName;

/// What a request asks to have lent, at most one of each credential, and what must be removed from
/// it.
///
/// Made by [`Bindings::detect`](super::Bindings::detect) alone. Nothing is fetched and nothing is
/// changed yet: policy judges it first.
#[derive(Debug, Default)]
pub struct DetectedCredentials {
    pub(crate) lends: Vec<CredentialUse>,
    pub(super) strip: Vec<HeaderName>,
    /// The cookies that go on, where the origin is managed.
    pub(super) cookies: Option<HeaderValue>,
    pub(crate) watch: Option<FormWatch>,
    pub(crate) batch: bool,
}

/// What may not stand in the content of a request, which is looked at when it is held.
///
/// A phantom of the session is inert there, so that it may stand: in content none is replaced.
#[derive(Debug, Clone)]
pub struct FormWatch {
    /// The names of members in which the service takes credentials, each as [`folded_parameter`]
    /// gives it.
    pub(super) names: Vec<Box<str>>,
}

impl FormWatch {
    /// Judges the content, in the format that the fields of its request announce.
    ///
    /// # Errors
    /// [`CredentialRefusal::Foreign`], and [`CredentialRefusal::Unreadable`] where it cannot be
    /// judged.
    pub(crate) fn judge(
        &self,
        kind: FormKind,
        content: &[u8],
        phantoms: &Phantoms,
    ) -> Result<(), CredentialRefusal> {
        let is_asked = |name: &str| {
            let name = folded_parameter(name);
            self.names.iter().any(|taken| **taken == *name)
        };
        let values = kind
            .values(content, is_asked)
            .map_err(|why| CredentialRefusal::Unreadable { why })?;
        let is_ours =
            |text: &str| text.is_empty() || phantoms.all().iter().any(|ours| ours.reveal() == text);
        if values
            .iter()
            .all(|value| value.as_deref().is_some_and(is_ours))
        {
            Ok(())
        } else {
            Err(CredentialRefusal::Foreign {
                part: RequestPart::Content,
            })
        }
    }
}

/// One credential at one place of one request.
#[derive(Clone)]
pub struct CredentialUse {
    pub(super) bound: Arc<Bound>,
    pub(super) place: usize,
    pub(super) spot: Location,
    pub(super) phantom: Phantom,
}

/// Where exactly the phantom stands.
#[derive(Clone)]
pub(crate) enum Location {
    /// It is a field's whole value, after its scheme.
    Field,
    /// It is one half of Basic credentials; this is the other.
    Basic(Zeroizing<Vec<u8>>),
    /// It is these bytes of the cookie field.
    Cookie(std::ops::Range<usize>),
    /// It is the value of the query parameter of this index.
    Query(usize),
    /// It stands nowhere: the credential is always put in.
    Absent,
    /// It is the key of this signature.
    Signature(Arc<dyn Claimed>),
}

impl DetectedCredentials {
    /// The credentials that are to be lent, in the order in which they were found.
    #[must_use]
    pub fn lends(&self) -> &[CredentialUse] {
        &self.lends
    }

    /// Removes fields with foreign credentials, and the cookies that do not go on.
    pub fn settle(&self, fields: &mut HeaderMap) {
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
    /// The credential.
    #[must_use]
    pub fn credential(&self) -> &CredentialName {
        &self.bound.binding.credential
    }

    /// The place, whose text form policy and audit see.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.bound.binding.places[self.place]
    }

    /// The place's text form.
    #[must_use]
    pub fn place_text(&self) -> &str {
        &self.bound.place_texts[self.place]
    }

    /// The session's phantom, which an echo of the secret becomes again.
    #[must_use]
    pub fn phantom(&self) -> &Phantom {
        &self.phantom
    }

    /// Which binding it is, in the order of the configuration.
    pub(crate) fn index(&self) -> usize {
        self.bound.index
    }

    /// Which of the binding's places it is.
    pub(crate) fn place_index(&self) -> usize {
        self.place
    }

    /// All places of the binding.
    pub(crate) fn places(&self) -> &[Place] {
        &self.bound.binding.places
    }

    /// The user beside a Basic password that is always put in.
    pub(crate) fn basic_user(&self) -> Option<&str> {
        self.bound.binding.basic_user.as_deref()
    }

    /// Where exactly the phantom stands.
    pub(crate) fn spot(&self) -> &Location {
        &self.spot
    }

    /// The signature that is made with it, where it signs.
    pub(crate) fn claimed(&self) -> Option<&Arc<dyn Claimed>> {
        match &self.spot {
            Location::Signature(claimed) => Some(claimed),
            _ => None,
        }
    }

    /// What is asked for with it, by the names that pins have, where it signs.
    pub(crate) fn actions(&self) -> Vec<String> {
        self.claimed()
            .map_or_else(Vec::new, |claimed| claimed.actions())
    }

    /// How the request is signed with it, where it signs.
    pub(crate) fn signing(&self) -> Option<&Signing> {
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
