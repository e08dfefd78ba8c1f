//! All bindings of a configuration.

use std::sync::Arc;

use gateway_audit::Text;
use gateway_message::{
    AcceptedCredential, AcceptedPart, Host, Origin, OriginPattern, Place, named_paths,
};
use gateway_names::CredentialName;
use http::{HeaderMap, HeaderName, Method};

use super::binding::{Binding, Foreign, is_below};
use super::clash::{BindingMalformed, mistakes};
use super::phantom::{Phantom, Phantoms};
use super::signing::Role;

/// A binding in use.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) binding: Binding,
    /// Its position in the configuration, which `credential` uses to identify it.
    pub(super) index: usize,
    /// The text forms of its places.
    pub(super) place_texts: Vec<Text>,
    /// The fields that hold its places, and the fields that hold other credentials.
    pub(super) fields: Vec<HeaderName>,
}

/// All bindings of a configuration, in its order.
pub struct Bindings {
    pub(super) all: Vec<Arc<Bound>>,
}

impl Bindings {
    /// Builds the set after checking that no binding is too broad, unprotected or ambiguous.
    ///
    /// # Errors
    /// [`BindingMalformed`] by cause.
    pub fn new(bindings: Vec<Binding>) -> Result<Self, BindingMalformed> {
        if let Some((_, mistake)) = mistakes(&bindings).into_iter().next() {
            return Err(mistake);
        }
        let all = bindings.into_iter().enumerate();
        let all = all.map(|(index, binding)| Arc::new(Bound::new(binding, index)));
        Ok(Self { all: all.collect() })
    }

    /// Returns the environment variables that hold a session's phantoms in its sandbox.
    pub fn environment<'a>(
        &'a self,
        phantoms: &'a Phantoms,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.all.iter().flat_map(|bound| {
            let phantom = phantoms.of(&bound.binding.credential);
            let variables = bound.binding.variables.iter();
            phantom.into_iter().flat_map(move |phantom| {
                variables
                    .clone()
                    .map(move |variable| (variable.as_str(), phantom.reveal()))
            })
        })
    }

    /// Returns every binding, in the order of the configuration.
    pub fn all(&self) -> impl Iterator<Item = &Binding> {
        self.all.iter().map(|bound| &bound.binding)
    }

    /// Whether a credential is bound to any of these origins and guards it against foreign ones.
    #[must_use]
    pub fn guard(&self, origins: &OriginPattern) -> bool {
        let mut guarding = self.all().filter(|one| one.foreign != Foreign::Pass);
        guarding.any(|one| one.origins.iter().any(|bound| bound.overlaps(origins)))
    }

    /// The binding at a position in the configuration.
    pub fn at(&self, index: usize) -> Option<&Binding> {
        self.all.get(index).map(|bound| &bound.binding)
    }

    /// Whether the credential has a binding.
    #[must_use]
    pub fn has(&self, credential: &CredentialName) -> bool {
        self.index_of(credential).is_some()
    }

    /// The position of a credential in the configuration.
    pub fn index_of(&self, credential: &CredentialName) -> Option<usize> {
        self.all
            .iter()
            .position(|bound| bound.binding.credential == *credential)
    }

    /// Whether a request may still use a credential at a place, given in its text form.
    #[must_use]
    pub fn still_lends(
        &self,
        origin: &Origin,
        method: &Method,
        (path, fields): (&str, &HeaderMap),
        (credential, place): (&CredentialName, &str),
    ) -> bool {
        self.all.iter().any(|bound| {
            bound.binding.credential == *credential
                && bound.place_texts.iter().any(|text| text == place)
                && bound.is_for(origin)
                && bound.lends(method, path)
                && bound.lends_to_named(fields, origin)
        })
    }
}

impl Bound {
    fn new(binding: Binding, index: usize) -> Self {
        let taken = binding.takes.iter().filter_map(|taken| match &taken.part {
            AcceptedPart::Header(name) => Some(name.clone()),
            _ => None,
        });
        let mut fields: Vec<HeaderName> = binding
            .places
            .iter()
            .filter_map(Place::field)
            .chain(taken)
            .collect();
        fields.dedup();
        Self {
            place_texts: binding
                .places
                .iter()
                .map(|place| place.to_string().into())
                .collect(),
            binding,
            index,
            fields,
        }
    }

    /// Whether one of its origins has this host.
    pub(super) fn is_at(&self, host: &Host) -> bool {
        let mut origins = self.binding.origins.iter();
        origins.any(|origin| origin.hosts.matches(host))
    }

    /// Whether the origin is one of the binding's.
    pub(super) fn is_for(&self, origin: &Origin) -> bool {
        let mut origins = self.binding.origins.iter();
        origins.any(|pattern| pattern.matches(origin))
            && match &self.binding.role {
                Role::Place => true,
                Role::Kept => false,
                Role::Signs(signing) | Role::Part(signing) => signing.signer.holds(origin),
            }
    }

    /// Whether the credential may be used with this method and path.
    pub(super) fn lends(&self, method: &Method, path: &str) -> bool {
        let binding = &self.binding;
        // The path of a signed request is not resolved, so only the store knows where it leads.
        let below = || !has_dots(path) && binding.paths.iter().any(|above| is_below(path, above));
        (binding.methods.is_empty() || binding.methods.contains(method))
            && (binding.paths.is_empty() || below())
    }

    /// Whether the credential may be used with every path that a field names.
    pub(super) fn lends_to_named(&self, fields: &HeaderMap, origin: &Origin) -> bool {
        let is_below = |path: &str| self.binding.paths.iter().any(|above| is_below(path, above));
        self.binding.paths.is_empty()
            || named_paths(fields, origin.parts())
                .all(|named| named.is_some_and(|named| is_below(named.path())))
    }

    /// Whether the service accepts batch requests at this path.
    pub(super) fn batches(&self, path: &str) -> bool {
        self.binding.batches.iter().any(|route| route.holds(path))
    }

    /// Returns the phantom of its credential, if the token is that phantom.
    pub(super) fn presented(&self, phantoms: &Phantoms, token: &[u8]) -> Option<Phantom> {
        let phantom = phantoms.of(&self.binding.credential)?;
        (phantom.reveal().as_bytes() == token).then(|| phantom.clone())
    }

    /// Whether its origins accept only the credentials that are bound to them.
    pub(super) fn guards(&self) -> bool {
        self.binding.foreign != Foreign::Pass
    }

    /// Whether its credential, or a foreign one at its origins, may be in content.
    pub(super) fn takes_content(&self) -> bool {
        let in_form = |taken: &AcceptedCredential| matches!(taken.part, AcceptedPart::Form(_));
        let mut places = self.binding.places.iter();
        places.any(Place::is_in_content) || self.binding.takes.iter().any(in_form)
    }

    /// Whether it applies only to some methods or paths of its origins.
    pub(super) fn is_narrow(&self) -> bool {
        !self.binding.methods.is_empty() || !self.binding.paths.is_empty()
    }
}

fn has_dots(path: &str) -> bool {
    path.split('/').any(|segment| matches!(segment, "." | ".."))
}

#[cfg(test)]
mod tests;
