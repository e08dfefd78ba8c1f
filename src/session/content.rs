//! Finds phantoms in their places in the content of a request, and foreign credentials.

use std::sync::Arc;

use gateway_body::fact::{AmbiguousJson, ValueSpan};
use gateway_body::{Document, FormFault, FormKind, Member, Questions};
use gateway_message::content_name::{part, parts};
use gateway_message::{AcceptedCredential, AcceptedPart, Place, RequestHead, folded_parameters};

use super::bindings::Bound;
use super::detected::{CredentialUse, DetectedCredentials, Location};
use super::origin_bindings::OriginBindings;
use super::phantom::{Phantoms, Registry};
use super::refusal::{CredentialRefusal, RequestPart};

/// The search of a request's content, for a service that accepts credentials there.
pub struct ContentSearch {
    here: Arc<OriginBindings>,
    /// The places whose credentials may be lent to the request.
    places: Vec<SearchedPlace>,
    /// Folded names of members in which the service accepts credentials of any kind.
    taken: Vec<String>,
    kind: FormKind,
}

/// A place to search.
struct SearchedPlace {
    bound: Arc<Bound>,
    /// The index of the place in the binding.
    index: usize,
    /// The folded member names that readers may take for the place. None if deeper in JSON.
    names: Vec<String>,
}

impl DetectedCredentials {
    /// Returns the search of the content; `None` if the service accepts no credential in it.
    ///
    /// # Errors
    /// [`CredentialRefusal::Unreadable`] if the content cannot be searched.
    pub fn in_content(
        &self,
        head: &RequestHead,
    ) -> Result<Option<ContentSearch>, CredentialRefusal> {
        if !self.here.takes_content() {
            return Ok(None);
        }
        let path = head.target.path();
        let is_lent = |bound: &Bound| {
            bound.lends(&head.method, path) && bound.lends_to_named(&head.fields, &head.origin)
        };
        let (mut places, mut taken) = (Vec::new(), Vec::new());
        for bound in &self.here.bound {
            let all = bound.binding.places.iter().enumerate();
            let mut all = all.filter(|(_, place)| place.is_in_content()).peekable();
            if all.peek().is_some() && is_lent(bound) {
                let searched = all.map(|(index, place)| SearchedPlace {
                    bound: bound.clone(),
                    index,
                    names: names_of(place),
                });
                places.extend(searched.filter(|searched| searched.is_at(path)));
            }
            let here = bound.binding.takes.iter().filter(|taken| taken.is_at(path));
            taken.extend(here.filter_map(|taken| match &taken.part {
                AcceptedPart::Form(name) => Some(name.clone()),
                _ => None,
            }));
        }
        if places.is_empty() && taken.is_empty() {
            return Ok(None);
        }
        let kind = FormKind::of_decoded(&head.fields).map_err(unreadable)?;
        Ok(kind.map(|kind| ContentSearch {
            here: self.here.clone(),
            places,
            taken,
            kind,
        }))
    }

    /// Adds the credential uses that were found in the content.
    ///
    /// # Errors
    /// [`CredentialRefusal::Batch`], or [`CredentialRefusal::Count`] for a credential that is in
    /// the head too.
    pub fn lend(&mut self, found: Vec<CredentialUse>) -> Result<(), CredentialRefusal> {
        for one in found {
            let credential = one.credential().clone();
            if self.batch && one.bound.is_narrow() {
                return Err(CredentialRefusal::Batch { credential });
            }
            if self
                .lends
                .iter()
                .any(|lent| *lent.credential() == credential)
            {
                return Err(CredentialRefusal::Count { credential });
            }
            self.lends.push(one);
        }
        Ok(())
    }
}

