//! Algorithms: hashes, message authentication codes and signatures, by the names that descriptions
//! use.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, KeyPair as _, UnparsedPublicKey};
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;

use super::key::Pair;

/// A hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    /// For content alone: it is broken, and no code of authentication is made with it.
    Md5,
    /// Broken as a hash, sound inside HMAC (RFC 6194 §3.3); services still ask for it.
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    pub(super) fn named(name: &str) -> Option<Hash> {
        Some(match name {
            "md5" => Hash::Md5,
            "sha1" => Hash::Sha1,
            "sha256" => Hash::Sha256,
            "sha384" => Hash::Sha384,
            "sha512" => Hash::Sha512,
            _ => return None,
        })
    }

    pub(super) fn of(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Hash::Md5 => Md5::digest(bytes).to_vec(),
            Hash::Sha1 => Sha1::digest(bytes).to_vec(),
            Hash::Sha256 => Sha256::digest(bytes).to_vec(),
            Hash::Sha384 => Sha384::digest(bytes).to_vec(),
            Hash::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }
}

/// A hash with which HMAC (RFC 2104) is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum MacHash {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl MacHash {
    /// The hash of `hmac-NAME`.
    pub(super) fn named(name: &str) -> Option<MacHash> {
        Some(match name {
            "hmac-sha1" => MacHash::Sha1,
            "hmac-sha256" => MacHash::Sha256,
            "hmac-sha384" => MacHash::Sha384,
            "hmac-sha512" => MacHash::Sha512,
            _ => return None,
        })
    }

    pub(super) fn of(self, key: &[u8], text: &[u8]) -> Vec<u8> {
        macro_rules! mac {
            ($hash:ty) => {{
                let mut mac =
                    Hmac::<$hash>::new_from_slice(key).expect("HMAC takes a key of any length");
                mac.update(text);
                mac.finalize().into_bytes().to_vec()
            }};
        }
        match self {
            MacHash::Sha1 => mac!(Sha1),
            MacHash::Sha256 => mac!(Sha256),
            MacHash::Sha384 => mac!(Sha384),
            MacHash::Sha512 => mac!(Sha512),
        }
    }
}

/// How the text to sign becomes a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// HMAC; client and service hold the same key.
    Hmac(MacName),
    /// Ed25519 (RFC 8032).
    Ed25519,
    /// ECDSA over P-256 with SHA-256, as the two numbers of 32 bytes each (RFC 7518 §3.4).
    EcdsaP256,
    /// ECDSA over P-384 with SHA-384, as the two numbers of 48 bytes each.
    EcdsaP384,
    /// RSASSA-PSS with SHA-512 and a salt of 64 bytes (RFC 9421 §3.3.1).
    RsaPssSha512,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    RsaPkcs1Sha256,
}

/// A MAC by its hash; opaque outside this room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MacName(pub(super) MacHash);

/// A key is not what the algorithm needs. Says nothing about the key's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyUnfit;

impl Algorithm {
    pub(super) fn named(name: &str) -> Option<Algorithm> {
        Some(match name {
            "ed25519" => Algorithm::Ed25519,
            "ecdsa-p256-sha256" => Algorithm::EcdsaP256,
            "ecdsa-p384-sha384" => Algorithm::EcdsaP384,
            "rsa-pss-sha512" => Algorithm::RsaPssSha512,
            "rsa-pkcs1-sha256" => Algorithm::RsaPkcs1Sha256,
            mac => Algorithm::Hmac(MacName(MacHash::named(mac)?)),
        })
    }

    pub(super) fn sign(self, key: &[u8], text: &[u8]) -> Result<Vec<u8>, KeyUnfit> {
        match self {
            Algorithm::Hmac(_) if key.is_empty() => Err(KeyUnfit),
            Algorithm::Hmac(MacName(hash)) => Ok(hash.of(key, text)),
            _ => match self.pair(key)? {
                Pair::Ed25519(pair) => Ok(pair.sign(text).as_ref().to_vec()),
                Pair::Ecdsa(pair) => {
                    let signed = pair.sign(&SystemRandom::new(), text);
                    Ok(signed.map_err(|_| KeyUnfit)?.as_ref().to_vec())
                }
                Pair::Rsa(pair) => {
                    let padding: &'static dyn signature::RsaEncoding = match self {
                        Algorithm::RsaPssSha512 => &signature::RSA_PSS_SHA512,
                        _ => &signature::RSA_PKCS1_SHA256,
                    };
                    let mut signed = vec![0; pair.public_modulus_len()];
                    pair.sign(padding, &SystemRandom::new(), text, &mut signed)
                        .map_err(|_| KeyUnfit)?;
                    Ok(signed)
                }
            },
        }
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
        let pair = self.pair(key)?;
        let public: &[u8] = match &pair {
            Pair::Ed25519(pair) => pair.public_key().as_ref(),
            Pair::Ecdsa(pair) => pair.public_key().as_ref(),
            Pair::Rsa(pair) => pair.public_key().as_ref(),
        };
        let public = UnparsedPublicKey::new(algorithm, public);
        Ok(public.verify(text, claimed).is_ok())
    }

    /// The public key of a private one: the point without its first byte for ECDSA, 32 bytes for
    /// Ed25519; RFC 7517 calls for no other here.
    pub(super) fn public(self, key: &[u8]) -> Result<Vec<u8>, KeyUnfit> {
        match self.pair(key)? {
            Pair::Ed25519(pair) => Ok(pair.public_key().as_ref().to_vec()),
            // SEC 1 §2.3.3: an uncompressed point begins with 4.
            Pair::Ecdsa(pair) => pair
                .public_key()
                .as_ref()
                .strip_prefix(&[4])
                .map(<[u8]>::to_vec)
                .ok_or(KeyUnfit),
            Pair::Rsa(_) => Err(KeyUnfit),
        }
    }

    fn pair(self, key: &[u8]) -> Result<Pair, KeyUnfit> {
        Pair::read(self, key).map_err(|_| KeyUnfit)
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
