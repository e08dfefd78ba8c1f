//! Finds the phantoms of a request, each in its place, and refuses credentials in wrong places.

mod cookies;
mod fields;
mod path;
mod query;
mod signature;

use std::sync::Arc;

use gateway_message::{AcceptedCredential, RequestHead, RequestTarget, Scheme, is_batch};
use gateway_names::CredentialName;
use http::HeaderName;
use smallvec::SmallVec;

use super::binding::{Foreign, When};
use super::bindings::{Bindings, Bound};
use super::detected::{CredentialUse, DetectedCredentials, Location};
use super::origin_bindings::OriginBindings;
use super::path_phantom::find_in_path;
use super::phantom::{Form, Phantom, PhantomMatch, Phantoms, Registry};
use super::refusal::{CredentialRefusal, RequestPart};
use super::signer::ParsedSignature;

impl Bindings {
    /// Finds the credentials of a request, in one pass over host, target and fields. `here` are the
    /// bindings of its origin.
    ///
    /// A phantom is accepted if it is the exact value of one of its credential's places, and the
    /// credential is bound to this origin, method and path. The request is refused for a phantom
    /// anywhere else, in any form, or for a foreign credential at a managed origin. Content is not
    /// inspected here, but by a [`ContentSearch`](super::ContentSearch). `Cookie` fields must
    /// already be joined.
    ///
    /// # Errors
    /// [`CredentialRefusal`] by cause: the first one found.
    pub fn detect(
        &self,
        head: &RequestHead,
        here: Arc<OriginBindings>,
        phantoms: &Phantoms,
        registry: &Registry,
    ) -> Result<DetectedCredentials, CredentialRefusal> {
        let bound = &*here.bound;
        let lent = find_in_path(head, bound, phantoms);
        let masked = lent.as_ref().map(|lent| lent.target.clone());
        let target = masked.as_ref().unwrap_or(&head.target);
        let mut search = Search {
            bindings: self,
            head,
            target,
            phantoms,
            registry,
            bound,
            signed: None,
            found: DetectedCredentials {
                batch: is_batch(&head.origin.authority.host, target)
                    || bound.iter().any(|bound| bound.batches(target.path())),
                here: here.clone(),
                lends: SmallVec::new(),
                target: masked.clone(),
                strip: SmallVec::new(),
                cookies: None,
            },
        };
        search.host()?;
        search.signature()?;
        search.path(lent)?;
        for (name, value) in &head.fields {
            let found = search.field(name, value);
            found.map_err(|refused| refused.in_field(name))?;
        }
        search.query()?;
        search.always()?;
        search.unsigned()?;
        Ok(search.found)
    }
}

/// One request being searched.
struct Search<'a> {
    bindings: &'a Bindings,
    head: &'a RequestHead,
    /// The target, with `{}` in place of a phantom that is lent in the path.
    target: &'a RequestTarget,
    phantoms: &'a Phantoms,
    registry: &'a Registry,
    /// The bindings that apply to the origin. The origin is managed if there is one.
    bound: &'a [Arc<Bound>],
    /// The signature that was found. Every part of it was judged with it.
    signed: Option<Arc<dyn ParsedSignature>>,
    found: DetectedCredentials,
}

impl<'a> Search<'a> {
    /// Whether a signature was found for which `what` holds.
    fn signature_has(&self, what: impl Fn(&dyn ParsedSignature) -> bool) -> bool {
        self.signed.as_deref().is_some_and(what)
    }

    fn host(&self) -> Result<(), CredentialRefusal> {
        self.folded(self.head.origin.authority.host.as_str(), RequestPart::Host)
    }

    /// Refuses a phantom in text that loses its case in transit, such as host and field names. The
    /// search ignores case (H10).
    fn folded(&self, text: &str, part: RequestPart) -> Result<(), CredentialRefusal> {
        if text.len() < self.phantoms.shortest() {
            return Ok(());
        }
        match self.phantoms.find_folded(text.as_bytes()) {
            Some(sighting) => Err(self.misplaced(&sighting, part)),
            None => self.clean(text.as_bytes(), part),
        }
    }

