//! Signs requests by a recipe.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use gateway_body::{Content, HeldBody};
use gateway_message::{OriginPattern, RequestHead};
use gateway_names::hex;
use gateway_recipe::{self as recipe, ContentNeed, Nonce, NonceKind, Parts, Recipe, Role};
use gateway_session::{
    Finding, HeldParts, KnownPart, ParsedSignature, PartTexts, RequestPart, SignatureFault, Signer,
    SigningContext, SigningFailure, VerifiedSignature,
};
use http::HeaderName;
use http::header::AUTHORIZATION;

use super::MOST_SKEW;

/// Signs by a recipe.
#[derive(Debug)]
pub struct ByRecipe(Arc<Recipe>);

/// A request signed by a recipe, with a phantom.
struct RecipeClaim(Arc<Recipe>);

/// The same request after verification.
struct RecipeProof {
    recipe: Arc<Recipe>,
    verified: recipe::VerifiedClaim,
    /// The complete content, if the recipe covers it.
    content: Option<Bytes>,
}

impl ByRecipe {
    /// Returns a signer for a credential that signs by this recipe.
    pub fn new(recipe: Arc<Recipe>) -> Self {
        Self(recipe)
    }
}

impl Signer for ByRecipe {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn parts(&self) -> Vec<KnownPart> {
        let mut parts: Vec<_> = self.0.parts().iter().collect();
        parts.sort_by_key(|part| part.role != Role::Id);
        let known = |part: &recipe::Part| KnownPart {
            name: part.name.clone(),
            variable: part.variables.first().cloned(),
            optional: part.optional,
            private_key: part.key_of,
            member: None,
        };
        parts.into_iter().map(known).collect()
    }

    fn origins(&self, named: &[OriginPattern]) -> Vec<OriginPattern> {
        match named {
            [] => self.0.hosts().to_vec(),
            named => named.to_vec(),
        }
    }

    fn find(&self, head: &RequestHead, held: &HeldParts<'_>) -> Result<Finding, SignatureFault> {
        let claim = match self.0.claim(head) {
            Ok(Some(claim)) => claim,
            Ok(None) => return Ok(Finding::Nothing),
            Err(fault) => return Ok(Finding::Unsound(fault.into())),
        };
        let part = RequestPart::Field;
        // If the head has no key id, the signature itself proves which key made it.
        let is_ours = |text: &str| claim.key_id().is_none_or(|id| id == text.as_bytes());
        let phantom = held.first().filter(|phantom| is_ours(phantom.reveal()));
        Ok(match phantom.cloned() {
            Some(phantom) => Finding::Ours {
                claimed: Arc::new(RecipeClaim(self.0.clone())),
                phantom,
                part,
            },
            None => Finding::StrangeKey {
                id: claim.key_id().unwrap_or_default().to_vec(),
                part,
            },
        })
    }

    fn try_parts(
        &self,
        origin: &OriginPattern,
        parts: &PartTexts<'_>,
        now: SystemTime,
    ) -> Result<(), SignatureFault> {
        Ok(self.0.try_key(origin, &Parts::new(parts.iter()), now)?)
    }
}

impl RecipeClaim {
    /// Whether a part may be in the field or parameter of this name.
    fn has_slot(&self, kind: &str, name: &str) -> bool {
        let mut slots = self.0.slots();
        slots.any(|slot| slot.strip_prefix(kind) == Some(name))
    }
}

impl ParsedSignature for RecipeClaim {
    fn has_field(&self, name: &HeaderName) -> bool {
        let mut slots = self.0.slots();
        self.has_slot("header:", name.as_str())
            || (name == AUTHORIZATION && slots.any(|slot| slot.starts_with("authorization:")))
    }

    fn has_parameter(&self, name: &str) -> bool {
        self.has_slot("query:", name)
    }

    fn is_signature_field(&self, name: &HeaderName) -> bool {
        self.0.is_signature_field(name.as_str())
    }

    fn is_signature_parameter(&self, name: &str) -> bool {
        self.0.is_signature_parameter(name)
    }

    fn goes_with(&self, name: &HeaderName, value: &[u8]) -> bool {
        self.0.goes_with(name.as_str(), value)
    }

