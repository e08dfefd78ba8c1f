//! The bindings that apply to one origin, looked up once for all of its requests.

use std::borrow::Cow;
use std::sync::Arc;

use gateway_message::{EncodedSlash, LENT, Origin, Place};

use super::bindings::{Bindings, Bound};
use super::signing::Role;

/// The bindings that apply to an origin, in the order of the configuration, and facts derived from
/// them for each request.
#[derive(Debug)]
pub struct OriginBindings {
    origin: Origin,
    pub(super) bound: Vec<Arc<Bound>>,
    /// The bindings that sign for its host, on any port.
    pub(super) host_signers: Vec<Arc<Bound>>,
    signed_paths: Option<EncodedSlash>,
    is_managed: bool,
    is_signed_for: bool,
    takes_content: bool,
}

impl Bindings {
    /// Finds the bindings of an origin.
    pub fn at_origin(&self, origin: &Origin) -> OriginBindings {
        let all = self.all.iter().filter(|bound| bound.is_for(origin));
        let bound: Vec<_> = all.cloned().collect();
        let signers = || bound.iter().filter_map(|bound| bound.binding.signing());
        // If two bindings disagree, the path is resolved. A signature over a different path then
        // fails to match.
        let signed_paths = signers()
            .filter_map(|signing| signing.signer.paths(origin))
            .reduce(|one, other| {
                if one == other {
                    one
                } else {
                    EncodedSlash::Keep
                }
            });
        let host = &origin.authority.host;
        let signs = |bound: &&Arc<Bound>| bound.binding.signing().is_some() && bound.is_at(host);
        OriginBindings {
            origin: origin.clone(),
            host_signers: self.all.iter().filter(signs).cloned().collect(),
            signed_paths,
            is_managed: bound
                .iter()
                .any(|bound| matches!(bound.binding.role, Role::Place)),
            is_signed_for: signers().next().is_some(),
            takes_content: bound.iter().any(|bound| bound.takes_content()),
            bound,
        }
    }
}

impl OriginBindings {
    /// Returns the origin.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns how the origin reads the path of a signed request, if unlike other requests.
    pub fn signed_paths(&self) -> Option<EncodedSlash> {
        self.signed_paths
    }

    /// Returns a path as records show it: with `{}` for the text in a place.
    pub fn shown<'p>(&self, path: &'p str) -> Cow<'p, str> {
        let places = self.bound.iter().flat_map(|bound| &bound.binding.places);
        let mut parts = places.filter_map(|place| match place {
            Place::Path(place) => place.find(path).or_else(|| place.loosely(path)),
            _ => None,
        });
        parts.next().map_or(Cow::Borrowed(path), |part| {
            format!("{}{LENT}{}", &path[..part.start], &path[part.end..]).into()
        })
    }

    /// Whether a credential that is injected is bound to the origin, so that the origin may know a
    /// secret. Signing credentials do not count: they are never sent.
    pub fn is_managed(&self) -> bool {
        self.is_managed
    }

    /// Whether the origin accepts credentials in content.
    pub(super) fn takes_content(&self) -> bool {
        self.takes_content
    }

    /// Whether a credential signs for the origin.
    pub fn is_signed_for(&self) -> bool {
        self.is_signed_for
    }

    /// The credentials, including parts of signing credentials, by their positions in the
    /// configuration.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        self.bound.iter().map(|bound| bound.index)
    }
}
