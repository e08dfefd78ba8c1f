//! Verifies that the client signed with its phantoms.

use std::time::SystemTime;

use subtle::ConstantTimeEq;

use super::claim::Claim;
use super::components;
use super::moment::Moment;
use super::scene::{Known, Scene};
use super::template::Name;
use super::{Fault, Parts, Recipe, ValueKind};
use gateway_message::RequestHead;

/// A claim whose signature is the phantom's: only this can be signed again.
pub struct Verified {
    pub(super) claim: Claim,
    times: Times,
}

/// What the client says about time.
#[derive(Default)]
struct Times {
    signed: Option<Moment>,
    ends: Option<Moment>,
}

impl Verified {
    /// When the client says it signed, for recipes with a time.
    #[must_use]
    pub fn time(&self) -> Option<SystemTime> {
        self.times.signed.and_then(Moment::system)
    }

    /// When the client wants its signature to expire, if it says so.
    #[must_use]
    pub fn ends(&self) -> Option<SystemTime> {
        self.times.ends.and_then(Moment::system)
    }
}

impl Recipe {
    /// Verifies that the client signed this request with its phantoms.
    ///
    /// `content` is all of it if [`Recipe::needs`] says so, and empty if there is none.
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
        let times = self.check_values(&claim.values)?;
        if unsigned {
            return Ok(Verified { claim, times });
        }
        let proven = self.proves(&claim, head, content, phantoms, times.signed);
        // The client may have signed its target as written; the canonical one is signed again and
        // sent.
        let sent = match &proven {
            Err(Fault::Mismatch | Fault::Forbidden(_)) => head.target.as_sent(),
            _ => None,
        };
        match sent {
            Some(target) => {
                let sent = RequestHead {
                    target,
                    ..head.clone()
                };
                self.proves(&claim, &sent, content, phantoms, times.signed)?;
            }
            None => proven?,
        }
        Ok(Verified { claim, times })
    }

    /// Whether the signature was made with the phantom, over this very request.
    fn proves(
        &self,
        claim: &Claim,
        head: &RequestHead,
        content: Option<&[u8]>,
        phantoms: &Parts<'_>,
        moment: Option<Moment>,
    ) -> Result<(), Fault> {
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
        if !verified {
            return Err(Fault::Mismatch);
        }
        // Values computed from the request that can be parsed from the signed text must match this
        // request.
        for (value, claimed) in self.values.iter().zip(&claim.values) {
            if let (ValueKind::Made(made), Some(_), Some(claimed)) =
                (&value.kind, &value.read, claimed)
                && *scene.write(made)? != *claimed
            {
                return Err(Fault::Forbidden(value.name.clone()));
            }
        }
        Ok(())
    }

    /// Checks the client's values for time and scope; returns its times.
    fn check_values(&self, values: &[Option<Vec<u8>>]) -> Result<Times, Fault> {
        let mut times = Times::default();
        for (value, claimed) in self.values.iter().zip(values) {
            let Some(claimed) = claimed else { continue };
            let text =
                std::str::from_utf8(claimed).map_err(|_| Fault::Malformed(value.name.clone()))?;
            match &value.kind {
                ValueKind::Time { form, .. } => {
                    let read = form.read(text);
                    times.signed = Some(read.ok_or_else(|| Fault::Malformed(value.name.clone()))?);
                }
                ValueKind::Expiry { form, .. } => {
                    let read = form.read(text);
                    times.ends = Some(read.ok_or_else(|| Fault::Malformed(value.name.clone()))?);
                }
                // RFC 9421 §2.3.
                ValueKind::Components(_) => {
                    times.signed = second(claimed, "created")?;
                    times.ends = second(claimed, "expires")?;
                }
                ValueKind::Kept { among, letters } if !may_stay(text, among, letters) => {
                    return Err(Fault::Forbidden(value.name.clone()));
                }
                _ => {}
            }
        }
        Ok(times)
    }
}

/// Whether a client's own text may appear in the signed text. A word contains no separator of the
/// signed text, so that the text cannot name another resource than the request does.
fn may_stay(text: &str, among: &[String], letters: &str) -> bool {
    let is_of_a_word = |letter: char| letter.is_ascii_alphanumeric() || "-._*".contains(letter);
    match among {
        [] => text
            .chars()
            .all(|letter| is_of_a_word(letter) || letters.contains(letter)),
        among => among.iter().any(|known| known == text),
    }
}

/// A time among the parameters of a signature, if it has one.
fn second(input: &[u8], name: &str) -> Result<Option<Moment>, Fault> {
    let malformed = || Fault::Malformed(name.to_owned());
    let text = components::number(input, name).ok_or_else(malformed)?;
    if text.is_empty() {
        return Ok(None);
    }
    let seconds: u32 = text.parse().map_err(|_| malformed())?;
    Ok(Some(Moment(i64::from(seconds) * 1000)))
}
