//! The claims of a client's signature, read from the request before anything is verified.

use super::evaluate::{Evaluator, Inputs};
use super::fault::Fault;
use super::model::{Placement, Recipe};
use super::name::Name;
use super::part::{Parts, Role};
use super::template::{Piece, Template};
use gateway_message::RequestHead;

#[derive(Clone, Copy, Default)]
pub(super) struct UsedPlacement {
    pub(super) slot: usize,
    pub(super) template: usize,
}

/// The claims of a client's signature, before anything is verified.
pub struct ClientSignature {
    /// For each place, the slot and the template that the client used.
    pub(super) used: Vec<Option<UsedPlacement>>,
    pub(super) parts: Vec<Option<Vec<u8>>>,
    pub(super) values: Vec<Option<Vec<u8>>>,
    pub(super) signature: Option<Vec<u8>>,
    pub(super) recipe: String,
    pub(super) ids: Vec<usize>,
    pub(super) names: Vec<String>,
}

impl ClientSignature {
    /// The key's id, which identifies the credential; `None` if this service's requests have none
    /// (webhooks) or if it is in the content.
    pub fn key_id(&self) -> Option<&[u8]> {
        self.ids
            .iter()
            .find_map(|index| self.parts[*index].as_deref())
    }

    /// The client's version of a kept value (a region, a service), so that it can be compared with
    /// a pin before anything is signed.
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let index = self.names.iter().position(|known| known == name)?;
        self.values[index].as_deref()
    }

    /// Keeps the texts that were read from a place; `None` if another place has a different one.
    fn take(&mut self, read: ReadTexts) -> Option<()> {
        for (name, value) in read {
            let standing = match name {
                Name::Part(index) => &mut self.parts[index],
                Name::Value(index) => &mut self.values[index],
                _ => &mut self.signature,
            };
            if standing.as_ref().is_some_and(|standing| *standing != value) {
                return None;
            }
            *standing = Some(value);
        }
        Some(())
    }
}

impl Recipe {
    /// Finds the claims of a client that signed by this recipe; `None` if the head has none.
    ///
    /// # Errors
    /// [`Fault::Ambiguous`] and [`Fault::Malformed`]. [`Recipe::verify`], which sees the content,
    /// reports missing places.
    pub fn claim(&self, head: &RequestHead) -> Result<Option<ClientSignature>, Fault> {
        let mut claim = ClientSignature {
            used: vec![None; self.places.len()],
            parts: vec![None; self.parts.len()],
            values: vec![None; self.values.len()],
            signature: None,
            recipe: self.name.clone(),
            ids: (0..self.parts.len())
                .filter(|index| self.parts[*index].role == Role::Id)
                .collect(),
            names: self.values.iter().map(|value| value.name.clone()).collect(),
        };
        self.gather(&mut claim, head, None)?;
        self.read_inside(&mut claim, head)?;
        let found = claim.signature.is_some() || claim.key_id().is_some();
        Ok(found.then_some(claim))
    }

    /// Reads the places that were not read yet: those in the head without `content`, those in the
    /// content with it.
    pub(super) fn gather(
        &self,
        claim: &mut ClientSignature,
        head: &RequestHead,
        content: Option<&[u8]>,
    ) -> Result<(), Fault> {
        for (at, place) in self.places.iter().enumerate() {
            for (alternative, slot) in place.slots.iter().enumerate() {
                if slot.is_in_content() != content.is_some() {
                    continue;
                }
                let Some(text) = slot.read(head, content)? else {
                    continue;
                };
                if claim.used[at].is_some() {
                    return Err(Fault::Ambiguous(slot.to_string()));
                }
                let template = match read_place(place, &text) {
                    Some((template, read)) => {
                        claim.take(read).ok_or_else(|| slot.malformed())?;
                        template
                    }
                    // Another scheme in `Authorization` belongs to another credential, and is not a
                    // broken one of ours.
                    None if content.is_none() && !begins_alike(place, &text) => continue,
                    None => return Err(slot.malformed()),
                };
                claim.used[at] = Some(UsedPlacement {
                    slot: alternative,
                    template,
                });
            }
        }
        Ok(())
    }

    /// Reads the parts and values inside others.
    fn read_inside(&self, claim: &mut ClientSignature, head: &RequestHead) -> Result<(), Fault> {
        if claim.signature.is_none() {
            return Ok(());
        }
        let none = Parts::default();
        let values = claim.values.clone();
        let evaluator = Evaluator::new(self, head, None, Inputs::read(&none, &values, None));
        let read = |read: &Option<Template>| match read {
            Some(read) => evaluator
                .write(read)
                .map(|text| Some(text.to_vec()).filter(|text| !text.is_empty())),
            None => Ok(None),
        };
        for (standing, part) in claim.parts.iter_mut().zip(&self.parts) {
            if let Some(text) = read(&part.read)? {
                *standing = Some(text);
            }
        }
        for (standing, value) in claim.values.iter_mut().zip(&self.values) {
            if let Some(text) = read(&value.read)? {
                *standing = Some(text);
            }
        }
        Ok(())
    }
}

/// The texts that a template reads from a place, by name.
type ReadTexts = Vec<(Name, Vec<u8>)>;

/// The template that reads a place's text, and the texts read; none if the place is only written.
fn read_place(place: &Placement, text: &[u8]) -> Option<(usize, ReadTexts)> {
    if !place.readable {
        return Some((0, Vec::new()));
    }
    let mut templates = place.templates.iter().enumerate();
    templates.find_map(|(at, template)| Some((at, template.read(text)?)))
}

/// Whether a text starts like one of a place's templates, up to the first space.
fn begins_alike(place: &Placement, text: &[u8]) -> bool {
    let first = |text: &[u8]| {
        text.split(|byte| *byte == b' ')
            .next()
            .map(<[u8]>::to_ascii_lowercase)
    };
    place
        .templates
        .iter()
        .any(|template| match template.0.first() {
            Some(Piece::Text(literal)) if literal.contains(' ') => {
                first(literal.as_bytes()) == first(text)
            }
            _ => true,
        })
}
