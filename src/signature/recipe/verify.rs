//! Verifies that the client signed with its phantoms.

use std::time::SystemTime;

use subtle::ConstantTimeEq;

use super::client_signature::ClientSignature;
use super::components;
use super::evaluate::{Evaluator, Inputs};
use super::fault::Fault;
use super::model::Recipe;
use super::name::Name;
use super::part::Parts;
use super::timestamp::Timestamp;
use super::value::ValueKind;
use gateway_message::RequestHead;

/// A claim whose signature is the phantom's: only this can be signed again.
pub struct VerifiedClaim {
    pub(super) claim: ClientSignature,
    times: ClaimedTimes,
}

/// The times that the client claims.
#[derive(Default)]
struct ClaimedTimes {
    signed: Option<Timestamp>,
    ends: Option<Timestamp>,
}

impl VerifiedClaim {
    /// When the client says it signed, for recipes with a time.
    pub fn time(&self) -> Option<SystemTime> {
        self.times.signed.and_then(Timestamp::system)
    }

    /// When the client wants its signature to expire, if it says so.
    pub fn ends(&self) -> Option<SystemTime> {
        self.times.ends.and_then(Timestamp::system)
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
        mut claim: ClientSignature,
        head: &RequestHead,
        content: Option<&[u8]>,
        phantoms: &Parts<'_>,
    ) -> Result<VerifiedClaim, Fault> {
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
        self.check_complete(&claim, unsigned)?;
        self.check_parts(&claim, phantoms)?;
        let times = self.check_values(&claim.values)?;
        if !unsigned {
            self.check_signature(&claim, head, content, phantoms, times.signed)?;
        }
        Ok(VerifiedClaim { claim, times })
    }

    /// Checks that the client used every place that it must use.
    fn check_complete(&self, claim: &ClientSignature, unsigned: bool) -> Result<(), Fault> {
        for (place, used) in self.places.iter().zip(&claim.used) {
            let names_a_part = place.names().any(|name| matches!(name, Name::Part(_)));
            if place.readable && !place.optional && used.is_none() && (!unsigned || names_a_part) {
                return Err(Fault::Incomplete(place.slots[0].to_string()));
            }
        }
        Ok(())
    }

    /// Checks that the parts that the client sent are its phantoms.
    fn check_parts(&self, claim: &ClientSignature, phantoms: &Parts<'_>) -> Result<(), Fault> {
        for (part, claimed) in self.parts.iter().zip(&claim.parts) {
            let Some(claimed) = claimed else { continue };
            let known = phantoms.get(&part.name);
            if !known.is_some_and(|known| known.ct_eq(claimed).into()) {
                return Err(Fault::Foreign(part.name.clone()));
            }
        }
        Ok(())
    }

    /// Checks the signature over the canonical target, or over the target as the client sent it:
    /// the canonical one is signed again and sent.
    fn check_signature(
        &self,
        claim: &ClientSignature,
        head: &RequestHead,
        content: Option<&[u8]>,
        phantoms: &Parts<'_>,
        time: Option<Timestamp>,
    ) -> Result<(), Fault> {
        let proven = self.proves(claim, head, content, phantoms, time);
        let Err(Fault::Mismatch | Fault::Forbidden(_)) = proven else {
            return proven;
        };
        let Some(target) = head.target.as_sent() else {
            return proven;
        };
        let sent = RequestHead {
            target,
            ..head.clone()
        };
        self.proves(claim, &sent, content, phantoms, time)
    }

    /// Whether the signature was made with the phantom, over this very request.
    fn proves(
        &self,
        claim: &ClientSignature,
        head: &RequestHead,
        content: Option<&[u8]>,
        phantoms: &Parts<'_>,
        time: Option<Timestamp>,
    ) -> Result<(), Fault> {
        let inputs = Inputs::read(phantoms, &claim.values, time);
        let evaluator = Evaluator::new(self, head, content, inputs);
        let (key, text) = (evaluator.write(&self.key)?, evaluator.write(&self.text)?);
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
                && *evaluator.write(made)? != *claimed
            {
                return Err(Fault::Forbidden(value.name.clone()));
            }
        }
        Ok(())
    }

    /// Checks the client's values for time and scope; returns its times.
    fn check_values(&self, values: &[Option<Vec<u8>>]) -> Result<ClaimedTimes, Fault> {
        let mut times = ClaimedTimes::default();
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
    let fits = |letter| is_of_a_word(letter) || letters.contains(letter);
    match among {
        [] => text.chars().all(fits),
        among => among.iter().any(|known| known == text),
    }
}

/// A time among the parameters of a signature, if it has one.
fn second(input: &[u8], name: &str) -> Result<Option<Timestamp>, Fault> {
    let malformed = || Fault::Malformed(name.to_owned());
    let text = components::number(input, name).ok_or_else(malformed)?;
    if text.is_empty() {
        return Ok(None);
    }
    let seconds: u32 = text.parse().map_err(|_| malformed())?;
    Ok(Some(Timestamp(i64::from(seconds) * 1000)))
}