    fn takes(&self) -> impl Iterator<Item = &'a AcceptedCredential> {
        let path = self.target.path();
        self.bound
            .iter()
            .flat_map(|bound| &bound.binding.takes)
            .filter(move |taken| taken.is_at(path))
    }

    /// Adds the credentials that are always injected, if the session has them.
    fn always(&mut self) -> Result<(), CredentialRefusal> {
        for bound in self.bound {
            let due = bound.binding.when == When::Always && self.is_lent(bound);
            let name = &bound.binding.credential;
            if due
                && let Some(phantom) = self.phantoms.of(name)
                && !self
                    .found
                    .lends
                    .iter()
                    .any(|lend| lend.credential() == name)
            {
                let phantom = phantom.clone();
                self.judged(bound)?;
                self.found.lends.push(CredentialUse {
                    bound: Arc::clone(bound),
                    place: 0,
                    spot: Location::Absent,
                    phantom,
                });
            }
        }
        Ok(())
    }

    /// Refuses a credential that is limited to some requests if the request is a batch (F14).
    fn judged(&self, bound: &Bound) -> Result<(), CredentialRefusal> {
        if self.found.batch && bound.is_narrow() {
            return Err(CredentialRefusal::Batch {
                credential: bound.binding.credential.clone(),
            });
        }
        Ok(())
    }

    fn lend(
        &mut self,
        bound: &Arc<Bound>,
        place: usize,
        spot: Location,
        phantom: Phantom,
        part: RequestPart,
    ) -> Result<(), CredentialRefusal> {
        let credential = phantom.credential();
        if !self.is_lent(bound) {
            return Err(CredentialRefusal::OutOfScope {
                credential: credential.clone(),
                part,
            });
        }
        self.judged(bound)?;
        if self
            .found
            .lends
            .iter()
            .any(|lend| lend.credential() == credential)
        {
            return Err(CredentialRefusal::Count {
                credential: credential.clone(),
            });
        }
        self.found.lends.push(CredentialUse {
            bound: Arc::clone(bound),
            place,
            spot,
            phantom,
        });
        Ok(())
    }

    /// Whether the credential may be used with the method and the paths of the request.
    fn is_lent(&self, bound: &Bound) -> bool {
        bound.lends(&self.head.method, self.target.path())
            && bound.lends_to_named(&self.head.fields, &self.head.origin)
    }

    fn is_phantom(&self, bound: &Bound, token: &[u8]) -> Option<Phantom> {
        bound.presented(self.phantoms, token)
    }

    /// Refuses text that contains any phantom, in any form, or a gateway token.
    fn clean(&self, text: &[u8], part: RequestPart) -> Result<(), CredentialRefusal> {
        if has_token(text) {
            return Err(CredentialRefusal::Token { part });
        }
        if text.len() < self.phantoms.shortest() {
            return Ok(());
        }
        let mut sightings = self.phantoms.find(text);
        let Some(first) = sightings.next() else {
            return match self.phantoms.find_unescaped(text) {
                Some(sighting) => Err(self.misplaced(&sighting, part)),
                None => Ok(()),
            };
        };
        let again = sightings.any(|next| next.index == first.index && next.form == Form::Plain);
        let credential = self.phantoms.at(&first).credential();
        if again && first.form == Form::Plain && self.is_bound(credential) {
            return Err(CredentialRefusal::Count {
                credential: credential.clone(),
            });
        }
        Err(self.misplaced(&first, part))
    }

    /// Returns the refusal for a phantom in a wrong place.
    fn misplaced(&self, sighting: &PhantomMatch, part: RequestPart) -> CredentialRefusal {
        let credential = self.phantoms.at(sighting).credential().clone();
        if self.phantoms.is_retired(sighting) || self.bindings.index_of(&credential).is_none() {
            return CredentialRefusal::Removed { credential, part };
        }
        let origin = &self.head.origin;
        let cleartext = origin.scheme == Scheme::Http
            && self.bindings.all.iter().any(|bound| {
                bound.binding.credential == credential && bound.is_at(&origin.authority.host)
            });
        match sighting.form {
            Form::Base64 | Form::Hex | Form::Escaped => {
                CredentialRefusal::Disguised { credential, part }
            }
            Form::Plain | Form::Folded if self.is_bound(&credential) => {
                CredentialRefusal::Position { credential, part }
            }
            Form::Plain | Form::Folded if cleartext => CredentialRefusal::Cleartext { credential },
            Form::Plain | Form::Folded => CredentialRefusal::OutOfScope { credential, part },
        }
    }

    fn is_bound(&self, credential: &CredentialName) -> bool {
        self.bound
            .iter()
            .any(|bound| bound.binding.credential == *credential)
    }

    /// Handles a credential that does not belong to the session (R10, H13).
    ///
    /// Another session's phantom is refused everywhere. Any other foreign credential is refused
    /// only at managed origins, unless every binding there strips it.
    fn foreign(
        &mut self,
        token: &[u8],
        part: RequestPart,
        field: Option<&HeaderName>,
    ) -> Result<(), CredentialRefusal> {
        self.other_session(token, part.clone())?;
        if !self.is_managed() {
            return Ok(());
        }
        let mut guarding = self.bound.iter().filter(|bound| bound.guards());
        let stripped = guarding.all(|bound| bound.binding.foreign == Foreign::Strip);
        match field.filter(|_| stripped) {
            Some(name) => {
                self.found.strip.push(name.clone());
                Ok(())
            }
            None => Err(CredentialRefusal::Foreign { part }),
        }
    }

    /// Whether the origin accepts only the credentials that are bound to it.
    fn is_managed(&self) -> bool {
        self.bound.iter().any(|bound| bound.guards())
    }

    fn other_session(&self, token: &[u8], part: RequestPart) -> Result<(), CredentialRefusal> {
        match self.registry.owner(token) {
            Some(owner) => Err(CredentialRefusal::ForeignSession { owner, part }),
            None => Ok(()),
        }
    }
}

/// Whether a text contains a gateway token: its prefix, and more letters than a word may have.
fn has_token(text: &[u8]) -> bool {
    let is_of_token = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.len() > SHORTEST_TOKEN
        && memchr::memmem::find_iter(text, TOKEN).any(|at| {
            let rest = &text[at + TOKEN.len()..];
            rest.iter().take_while(is_of_token).count() >= SHORTEST_TOKEN
        })
}

const TOKEN: &[u8] = b"gwt1_";
/// The MAC of a token alone is longer.
const SHORTEST_TOKEN: usize = 40;

#[cfg(test)]
mod tests;
