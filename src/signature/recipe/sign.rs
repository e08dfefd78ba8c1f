//! Signs: removes everything of the client's signature and writes ours.

use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, Method, Version};

use super::claim::{Claim, Used};
use super::components::Fresh;
use super::moment::{Moment, Nonce};
use super::scene::{Known, Scene};
use super::template::Name;
use super::verify::Verified;
use super::{Fault, Part, Parts, Placement, Recipe, Role, ValueKind};
use gateway_message::{
    Authority, EncodedSlash, HostPattern, Origin, OriginPattern, RequestHead, RequestTarget,
};

/// A signed request's content, if it was rewritten.
pub struct Signed {
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
        verified: Verified,
        head: &mut RequestHead,
        content: Option<Bytes>,
        secrets: &Parts<'_>,
        now: SystemTime,
        nonce: &Nonce,
    ) -> Result<Signed, Fault> {
        let claim = &verified.claim;
        debug_assert_eq!(
            claim.recipe, self.name,
            "a claim goes back to the recipe that made it"
        );
        if self.whole && content.is_none() {
            return Err(Fault::Content);
        }
        let now = Moment::of(now).ok_or(Fault::Time)?;
        let moment = now.earlier(self.back());
        let values = self.new_values(claim, head, secrets, now, nonce)?;
        let original = content.clone();
        let mut content = content;
        for slot in &self.strip {
            slot.remove(head, &mut content)?;
        }
        for slot in self.signature_slots() {
            slot.remove(head, &mut content)?;
        }
        let unsigned = self.unsigned && claim.signature.is_none();
        let known = |signature| Known {
            parts: secrets,
            values: &values,
            claimed: &claim.values,
            moment: Some(moment),
            signature,
            signing: true,
        };
        for (place, used) in self
            .places
            .iter()
            .zip(&claim.used)
            .filter(|(place, _)| !place.signature)
        {
            let Used { slot, template } = used.unwrap_or_default();
            let (chosen, template) = (&place.slots[slot], &place.templates[template]);
            let written =
                self.is_written(place, used.is_some(), secrets) && (!unsigned || used.is_some());
            for slot in place
                .slots
                .iter()
                .filter(|slot| !written || *slot != chosen)
            {
                slot.remove(head, &mut content)?;
            }
            if written {
                let value =
                    Scene::new(self, head, content.as_deref(), known(None)).write(template)?;
                chosen.write(head, &mut content, &value)?;
            }
        }
        let mut made = None;
        if !unsigned {
            let scene = Scene::new(self, head, content.as_deref(), known(None));
            let (key, text) = (scene.write(&self.key)?, scene.write(&self.text)?);
            let signature = self
                .algorithm
                .sign(&key, &text)
                .map_err(|_| self.key_fault())?;
            for (place, used) in self
                .places
                .iter()
                .zip(&claim.used)
                .filter(|(place, _)| place.signature)
            {
                let scene = Scene::new(self, head, content.as_deref(), known(Some(&signature)));
                let Used { slot, template } = used.unwrap_or_default();
                let value = scene.write(&place.templates[template])?;
                place.slots[slot].write(head, &mut content, &value)?;
            }
            made = Some(signature);
        }
        Ok(Signed {
            content: if content == original { None } else { content },
            signature: made,
        })
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
        let (HostPattern::Exact(host) | HostPattern::Below(host)) = &origin.hosts;
        let head = RequestHead {
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
        };
        let nothing = vec![None; self.values.len()];
        let known = Known {
            parts,
            values: &nothing,
            claimed: &nothing,
            moment: Moment::of(now),
            signature: None,
            signing: true,
        };
        match Scene::new(self, &head, None, known).write(&self.key) {
            Ok(key) => self
                .algorithm
                .sign(&key, b"")
                .map(drop)
                .map_err(|_| self.key_fault()),
            Err(fault @ (Fault::Part(_) | Fault::Key(_))) => Err(fault),
            // What is missing belongs to a real request, not to the parts.
            Err(_) => Ok(()),
        }
    }

    /// The values that do not depend on the request to be signed.
    fn new_values(
        &self,
        claim: &Claim,
        head: &RequestHead,
        secrets: &Parts<'_>,
        now: Moment,
        nonce: &Nonce,
    ) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        let key_id = self.parts.iter().find(|part| part.role == Role::Id);
        let key_id = key_id
            .and_then(|part| secrets.get(&part.name))
            .unwrap_or_default();
        let values = self
            .values
            .iter()
            .zip(&claim.values)
            .map(|(value, claimed)| {
                Ok(match &value.kind {
                    ValueKind::Time { form, back } => {
                        Some(form.write(now.earlier(*back)).into_bytes())
                    }
                    ValueKind::Nonce(form) => Some(form.write(nonce).into_bytes()),
                    ValueKind::Kept { .. } => claimed.clone(),
                    ValueKind::Expiry { form, longest } => {
                        let longest = now.later(*longest);
                        let wanted = match claimed {
                            Some(claimed) => {
                                let text = std::str::from_utf8(claimed).map_err(|_| Fault::Time)?;
                                form.read(text).ok_or(Fault::Time)?
                            }
                            None => longest,
                        };
                        Some(form.write(wanted.min(longest)).into_bytes())
                    }
                    ValueKind::Components(components) => {
                        let claimed = std::str::from_utf8(claimed.as_deref().unwrap_or_default());
                        let claimed = claimed.map_err(|_| Fault::Undecodable)?;
                        Some(
                            components
                                .renewed(claimed, head, &Fresh { key_id, now, nonce })?
                                .into_bytes(),
                        )
                    }
                    ValueKind::Fields { .. }
                    | ValueKind::Parameters { .. }
                    | ValueKind::Made(_) => None,
                })
            });
        values.collect()
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