    fn needs_content(&self, _head: &RequestHead, _content: &Content) -> bool {
        self.0.needs() == ContentNeed::Whole
    }

    fn verify(
        self: Arc<Self>,
        head: &RequestHead,
        content: &Content,
        phantoms: &PartTexts<'_>,
        now: SystemTime,
    ) -> Result<Box<dyn VerifiedSignature>, SigningFailure> {
        let recipe = &self.0;
        let refused = |fault: recipe::Fault| SigningFailure::Signature(fault.into());
        let content = content.held().map(HeldBody::whole);
        let claim = recipe.claim(head).map_err(refused)?;
        let claim = claim.ok_or(SigningFailure::Incomplete)?;
        let parts = Parts::new(phantoms.iter());
        let verified = recipe.verify(claim, head, content.as_deref(), &parts);
        let verified = verified.map_err(refused)?;
        let off = |time: SystemTime| {
            let age = now.duration_since(time).unwrap_or_default();
            age.max(time.duration_since(now).unwrap_or_default())
        };
        if verified.time().is_some_and(|time| off(time) > MOST_SKEW) {
            return Err(SigningFailure::Skewed);
        }
        // The expiry is by the client's clock, which may be off by as much.
        if verified.ends().is_some_and(|end| end + MOST_SKEW < now) {
            return Err(SigningFailure::Expired);
        }
        Ok(Box::new(RecipeProof {
            recipe: recipe.clone(),
            verified,
            content,
        }))
    }
}

impl VerifiedSignature for RecipeProof {
    fn sign(
        self: Box<Self>,
        head: &mut RequestHead,
        content: &mut Content,
        with: &SigningContext<'_>,
    ) -> Result<Vec<Vec<u8>>, SigningFailure> {
        let nonce = nonce(&self.recipe, with.now, with.last)?;
        let parts = Parts::new(with.parts.iter());
        let signed = self
            .recipe
            .sign(self.verified, head, self.content, &parts, with.now, &nonce)
            .map_err(|fault| SigningFailure::Unsigned(fault.into()))?;
        if let Some(rewritten) = signed.content {
            content.held().ok_or(SigningFailure::Incomplete)?;
            content.replace(rewritten);
        }
        Ok(signed.signature.as_deref().map_or_else(Vec::new, written))
    }
}

/// Returns a signature in every encoding that recipes use.
fn written(signature: &[u8]) -> Vec<Vec<u8>> {
    let hex = hex(signature);
    vec![
        STANDARD.encode(signature).into_bytes(),
        URL_SAFE_NO_PAD.encode(signature).into_bytes(),
        hex.to_uppercase().into_bytes(),
        hex.into_bytes(),
    ]
}

/// Returns random bytes, and a number higher than any that this process used with the credential.
fn nonce(recipe: &Recipe, now: SystemTime, last: &AtomicU64) -> Result<Nonce, SigningFailure> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|_| SigningFailure::NoRandomness)?;
    let counter = match recipe.nonce() {
        NonceKind::Increasing { a_second } => {
            let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
            let steps = since.as_nanos().saturating_mul(u128::from(a_second)) / 1_000_000_000;
            let steps = u64::try_from(steps).unwrap_or(u64::MAX);
            let before = last.fetch_max(steps, Ordering::Relaxed);
            if before < steps {
                steps
            } else {
                last.fetch_add(1, Ordering::Relaxed) + 1
            }
        }
        NonceKind::None | NonceKind::Random => 0,
    };
    Ok(Nonce { random, counter })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_number_that_must_rise_rises_though_the_clock_stands() {
        let recipe = recipe::preset("kraken").unwrap();
        let last = AtomicU64::new(0);
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let numbers: Vec<u64> = [now, now, now - Duration::from_secs(60), now]
            .into_iter()
            .map(|now| nonce(&recipe, now, &last).ok().unwrap().counter)
            .collect();
        assert_eq!(numbers[0], 1_700_000_000_000);
        assert!(
            numbers.windows(2).all(|pair| pair[0] < pair[1]),
            "{numbers:?}"
        );
    }
}
