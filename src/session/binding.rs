//! A binding: which credential may stand where, in requests to whom.

use http::Method;

use super::phantom::Shape;
use super::signing::{Role, Signing};
use crate::message::{OriginPattern, Place, Route, Taken};
use crate::names::CredentialName;

/// Binds one credential to origins and places.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The credential; each has one binding.
    pub credential: CredentialName,
    /// Its declared shape; without one the secret is looked at when a session starts.
    pub shape: Option<Shape>,
    /// The origins to which it may be lent.
    pub origins: Vec<OriginPattern>,
    /// The places where it may stand, at most [`MAX_PLACES`].
    pub places: Vec<Place>,
    /// The methods with which it may be lent; empty is all.
    pub methods: Vec<Method>,
    /// The paths to which it may be lent, each with everything below it; empty is all.
    pub paths: Vec<String>,
    /// When it is put in.
    pub when: When,
    /// What becomes of another credential in a credential place of its origins.
    pub foreign: Foreign,
    /// Further places in which its origins take credentials: what stands there is none of ours.
    pub takes: Vec<Taken>,
    /// Cookies that may go to its origins, beside those of places; `*` is every one.
    pub cookies: Vec<String>,
    /// Where its origins take many requests in one, beside what is known of all origins.
    pub batches: Vec<Route>,
    /// The user that stands beside a Basic password that is always put in.
    pub basic_user: Option<String>,
    /// The variables that hold its phantom in the sandbox.
    pub variables: Vec<String>,
    /// What it is for.
    pub role: Role,
}

/// When a credential is put into a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    /// Where its phantom stands. A request without the phantom goes on without a credential, if
    /// policy lets it.
    #[default]
    Phantom,
    /// Into every request to its origins, at its first place.
    Always,
}

/// What becomes of a credential that is not ours in a credential place of a managed origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Foreign {
    /// The request is refused.
    #[default]
    Refuse,
    /// The field is removed; anywhere else it is refused all the same.
    Strip,
}

impl Binding {
    /// How it signs, where it does.
    #[must_use]
    pub fn signing(&self) -> Option<&Signing> {
        match &self.role {
            Role::Signs(signing) => Some(signing),
            Role::Place | Role::Part(_) => None,
        }
    }
}

/// Whether a path is another or lies below it, segment by segment.
pub(super) fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || above.ends_with('/') || rest.starts_with('/'))
}

/// The most places that one credential may have.
pub const MAX_PLACES: usize = 16;
