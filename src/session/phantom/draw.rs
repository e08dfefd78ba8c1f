//! Letters drawn from a session's key. The same key, credential and attempt give the same letters
//! on every replica.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::{Zeroize, Zeroizing};

/// The key from which a session's phantoms are derived. Replicas with the same key issue the same
/// phantoms.
///
/// It cannot be printed or compared, and is wiped on drop.
pub struct PhantomKey([u8; 32]);

impl PhantomKey {
    /// Generates a key with the operating system's random generator.
    ///
    /// # Errors
    /// The generator's own error.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self(key))
    }

    /// Makes a key from 32 bytes shared between replicas.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Derives the seed for the key of the session's tokens. The seed reveals nothing of this key.
    #[must_use]
    pub fn of_tokens(&self) -> Zeroizing<[u8; 32]> {
        let mut mac = new_mac(&self.0);
        mac.update(TOKENS);
        Zeroizing::new(mac.finalize().into_bytes().into())
    }

    /// Returns the letters for the n-th attempt at one credential's phantom.
    pub(super) fn stream(&self, credential: &str, attempt: u32) -> Stream {
        let mut mac = new_mac(&self.0);
        mac.update(DOMAIN);
        mac.update(&(credential.len() as u64).to_be_bytes());
        mac.update(credential.as_bytes());
        mac.update(&attempt.to_be_bytes());
        Stream {
            key: mac.finalize().into_bytes().into(),
            block: [0; 32],
            used: 32,
            counter: 0,
        }
    }
}

impl Drop for PhantomKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// An endless stream of bytes: HMAC-SHA256 in counter mode, under a key of its own.
pub(super) struct Stream {
    key: [u8; 32],
    block: [u8; 32],
    used: usize,
    counter: u64,
}

impl Stream {
    /// Draws one letter, each with equal probability. Bytes past the last whole multiple of the
    /// alphabet's length are discarded.
    pub(super) fn pick(&mut self, letters: &[u8]) -> u8 {
        let fair = 256 - 256 % letters.len();
        loop {
            let byte = usize::from(self.byte());
            if byte < fair {
                return letters[byte % letters.len()];
            }
        }
    }

    /// Returns the 32 bytes from which a private key is made.
    pub(super) fn seed(mut self) -> Zeroizing<[u8; 32]> {
        let mut seed = Zeroizing::new([0; 32]);
        seed.iter_mut().for_each(|byte| *byte = self.byte());
        seed
    }

    pub(super) fn byte(&mut self) -> u8 {
        if self.used == self.block.len() {
            let mut mac = new_mac(&self.key);
            mac.update(&self.counter.to_be_bytes());
            self.block = mac.finalize().into_bytes().into();
            self.counter += 1;
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.key.zeroize();
        self.block.zeroize();
    }
}

fn new_mac(key: &[u8; 32]) -> Hmac<Sha256> {
    // HMAC takes a key of any length (RFC 2104 §3).
    Hmac::new_from_slice(key).expect("HMAC takes a key of any length")
}

const DOMAIN: &[u8] = b"gateway phantom v1";
const TOKENS: &[u8] = b"gateway tokens v1";
