//! Signs a verified request again, with the real parts, and has its content follow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::HeaderValue;
use http::header::CONTENT_LENGTH;

use super::attach::Error;
use super::recodes::{Checked, Chunks, LONGEST_CHUNK, Messages};
use super::store::CachedSecret;
use super::verify::{Proof, ProvenRecipe, ProvenSigV4};
use crate::body::{Content, HoldBudget, Share};
use crate::message::RequestHead;
use crate::names::CredentialName;
use crate::session::{Lend, SIGV4_PARTS, Signer, Signing};
use crate::signature::Fault;
use crate::signature::recipe::{Nonce, NonceKind, Parts, Recipe};
use crate::signature::sigv4::{self, Payload, SigningParams};

/// What was fetched, by the binding that keeps it.
pub(super) type Fetched = Vec<(CredentialName, CachedSecret)>;

/// Signs a request, with what was fetched for it. `last` is the greatest number that was used once
/// with this credential, `budget` what all held content may take. Gives the signature as it is
/// written, in each way in which it could be.
///
/// # Errors
/// [`Error`] by cause; the request must then be dropped, for it may be half changed.
pub(super) fn sign(
    head: &mut RequestHead,
    content: &mut Content,
    proof: Proof,
    lend: &Lend,
    fetched: &Fetched,
    (last, budget): (&AtomicU64, &Arc<HoldBudget>),
) -> Result<Vec<Vec<u8>>, Error> {
    let signing = lend.signing().ok_or(Error::Unknown)?;
    match proof {
        Proof::SigV4(proven) => {
            sign_sigv4(head, content, *proven, (lend, signing), fetched, budget)
        }
        Proof::Recipe(proven) => {
            sign_by_recipe(head, content, *proven, (lend, signing), fetched, last)
        }
    }
}

/// The fetched part of a name.
pub(super) fn leased<'l>(
    fetched: &'l Fetched,
    name: &CredentialName,
) -> Result<&'l CachedSecret, Error> {
    fetched
        .iter()
        .find(|(known, _)| known == name)
        .map(|(_, lease)| lease)
        .ok_or(Error::Unknown)
}

fn sign_sigv4(
    head: &mut RequestHead,
    content: &mut Content,
    proven: ProvenSigV4,
    (lend, signing): (&Lend, &Signing),
    fetched: &Fetched,
    budget: &Arc<HoldBudget>,
) -> Result<Vec<Vec<u8>>, Error> {
    let Signer::SigV4(signer) = &signing.signer else {
        return Err(Error::Unknown);
    };
    let part = |name: &str| {
        let part = signing.part(name)?;
        Some(leased(fetched, part).ok()?.secret.expose())
    };
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| unsigned(sigv4::Fault::Key));
    let [_, secret, token] = SIGV4_PARTS;
    let ProvenSigV4 {
        request,
        verified,
        action,
        content: hash,
        kept,
    } = proven;
    let (access_key, secret, token) = match &kept {
        Some([id, secret, token]) => (id.expose(), Some(secret.expose()), Some(token.expose())),
        None => {
            let id = leased(fetched, lend.credential())?.secret.expose();
            (id, part(secret), part(token))
        }
    };
    let claim = &request.claim;
    let access_key = text(access_key)?;
    let additions = signer.scope().additions(
        &request.endpoint,
        &action,
        sigv4::account_of(access_key).as_deref(),
    );
    for (name, value) in additions.map_err(|why| Error::Unsignable(why.into()))? {
        head.fields.insert(name, value);
    }
    let with = SigningParams {
        access_key,
        secret: secret.ok_or(Error::Unknown)?,
        session_token: token.map(text).transpose()?,
        now: SystemTime::now(),
        longest_life: LONGEST_LIFE,
        content: hash.as_ref(),
    };
    let signed = sigv4::sign(head, claim, verified, &with).map_err(unsigned)?;
    let signature = signed.signature().to_owned();
    match claim.payload() {
        // What was held is known to have its hash.
        Payload::Hash(hash) if content.held().is_none() && !content.is_empty() => {
            content.transform(Box::new(Checked::new(hash)));
        }
        Payload::Streaming(_) => {
            let chunks = signed.rechain(head, LONGEST_CHUNK).map_err(malformed)?;
            if let Some(chunks) = chunks {
                content.transform(Box::new(Chunks(chunks, Share::of(budget.clone()))));
            }
        }
        Payload::Events => {
            if let Some(events) = signed.events(LONGEST_CHUNK) {
                content.transform(Box::new(Messages(events, Share::of(budget.clone()))));
            }
        }
        Payload::Hash(_) | Payload::Unsigned | Payload::Absent => {}
    }
    Ok(vec![signature.into_bytes()])
}