impl ContentSearch {
    /// Registers the places and members that will be looked up. `is_asked` is [`Self::is_asked`].
    pub fn ask<'q>(&self, questions: &mut Questions<'q>, is_asked: &'q dyn Fn(&str) -> bool) {
        let places = self.places.iter().map(SearchedPlace::place);
        places.for_each(|place| questions.place(place));
        questions.members(is_asked);
    }

    /// Finds the credentials that the content uses.
    ///
    /// A phantom outside of the places is inert: it is passed on unchanged.
    ///
    /// # Errors
    /// [`CredentialRefusal`] by cause: a foreign credential, a credential that appears twice, or
    /// content that readers may disagree about.
    pub fn find(
        &self,
        content: &Document<'_>,
        (phantoms, registry): (&Phantoms, Option<&Registry>),
    ) -> Result<Vec<CredentialUse>, CredentialRefusal> {
        let members = self.members(content)?;
        let places = self.places.iter().map(SearchedPlace::place);
        let spots: Result<Vec<_>, _> = places.map(|place| content.spot(place)).collect();
        let found = spots.iter().flatten().zip(&self.places);
        let deep = found.filter(|(_, searched)| searched.names.is_empty());
        let deep = deep.filter_map(|(spot, _)| Some(spot.as_ref()?.text.as_deref()));
        let texts = members.iter().map(|member| member.value.as_deref());
        let guards = self.guards();
        for text in texts.chain(deep) {
            judge(text, phantoms, registry, guards)?;
        }
        let spots = spots.map_err(|AmbiguousJson| unreadable(FormFault::Disputed))?;
        let mut uses = Vec::new();
        for (searched, spot) in self.places.iter().zip(spots) {
            uses.extend(self.lent(searched, spot, &members, phantoms)?);
        }
        Ok(uses)
    }

    /// Whether the service accepts only the credentials that are bound to it.
    fn guards(&self) -> bool {
        self.here.bound.iter().any(|bound| bound.guards())
    }

    /// Whether some reader may take a member of this name for one that may hold a credential.
    pub fn is_asked(&self, name: &str) -> bool {
        let names = folded_parameters(name);
        let is_place = |one: &SearchedPlace| one.names.iter().any(|name| names.contains(name));
        names.iter().any(|name| self.taken.contains(name))
            || self.places.iter().any(is_place)
            || self.places.iter().any(|one| one.is_nested_in_forms(name))
    }

    /// Returns the use of a place, if it holds the phantom of its credential.
    fn lent(
        &self,
        searched: &SearchedPlace,
        spot: Option<ValueSpan>,
        members: &[Member],
        phantoms: &Phantoms,
    ) -> Result<Option<CredentialUse>, CredentialRefusal> {
        let Some(phantom) = phantoms.of(&searched.bound.binding.credential) else {
            return Ok(None);
        };
        let is_ours = |text: &Option<String>| text.as_deref() == Some(phantom.reveal());
        let named = members.iter().filter(|member| {
            searched.fits(self.kind) && is_ours(&member.value) && searched.is_named(&member.name)
        });
        match (spot.filter(|spot| is_ours(&spot.text)), named.count()) {
            (None, 0) => Ok(None),
            (Some(spot), 0 | 1) if spot.is_exact => Ok(Some(CredentialUse {
                bound: searched.bound.clone(),
                place: searched.index,
                spot: Location::Content(spot.at),
                phantom: phantom.clone(),
            })),
            (_, 0 | 1) => Err(unreadable(FormFault::Disputed)),
            _ => Err(CredentialRefusal::Count {
                credential: phantom.credential().clone(),
            }),
        }
    }

    /// Returns the members that may hold credentials, as any origin might read them.
    fn members(&self, content: &Document<'_>) -> Result<Vec<Member>, CredentialRefusal> {
        match content.members() {
            // If readers may split the content differently, no place is found, and nothing is lent.
            Err(_) if content.is_unsplit() && !self.guards() => Ok(Vec::new()),
            members => members.map_err(unreadable),
        }
    }
}

/// Refuses another session's phantom. If the service `guards` its places, refuses every text that
/// is not a phantom of this session.
pub(super) fn judge(
    text: Option<&str>,
    phantoms: &Phantoms,
    registry: Option<&Registry>,
    guards: bool,
) -> Result<(), CredentialRefusal> {
    let part = RequestPart::Content;
    let is_ours = |text: &str| phantoms.all().iter().any(|ours| ours.reveal() == text);
    match text {
        Some(text) if text.is_empty() || is_ours(text) => Ok(()),
        other => match other.and_then(|text| registry?.owner(text.as_bytes())) {
            Some(owner) => Err(CredentialRefusal::ForeignSession { owner, part }),
            None if guards => Err(CredentialRefusal::Foreign { part }),
            None => Ok(()),
        },
    }
}

impl SearchedPlace {
    fn place(&self) -> &Place {
        &self.bound.binding.places[self.index]
    }

    /// Whether the place is on this path. If the binding lists paths for a member of this name, the
    /// path must be one of them.
    fn is_at(&self, path: &str) -> bool {
        let is_it = |taken: &&AcceptedCredential| match &taken.part {
            AcceptedPart::Form(name) => self.names.contains(name),
            _ => false,
        };
        let mut takes = self.bound.binding.takes.iter().filter(is_it).peekable();
        takes.peek().is_none() || takes.any(|taken| taken.is_at(path))
    }

    /// Whether some reader may take a member of this name for the place.
    fn is_named(&self, name: &str) -> bool {
        let names = folded_parameters(name);
        self.names.iter().any(|own| names.contains(own))
    }

    /// Whether some reader of forms may take this name, such as `auth[token]`, for a place that is
    /// deeper in JSON.
    fn is_nested_in_forms(&self, name: &str) -> bool {
        let Place::Json(pointer) = self.place() else {
            return false;
        };
        let tokens = pointer.tokens();
        let folded = tokens.iter().map(|token| part(token));
        tokens.len() > 1 && folded.eq(parts(name))
    }

    /// Whether the place is in content of this format.
    fn fits(&self, kind: FormKind) -> bool {
        match self.place() {
            Place::Form(_) => kind == FormKind::Pairs,
            Place::Multipart(_) => kind == FormKind::Parts,
            _ => kind == FormKind::Json,
        }
    }
}

fn names_of(place: &Place) -> Vec<String> {
    match place {
        Place::Form(name) | Place::Multipart(name) => folded_parameters(name.as_str()),
        Place::Json(pointer) => match pointer.tokens() {
            [name] => folded_parameters(name),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn unreadable(why: FormFault) -> CredentialRefusal {
    CredentialRefusal::Unreadable { why }
}
