//! Sealing with AES-256-GCM: stored text can be opened by the gateway alone, and only in its own
//! place.

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The key that seals. It cannot be printed, compared or exported.
pub struct SealingKey {
    seal: RandomizedNonceKey,
    /// Derived from the same bytes, for what is not sealed.
    mac: hmac::Key,
}

/// A sealed text cannot be opened: the key is another one, or the text was changed or moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it was sealed with another key, or it was changed")]
pub struct SealBroken;

/// A mark by which a store's key is recognised, without revealing the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyMark {
    /// Where the key is kept, as a reference.
    pub source: String,
    /// The store's id, which is drawn with the mark, because several stores may have one key.
    pub store: [u8; 16],
    /// A known text, sealed.
    pub sealed: Vec<u8>,
}

impl SealingKey {
    /// Draws a new key, in the text form that is stored.
    ///
    /// # Errors
    /// [`SealBroken`] if the system has no random numbers.
    pub fn draw() -> Result<Zeroizing<String>, SealBroken> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(&mut bytes[..]).map_err(|_| SealBroken)?;
        Ok(Zeroizing::new(URL_SAFE_NO_PAD.encode(&bytes[..])))
    }

    /// Reads a key from its text: 32 bytes in base64 or base64url, with or without padding.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        let forms = [&URL_SAFE_NO_PAD, &STANDARD_NO_PAD, &STANDARD, &URL_SAFE];
        let mut decoded = forms.iter().filter_map(|form| form.decode(text).ok());
        let bytes = Zeroizing::new(decoded.find(|bytes| bytes.len() == 32)?);
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &bytes[..]), MAC);
        Some(Self {
            seal: RandomizedNonceKey::new(&AES_256_GCM, &bytes).ok()?,
            mac: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()),
        })
    }

    /// Returns the code that only this key makes of these parts.
    pub(super) fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut made = hmac::Context::with_key(&self.mac);
        for part in parts {
            made.update(&(part.len() as u64).to_be_bytes());
            made.update(part);
        }
        let (mut code, tag) = ([0; 32], made.sign());
        code.copy_from_slice(tag.as_ref());
        code
    }

    /// Seals bytes for the place that these parts name: opening them requires the same parts.
    ///
    /// # Errors
    /// [`SealBroken`] if the system has no random numbers.
    pub(super) fn seal(&self, place: &[&[u8]], plain: &[u8]) -> Result<Vec<u8>, SealBroken> {
        // Capacity for the tag, so that no reallocation leaves plain bytes behind.
        let mut sealed = Zeroizing::new(Vec::with_capacity(plain.len() + TAG));
        sealed.extend_from_slice(plain);
        let nonce = self
            .seal
            .seal_in_place_append_tag(associated(place), &mut *sealed)
            .map_err(|_| SealBroken)?;
        Ok([&nonce.as_ref()[..], &sealed].concat())
    }

    /// Opens a text that was sealed for this place.
    ///
    /// # Errors
    /// [`SealBroken`] if it was sealed with another key or for another place, or was changed.
    pub(super) fn open(
        &self,
        place: &[&[u8]],
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, SealBroken> {
        let (nonce, rest) = sealed.split_first_chunk().ok_or(SealBroken)?;
        let mut bytes = Zeroizing::new(rest.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = self
            .seal
            .open_in_place(nonce, associated(place), &mut bytes);
        let length = plain.map_err(|_| SealBroken)?.len();
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Makes the mark by which a new store recognises this key.
    ///
    /// # Errors
    /// [`SealBroken`] if the system has no random numbers.
    pub fn mark(&self, source: &str) -> Result<KeyMark, SealBroken> {
        let mut store = [0; 16];
        getrandom::fill(&mut store).map_err(|_| SealBroken)?;
        Ok(KeyMark {
            source: source.to_owned(),
            store,
            sealed: self.seal(&[b"seal", source.as_bytes(), &store], MARK)?,
        })
    }

    /// Whether a store's mark was made with this key.
    #[must_use]
    pub fn made(&self, mark: &KeyMark) -> bool {
        let place: [&[u8]; 3] = [b"seal", mark.source.as_bytes(), &mark.store];
        self.open(&place, &mark.sealed)
            .is_ok_and(|known| known[..] == *MARK)
    }
}

/// The associated data. The encoding is unambiguous: two places never have the same data.
fn associated(place: &[&[u8]]) -> Aad<Vec<u8>> {
    let mut named = b"gateway state v2".to_vec();
    for part in place {
        named.extend_from_slice(&(part.len() as u64).to_be_bytes());
        named.extend_from_slice(part);
    }
    Aad::from(named)
}

/// The length of AES-GCM's tag.
const TAG: usize = 16;
const MARK: &[u8] = b"the key that seals this store";
const MAC: &[u8] = b"gateway state codes v1";

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SealingKey {
        SealingKey::from_text(SealingKey::draw().unwrap().as_bytes()).unwrap()
    }

    #[test]
    fn what_is_sealed_opens_in_its_own_place_with_its_own_key_alone() {
        let (ours, other) = (key(), key());
        let place: [&[u8]; 2] = [b"session", b"ab"];
        let sealed = ours.seal(&place, b"CANARY").unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"CANARY"));
        assert_eq!(ours.open(&place, &sealed).unwrap()[..], *b"CANARY");
        assert!(other.open(&place, &sealed).is_err());
        for elsewhere in [
            &[&b"seal"[..], b"ab"][..],
            &[b"session", b"b"],
            &[b"sessiona", b"b"],
            &[b"session", b"ab", b""],
        ] {
            assert!(ours.open(elsewhere, &sealed).is_err());
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(ours.open(&place, &changed).is_err(), "{at}");
            assert!(ours.open(&place, &sealed[..at]).is_err());
        }
        assert_ne!(ours.seal(&place, b"CANARY").unwrap(), sealed);
    }

    #[test]
    fn a_mark_tells_the_key_from_every_other() {
        let (ours, other) = (key(), key());
        let mark = ours.mark("file:/key").unwrap();
        assert!(ours.made(&mark) && !other.made(&mark));
        let moved = KeyMark {
            source: "keyring:x/y".to_owned(),
            ..mark.clone()
        };
        let other_store = KeyMark {
            store: [7; 16],
            ..mark
        };
        assert!(!ours.made(&moved) && !ours.made(&other_store));
    }

    #[test]
    fn a_key_has_thirty_two_bytes_in_base64() {
        let bytes = [7; 32];
        for form in [&STANDARD, &URL_SAFE, &STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            assert!(SealingKey::from_text(form.encode(bytes).as_bytes()).is_some());
            assert!(SealingKey::from_text(form.encode(&bytes[1..]).as_bytes()).is_none());
        }
        assert!(SealingKey::from_text(b"hunter2").is_none());
    }
}