fn sign_by_recipe(
    head: &mut RequestHead,
    content: &mut Content,
    proven: ProvenRecipe,
    (lend, signing): (&Lend, &Signing),
    fetched: &Fetched,
    last: &AtomicU64,
) -> Result<Vec<Vec<u8>>, Error> {
    let ProvenRecipe {
        recipe,
        verified,
        content: whole,
    } = proven;
    let now = SystemTime::now();
    let secrets = parts(&recipe, lend, signing, |credential| {
        Some(leased(fetched, credential).ok()?.secret.expose())
    });
    let nonce = nonce(&recipe, now, last)?;
    let signed = recipe
        .sign(verified, head, whole, &Parts::new(secrets), now, &nonce)
        .map_err(|fault| Error::Signing(Fault::Recipe(fault)))?;
    if let Some(rewritten) = signed.content {
        let length = rewritten.len();
        content.held_mut().ok_or(Error::Unknown)?.replace(rewritten);
        if head.fields.contains_key(CONTENT_LENGTH) {
            head.fields
                .insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
    }
    Ok(signed.signature.as_deref().map_or_else(Vec::new, written))
}

/// A signature in each way in which recipes write one.
fn written(signature: &[u8]) -> Vec<Vec<u8>> {
    let hex: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
    vec![
        STANDARD.encode(signature).into_bytes(),
        URL_SAFE_NO_PAD.encode(signature).into_bytes(),
        hex.to_uppercase().into_bytes(),
        hex.into_bytes(),
    ]
}

/// A credential's texts by the names of the recipe's parts, as far as there are any.
pub(super) fn parts<'a, 'b>(
    recipe: &'a Recipe,
    lend: &'a Lend,
    signing: &'a Signing,
    text: impl Fn(&CredentialName) -> Option<&'b [u8]>,
) -> Vec<(&'a str, &'b [u8])> {
    let first = recipe
        .parts()
        .iter()
        .find(|part| signing.part(&part.name).is_none());
    let of = |part: &'a crate::signature::recipe::Part| {
        let credential = match signing.part(&part.name) {
            Some(credential) => credential,
            None if first.is_some_and(|first| first.name == part.name) => lend.credential(),
            None => return None,
        };
        Some((part.name.as_str(), text(credential)?))
    };
    recipe.parts().iter().filter_map(of).collect()
}

/// Random bytes, and a number above every one that this process used before with the credential.
fn nonce(recipe: &Recipe, now: SystemTime, last: &AtomicU64) -> Result<Nonce, Error> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|_| Error::NoRandomness)?;
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

fn unsigned(fault: sigv4::Fault) -> Error {
    Error::Signing(Fault::SigV4(fault))
}

fn malformed(fault: sigv4::Fault) -> Error {
    Error::Signature(Fault::SigV4(fault))
}

/// A presigned request is signed when it is made, and needs to live no longer than its journey
/// (J04).
const LONGEST_LIFE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_must_rise_rises_though_the_clock_stands() {
        let recipe = crate::signature::recipe::preset("kraken").unwrap();
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
