//! Bindings: where each credential may appear, and in requests to which origins.

use gateway_message::{AcceptedCredential, OriginPattern, PathPattern, Place};
use gateway_names::CredentialName;
use http::Method;

use super::phantom::Shape;
use super::revocation::Revocations;
use super::signing::{Role, Signing};

/// Binds one credential to origins and places.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The credential. Each credential has one binding.
    pub credential: CredentialName,
    /// Its declared shape. Without one, the secret itself is inspected when a session starts.
    pub shape: Option<Shape>,
    /// For a token of a login: the further claims that its phantom keeps if it is a JSON Web Token.
    /// The phantom then ends in 2100, because the gateway renews the token.
    pub claims: Option<Vec<String>>,
    /// The origins that may receive the credential.
    pub origins: Vec<OriginPattern>,
    /// The places where it may appear, at most `MAX_PLACES`.
    pub places: Vec<Place>,
    /// The methods it may be used with. Empty means all.
    pub methods: Vec<Method>,
    /// The paths it may be used on, each with everything below it. Empty means all.
    pub paths: Vec<String>,
    /// When it is injected.
    pub when: When,
    /// What happens to a foreign credential in a credential place of one of its origins.
    pub foreign: Foreign,
    /// Further places where its origins accept credentials. Any credential there is foreign.
    pub takes: Vec<AcceptedCredential>,
    /// Further cookies that may be sent to its origins. `*` allows every cookie.
    pub cookies: Vec<String>,
    /// Where its origins accept batch requests, besides the batch routes known for all origins.
    pub batches: Vec<PathPattern>,
    /// The user name to pair with a Basic password that is always injected.
    pub basic_user: Option<String>,
    /// The variables that hold its phantom in the sandbox.
    pub variables: Vec<String>,
    /// The role of the credential in a request.
    pub role: Role,
    /// The revocations of the credential and its parts, shared between generations.
    pub revocations: Revocations,
}

/// When a credential is injected into a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    /// Only where its phantom appears. A request without the phantom is sent without a credential,
    /// if policy allows it.
    #[default]
    Phantom,
    /// In every request to its origins, at its first place.
    Always,
}

/// What happens to a foreign credential in a credential place of a managed origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Foreign {
    /// The request is refused.
    #[default]
    Refuse,
    /// The field is removed. A foreign credential outside a field is still refused.
    Strip,
    /// The credential is passed on unchanged, as at an origin to which no credential is bound.
    Pass,
}

impl Binding {
    /// Returns a binding with the defaults, which is not bound to anything yet.
    pub fn of(credential: CredentialName) -> Self {
        Self {
            credential,
            shape: None,
            claims: None,
            origins: Vec::new(),
            places: Vec::new(),
            methods: Vec::new(),
            paths: Vec::new(),
            when: When::default(),
            foreign: Foreign::default(),
            takes: Vec::new(),
            cookies: Vec::new(),
            batches: Vec::new(),
            basic_user: None,
            variables: Vec::new(),
            role: Role::Place,
            revocations: Revocations::new(),
        }
    }

    /// Returns how the credential signs, if it signs.
    pub fn signing(&self) -> Option<&Signing> {
        match &self.role {
            Role::Signs(signing) => Some(signing),
            Role::Place | Role::Part(_) | Role::Kept => None,
        }
    }
}

/// Whether `path` equals `above` or lies below it, segment by segment.
pub(super) fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || above.ends_with('/') || rest.starts_with('/'))
}

/// The most places one credential may have.
pub const MAX_PLACES: usize = 16;
