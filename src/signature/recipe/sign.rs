//! Signs: removes everything of the client's signature and writes ours.

use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, Method, Version};

use super::client_signature::{ClientSignature, UsedPlacement};
use super::components::FreshValues;
use super::evaluate::{Evaluator, Inputs};
use super::fault::Fault;
use super::model::{Placement, Recipe};
use super::name::Name;
use super::nonce::Nonce;
use super::part::{Part, Parts, Role};
use super::timestamp::{TimeFormat, Timestamp};
use super::value::ValueKind;
use super::verify::VerifiedClaim;
use gateway_message::{
    Authority, EncodedSlash, HostPattern, Origin, OriginPattern, RequestHead, RequestTarget,
};

/// A signed request's content, if it was rewritten.
pub struct SignedContent {
    /// `None`: the content is sent as it arrived.
    pub content: Option<Bytes>,
    /// The signature, as bytes, if the request is signed.
    pub signature: Option<Vec<u8>>,
}

impl Recipe {
    /// Signs a verified request with the secrets, at this time, with this nonce, and removes
    /// everything of the client's signature.
    ///
    /// This must be the last change to the head and the content, because any part of them may be
    /// signed.
    ///
    /// # Errors
    /// By cause, see [`Fault`]. The head is then unusable and must not be sent.
    pub fn sign(
        &self,
        verified: VerifiedClaim,
        head: &mut RequestHead,
        content: Option<Bytes>,
        secrets: &Parts<'_>,
        now: SystemTime,
        nonce: &Nonce,
    ) -> Result<SignedContent, Fault> {
        let claim = &verified.claim;
        debug_assert_eq!(
            claim.recipe, self.name,
            "a claim goes back to the recipe that made it"
        );
        if self.whole && content.is_none() {
            return Err(Fault::Content);
        }
        let now = Timestamp::of(now).ok_or(Fault::Time)?;
        let values = self.new_values(claim, head, secrets, now, nonce)?;
        let inputs = Inputs {
            claimed: &claim.values,
            signing: true,
            ..Inputs::read(secrets, &values, Some(now.earlier(self.back())))
        };
        let mut rewritten = content.clone();
        for slot in self.strip.iter().chain(self.signature_slots()) {
            slot.remove(head, &mut rewritten)?;
        }
        self.write_places(claim, head, &mut rewritten, inputs)?;
        let signature = if self.unsigned && claim.signature.is_none() {
            None
        } else {
            Some(self.write_signature(claim, head, &mut rewritten, inputs)?)
        };
        Ok(SignedContent {
            content: rewritten.filter(|rewritten| content.as_ref() != Some(rewritten)),
            signature,
        })
    }

    /// Writes the places for parts and values where the client had them, or where the recipe puts
    /// them.
    fn write_places(
        &self,
        claim: &ClientSignature,
        head: &mut RequestHead,
        content: &mut Option<Bytes>,
        inputs: Inputs<'_>,
    ) -> Result<(), Fault> {
        let unsigned = self.unsigned && claim.signature.is_none();
        let places = self.places.iter().zip(&claim.used);
        for (place, used) in places.filter(|(place, _)| !place.signature) {
            let UsedPlacement { slot, template } = used.unwrap_or_default();
            let (chosen, template) = (&place.slots[slot], &place.templates[template]);
            let is_written = self.is_written(place, used.is_some(), inputs.parts)
                && (!unsigned || used.is_some());
            let others = place.slots.iter();
            for slot in others.filter(|slot| !is_written || *slot != chosen) {
                slot.remove(head, content)?;
            }
            if is_written {
                let value =
                    Evaluator::new(self, head, content.as_deref(), inputs).write(template)?;
                chosen.write(head, content, &value)?;
            }
        }
        Ok(())
    }

    /// Signs, and writes the signature to where the client had it.
    fn write_signature(
        &self,
        claim: &ClientSignature,
        head: &mut RequestHead,
        content: &mut Option<Bytes>,
        inputs: Inputs<'_>,
    ) -> Result<Vec<u8>, Fault> {
        let evaluator = Evaluator::new(self, head, content.as_deref(), inputs);
        let (key, text) = (evaluator.write(&self.key)?, evaluator.write(&self.text)?);
        let signature = self.algorithm.sign(&key, &text);
        let signature = signature.map_err(|_| self.key_fault())?;
        let inputs = Inputs {
            signature: Some(&signature),
            ..inputs
        };
        let places = self.places.iter().zip(&claim.used);
        for (place, used) in places.filter(|(place, _)| place.signature) {
            let UsedPlacement { slot, template } = used.unwrap_or_default();
            let evaluator = Evaluator::new(self, head, content.as_deref(), inputs);
            let value = evaluator.write(&place.templates[template])?;
            place.slots[slot].write(head, content, &value)?;
        }
        Ok(signature)
    }

