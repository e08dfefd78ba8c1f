//! Verification: whether the client signed with its phantoms.

use std::time::SystemTime;

use subtle::ConstantTimeEq;

use super::claim::Claim;
use super::moment::Moment;
use super::scene::{Known, Scene};
use super::template::Name;
use super::{Fault, Parts, Recipe, ValueKind};
use crate::message::RequestHead;

/// A claim whose signature is the phantom's: only this can be signed again.
pub struct Verified {
    pub(super) claim: Claim,
    moment: Option<Moment>,
}

impl Verified {
    /// When the client says that it signed, for recipes with a time.
    #[must_use]
    pub fn time(&self) -> Option<SystemTime> {
        self.moment.and_then(Moment::system)
    }
}

impl Recipe {
    /// Verifies that the client signed this request with its phantoms.
    ///
    /// `content` is all of it where [`Recipe::needs`] says so, empty where there is none.
    ///
    /// # Errors
    /// By cause, see [`Fault`].
    pub fn verify(
        &self,
        mut claim: Claim,
        head: &RequestHead,
        content: Option<&[u8]>,
        phantoms: &Parts<'_>,
    ) -> Result<Verified, Fault> {
        debug_assert_eq!(
            claim.recipe, self.name,
            "a claim goes back to the recipe that made it"
        );
        if self.whole && content.is_none() {
            return Err(Fault::Content);
        }
        if content.is_some() {
            self.gather(&mut claim, head, content)?;
        }
        let unsigned = self.unsigned && claim.signature.is_none();
        for (place, used) in self.places.iter().zip(&claim.used) {
            let names_a_part = place.names().any(|name| matches!(name, Name::Part(_)));
            if place.readable && !place.optional && used.is_none() && (!unsigned || names_a_part) {
                return Err(Fault::Incomplete(place.slots[0].to_string()));
            }
        }
        for (part, claimed) in self.parts.iter().zip(&claim.parts) {
            let Some(claimed) = claimed else { continue };
            let known = phantoms
                .get(&part.name)
                .ok_or_else(|| Fault::Foreign(part.name.clone()))?;
            if !bool::from(known.ct_eq(claimed)) {
                return Err(Fault::Foreign(part.name.clone()));
            }
        }
        let moment = self.check_values(&claim.values)?;
        if unsigned {
            return Ok(Verified { claim, moment });
        }
        let known = Known {
            parts: phantoms,
            values: &claim.values,
            claimed: &claim.values,
            moment,
            signature: None,
            signing: false,
        };
        let scene = Scene::new(self, head, content, known);
        let (key, text) = (scene.write(&self.key)?, scene.write(&self.text)?);
        let signature = claim.signature.as_deref().unwrap_or_default();
        let verified = self
            .algorithm
            .verify(&key, &text, signature)
            .map_err(|_| self.key_fault())?;
        if verified {
            Ok(Verified { claim, moment })
        } else {
            Err(Fault::Mismatch)
        }
    }

    /// Checks what the client says of time and scope; gives its time.
    fn check_values(&self, values: &[Option<Vec<u8>>]) -> Result<Option<Moment>, Fault> {
        let mut moment = None;
        for (value, claimed) in self.values.iter().zip(values) {
            let Some(claimed) = claimed else { continue };
            let text = std::str::from_utf8(claimed).map_err(|_| Fault::Malformed(value.name.clone()))?;
            match &value.kind {
                ValueKind::Time { form, .. } => {
                    moment = Some(
                        form.read(text)
                            .ok_or_else(|| Fault::Malformed(value.name.clone()))?,
                    );
                }
                ValueKind::Expiry { form, .. } => {
                    form.read(text)
                        .ok_or_else(|| Fault::Malformed(value.name.clone()))?;
                }
                ValueKind::Kept { among }
                    if !among.is_empty() && !among.iter().any(|known| known == text) =>
                {
                    return Err(Fault::Forbidden(value.name.clone()));
                }
                _ => {}
            }
        }
        Ok(moment)
    }
}
