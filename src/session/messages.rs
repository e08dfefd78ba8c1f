//! Finds phantoms in their places in the WebSocket text messages of a client.

use std::sync::Arc;

use gateway_body::FormFault;
use gateway_body::fact::{AmbiguousJson, spot_in_message};
use gateway_message::{Place, RequestHead};

use super::bindings::Bound;
use super::content::judge;
use super::detected::{CredentialUse, DetectedCredentials, Location};
use super::origin_bindings::OriginBindings;
use super::phantom::{Phantom, Phantoms, Registry};
use super::refusal::CredentialRefusal;

/// The search of text messages, after a request to a service that accepts credentials in them.
pub struct MessageSearch {
    /// The bindings with such a place, the index of the place in each, and whether the credential
    /// may be lent to the request.
    places: Vec<(Arc<Bound>, usize, bool)>,
    /// Whether the service accepts only the credentials that are bound to it.
    guards: bool,
}

impl OriginBindings {
    /// Returns the search of the messages after this request; `None` if the service accepts no
    /// credential in them.
    pub fn in_messages(&self, head: &RequestHead) -> Option<MessageSearch> {
        let at = |bound: &Bound| {
            let mut places = bound.binding.places.iter();
            places.position(Place::is_in_messages)
        };
        let is_lent = |bound: &Bound| {
            bound.lends(&head.method, head.target.path())
                && bound.lends_to_named(&head.fields, &head.origin)
        };
        let all = self.bound.iter();
        let places: Vec<_> = all
            .filter_map(|bound| Some((bound.clone(), at(bound)?, is_lent(bound))))
            .collect();
        (!places.is_empty()).then(|| MessageSearch {
            places,
            guards: self.bound.iter().any(|bound| bound.guards()),
        })
    }
}

impl DetectedCredentials {
    /// Adds the session's credentials that may appear in messages after an upgrade, unless the
    /// request itself uses them.
    pub(super) fn expect_messages(&mut self, head: &RequestHead, phantoms: &Phantoms) {
        let search = self.here.in_messages(head);
        let all = search.into_iter().flat_map(|search| search.places);
        for (bound, place, _) in all.filter(|(_, _, is_lent)| *is_lent) {
            let credential = &bound.binding.credential;
            let mut lends = self.lends.iter();
            if let Some(phantom) = phantoms.of(credential).cloned()
                && !lends.any(|lend| lend.credential() == credential)
            {
                self.lends.push(CredentialUse {
                    bound,
                    place,
                    spot: Location::Message,
                    phantom,
                });
            }
        }
    }
}

impl MessageSearch {
    /// Whether every message must be read, because any may hold a foreign credential.
    pub fn guards(&self) -> bool {
        self.guards
    }

    /// Finds the credentials that a text message uses.
    ///
    /// A phantom outside of its place is inert: it is passed on unchanged.
    ///
    /// # Errors
    /// [`CredentialRefusal`] by cause: a foreign credential, or a message that readers may disagree
    /// about.
    pub fn find(
        &self,
        text: &str,
        (phantoms, registry): (&Phantoms, Option<&Registry>),
    ) -> Result<Vec<CredentialUse>, CredentialRefusal> {
        let why = FormFault::Disputed;
        let mut uses = Vec::new();
        for (bound, place, is_lent) in &self.places {
            let Place::WebSocket(pointer) = &bound.binding.places[*place] else {
                continue;
            };
            let spot = spot_in_message(text.as_bytes(), pointer);
            let spot = spot.map_err(|AmbiguousJson| CredentialRefusal::Unreadable { why });
            let Some(spot) = spot? else { continue };
            judge(spot.text.as_deref(), phantoms, registry, self.guards)?;
            let phantom = phantoms.of(&bound.binding.credential);
            let is_it = |phantom: &&_| spot.text.as_deref() == Some(Phantom::reveal(phantom));
            match phantom.filter(is_it) {
                Some(phantom) if spot.is_exact && *is_lent => uses.push(CredentialUse {
                    bound: bound.clone(),
                    place: *place,
                    spot: Location::Content(spot.at),
                    phantom: phantom.clone(),
                }),
                Some(_) if *is_lent => return Err(CredentialRefusal::Unreadable { why }),
                // A phantom whose credential is not lent is inert.
                _ => {}
            }
        }
        Ok(uses)
    }
}
