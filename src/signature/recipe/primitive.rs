//! The arithmetic of the algorithms: signs texts and verifies signatures.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, KeyPair as _, RsaKeyPair, UnparsedPublicKey};
use subtle::ConstantTimeEq;

use super::algorithm::Algorithm;
use super::key::SigningKey;

/// A key is not what the algorithm needs. Says nothing about the key's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyUnfit;

impl Algorithm {
    /// Signs a text with a (private or shared) key.
    pub(super) fn sign(self, key: &[u8], text: &[u8]) -> Result<Vec<u8>, KeyUnfit> {
        match self {
            Algorithm::Hmac(_) if key.is_empty() => Err(KeyUnfit),
            Algorithm::Hmac(hash) => Ok(hash.of(key, text)),
            _ => match self.key(key)? {
                SigningKey::Ed25519(pair) => Ok(pair.sign(text).as_ref().to_vec()),
                SigningKey::Ecdsa(pair) => {
                    let signed = pair.sign(&SystemRandom::new(), text);
                    Ok(signed.map_err(|_| KeyUnfit)?.as_ref().to_vec())
                }
                SigningKey::Rsa(pair) => self.sign_rsa(&pair, text),
            },
        }
    }

    /// Signs a text with a private key, outside any recipe; `None` if it is no key of this
    /// algorithm.
    #[must_use]
    pub fn signature(self, key: &[u8], text: &[u8]) -> Option<Vec<u8>> {
        self.sign(key, text).ok()
    }

    fn sign_rsa(self, pair: &RsaKeyPair, text: &[u8]) -> Result<Vec<u8>, KeyUnfit> {
        let padding: &'static dyn signature::RsaEncoding = match self {
            Algorithm::RsaPssSha512 => &signature::RSA_PSS_SHA512,
            _ => &signature::RSA_PKCS1_SHA256,
        };
        let mut signed = vec![0; pair.public_modulus_len()];
        pair.sign(padding, &SystemRandom::new(), text, &mut signed)
            .map_err(|_| KeyUnfit)?;
        Ok(signed)
    }

    /// Whether the signature is one of this text by the holder of this (private or shared) key.
    pub(super) fn verify(self, key: &[u8], text: &[u8], claimed: &[u8]) -> Result<bool, KeyUnfit> {
        let algorithm: &'static dyn signature::VerificationAlgorithm = match self {
            Algorithm::Hmac(_) => return Ok(self.sign(key, text)?.ct_eq(claimed).into()),
            Algorithm::Ed25519 => &signature::ED25519,
            Algorithm::EcdsaP256 => &signature::ECDSA_P256_SHA256_FIXED,
            Algorithm::EcdsaP384 => &signature::ECDSA_P384_SHA384_FIXED,
            Algorithm::RsaPssSha512 => &signature::RSA_PSS_2048_8192_SHA512,
            Algorithm::RsaPkcs1Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        };
        let pair = self.key(key)?;
        let public: &[u8] = match &pair {
            SigningKey::Ed25519(pair) => pair.public_key().as_ref(),
            SigningKey::Ecdsa(pair) => pair.public_key().as_ref(),
            SigningKey::Rsa(pair) => pair.public_key().as_ref(),
        };
        let public = UnparsedPublicKey::new(algorithm, public);
        Ok(public.verify(text, claimed).is_ok())
    }

    /// The public key of a private one: the point without its first byte for ECDSA, 32 bytes for
    /// Ed25519; RFC 7517 calls for no other here.
    pub(super) fn public(self, key: &[u8]) -> Result<Vec<u8>, KeyUnfit> {
        match self.key(key)? {
            SigningKey::Ed25519(pair) => Ok(pair.public_key().as_ref().to_vec()),
            // SEC 1 §2.3.3: an uncompressed point begins with 4.
            SigningKey::Ecdsa(pair) => pair
                .public_key()
                .as_ref()
                .strip_prefix(&[4])
                .map(<[u8]>::to_vec)
                .ok_or(KeyUnfit),
            SigningKey::Rsa(_) => Err(KeyUnfit),
        }
    }

    fn key(self, key: &[u8]) -> Result<SigningKey, KeyUnfit> {
        SigningKey::read(self, key).map_err(|_| KeyUnfit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_key_is_refused() {
        for (algorithm, key) in [
            ("ed25519", &b"short"[..]),
            (
                "ecdsa-p256-sha256",
                b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
            ),
            ("hmac-sha256", b""),
        ] {
            let algorithm = Algorithm::named(algorithm).unwrap();
            assert_eq!(algorithm.sign(key, b"text"), Err(KeyUnfit));
        }
    }
}