    /// Checks that a key can be made from parts, as for a request with nothing special in it.
    ///
    /// # Errors
    /// [`Fault::Part`] and [`Fault::Key`].
    pub fn try_key(
        &self,
        origin: &OriginPattern,
        parts: &Parts<'_>,
        now: SystemTime,
    ) -> Result<(), Fault> {
        let missing = |part: &&Part| !part.optional && parts.get(&part.name).is_none();
        if let Some(part) = self.parts.iter().find(missing) {
            return Err(Fault::Part(part.name.clone()));
        }
        let head = bare_head(origin)?;
        let nothing = vec![None; self.values.len()];
        let inputs = Inputs {
            signing: true,
            ..Inputs::read(parts, &nothing, Timestamp::of(now))
        };
        match Evaluator::new(self, &head, None, inputs).write(&self.key) {
            Ok(key) => self
                .algorithm
                .sign(&key, b"")
                .map(drop)
                .map_err(|_| self.key_fault()),
            Err(fault @ (Fault::Part(_) | Fault::Key(_))) => Err(fault),
            // Any other fault comes from the bare request, not from the parts.
            Err(_) => Ok(()),
        }
    }

    /// The values that do not depend on the request to be signed.
    fn new_values(
        &self,
        claim: &ClientSignature,
        head: &RequestHead,
        secrets: &Parts<'_>,
        now: Timestamp,
        nonce: &Nonce,
    ) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        let key_id = self.parts.iter().find(|part| part.role == Role::Id);
        let key_id = key_id.and_then(|part| secrets.get(&part.name));
        let fresh = FreshValues {
            key_id: key_id.unwrap_or_default(),
            now,
            nonce,
        };
        let values = self.values.iter().zip(&claim.values);
        values
            .map(|(value, claimed)| new_value(&value.kind, claimed.as_deref(), head, &fresh))
            .collect()
    }

    fn back(&self) -> u32 {
        let back = self.values.iter().find_map(|value| match value.kind {
            ValueKind::Time { back, .. } => Some(back),
            _ => None,
        });
        back.unwrap_or_default()
    }

    /// Whether a place is written: always, unless it is optional. An optional place with a part is
    /// written if the part exists, any other if the client had it.
    fn is_written(&self, place: &Placement, used: bool, secrets: &Parts<'_>) -> bool {
        if !place.optional {
            return true;
        }
        let mut parts = place.names().filter_map(|name| match name {
            Name::Part(index) => Some(&self.parts[index]),
            _ => None,
        });
        match parts.next() {
            Some(part) => secrets.get(&part.name).is_some(),
            None => used,
        }
    }
}

/// A value that does not depend on the request to be signed; `None` if it does.
fn new_value(
    kind: &ValueKind,
    claimed: Option<&[u8]>,
    head: &RequestHead,
    fresh: &FreshValues<'_>,
) -> Result<Option<Vec<u8>>, Fault> {
    let text = match kind {
        ValueKind::Kept { .. } => return Ok(claimed.map(<[u8]>::to_vec)),
        ValueKind::Fields { .. } | ValueKind::Parameters { .. } | ValueKind::Made(_) => {
            return Ok(None);
        }
        ValueKind::Time { form, back } => form.write(fresh.now.earlier(*back)),
        ValueKind::Nonce(form) => form.write(fresh.nonce),
        ValueKind::Expiry { form, longest } => {
            form.write(expiry(form, claimed, fresh.now.later(*longest))?)
        }
        ValueKind::Components(components) => {
            let claimed = std::str::from_utf8(claimed.unwrap_or_default());
            components.renewed(claimed.map_err(|_| Fault::Undecodable)?, head, fresh)?
        }
    };
    Ok(Some(text.into_bytes()))
}

/// The expiry that the client wants, if it is not too late; otherwise the latest.
fn expiry(
    form: &TimeFormat,
    claimed: Option<&[u8]>,
    latest: Timestamp,
) -> Result<Timestamp, Fault> {
    let Some(claimed) = claimed else {
        return Ok(latest);
    };
    let text = std::str::from_utf8(claimed).map_err(|_| Fault::Time)?;
    Ok(form.read(text).ok_or(Fault::Time)?.min(latest))
}

/// The head of a request with nothing special in it.
fn bare_head(origin: &OriginPattern) -> Result<RequestHead, Fault> {
    let (HostPattern::Exact(host) | HostPattern::Below(host)) = &origin.hosts;
    Ok(RequestHead {
        method: Method::GET,
        origin: Origin {
            scheme: origin.scheme,
            authority: Authority {
                host: host.clone(),
                port: origin.port,
            },
        },
        target: RequestTarget::parse(b"/", EncodedSlash::Keep).map_err(|_| Fault::Target)?,
        fields: HeaderMap::new(),
        version: Version::HTTP_11,
    })
}
