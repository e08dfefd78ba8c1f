//! Algorithms: hashes, message authentication codes and signatures, by the names that descriptions use.

use aws_lc_rs::agreement::{ECDH_P256, ECDH_P384, PrivateKey};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
                let mut mac = Hmac::<$hash>::new_from_slice(key).expect("HMAC takes a key of any length");
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
            Algorithm::Ed25519 => Ok(ed25519(key)?.sign(text).as_ref().to_vec()),
            Algorithm::EcdsaP256 | Algorithm::EcdsaP384 => {
                let signed = self.ecdsa(key)?.sign(&SystemRandom::new(), text);
                Ok(signed.map_err(|_| KeyUnfit)?.as_ref().to_vec())
            }
            Algorithm::RsaPssSha512 => rsa_sign(key, &signature::RSA_PSS_SHA512, text),
            Algorithm::RsaPkcs1Sha256 => rsa_sign(key, &signature::RSA_PKCS1_SHA256, text),
        }
    }

    /// Whether the signature is one of this text by the holder of this (private or shared) key.
    pub(super) fn verify(self, key: &[u8], text: &[u8], claimed: &[u8]) -> Result<bool, KeyUnfit> {
        let by = |algorithm: &'static dyn signature::VerificationAlgorithm, public: &[u8]| {
            UnparsedPublicKey::new(algorithm, public)
                .verify(text, claimed)
                .is_ok()
        };
        Ok(match self {
            Algorithm::Hmac(_) => self.sign(key, text)?.ct_eq(claimed).into(),
            Algorithm::Ed25519 => by(&signature::ED25519, ed25519(key)?.public_key().as_ref()),
            Algorithm::EcdsaP256 => by(
                &signature::ECDSA_P256_SHA256_FIXED,
                self.ecdsa(key)?.public_key().as_ref(),
            ),
            Algorithm::EcdsaP384 => by(
                &signature::ECDSA_P384_SHA384_FIXED,
                self.ecdsa(key)?.public_key().as_ref(),
            ),
            Algorithm::RsaPssSha512 => by(
                &signature::RSA_PSS_2048_8192_SHA512,
                rsa(key)?.public_key().as_ref(),
            ),
            Algorithm::RsaPkcs1Sha256 => by(
                &signature::RSA_PKCS1_2048_8192_SHA256,
                rsa(key)?.public_key().as_ref(),
            ),
        })
    }

    /// The public key of a private one: the point without its first byte for ECDSA, 32 bytes for Ed25519; RFC 7517 calls
    /// for no other here.
    pub(super) fn public(self, key: &[u8]) -> Result<Vec<u8>, KeyUnfit> {
        match self {
            Algorithm::Ed25519 => Ok(ed25519(key)?.public_key().as_ref().to_vec()),
            Algorithm::EcdsaP256 | Algorithm::EcdsaP384 => {
                let pair = self.ecdsa(key)?;
                // SEC 1 §2.3.3: an uncompressed point begins with 4.
                pair.public_key()
                    .as_ref()
                    .strip_prefix(&[4])
                    .map(<[u8]>::to_vec)
                    .ok_or(KeyUnfit)
            }
            _ => Err(KeyUnfit),
        }
    }

    fn ecdsa(self, key: &[u8]) -> Result<EcdsaKeyPair, KeyUnfit> {
        let algorithm = match self {
            Algorithm::EcdsaP384 => &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
            _ => &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
        };
        match KeyText::read(key)? {
            KeyText::Pkcs8(der) => EcdsaKeyPair::from_pkcs8(algorithm, &der),
            KeyText::Traditional(der) => {
                return EcdsaKeyPair::from_private_key_der(algorithm, &der).map_err(|_| KeyUnfit);
            }
            KeyText::Raw(_) => return Err(KeyUnfit),
        }
        .map_err(|_| KeyUnfit)
    }
}

/// A private key made of a seed, as PEM of PKCS #8 (RFC 5958): what a phantom of such a key must be. `None` for an algorithm
/// whose keys are any bytes, for RSA, whose keys are searched for and not drawn, and for the rare seed that is no key.
pub(super) fn key_of_seed(algorithm: Algorithm, seed: &[u8; 32]) -> Option<Zeroizing<String>> {
    let on_curve = |curve, scalar: &[u8], before: &[u8], between: &[u8]| {
        let key = PrivateKey::from_private_key(curve, scalar).ok()?;
        let point = key.compute_public_key().ok()?;
        Some(Zeroizing::new([before, scalar, between, point.as_ref()].concat()))
    };
    let der = match algorithm {
        Algorithm::Ed25519 => Zeroizing::new([&ED25519_KEY, &seed[..]].concat()),
        Algorithm::EcdsaP256 => on_curve(&ECDH_P256, seed, &P256_KEY, &P256_POINT)?,
        Algorithm::EcdsaP384 => {
            let scalar = Zeroizing::new(Hash::Sha384.of(seed));
            on_curve(&ECDH_P384, &scalar, &P384_KEY, &P384_POINT)?
        }
        Algorithm::Hmac(_) | Algorithm::RsaPssSha512 | Algorithm::RsaPkcs1Sha256 => return None,
    };
    let text = Zeroizing::new(STANDARD.encode(&*der));
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    let body = Zeroizing::new(lines.join("\n"));
    Some(Zeroizing::new(format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        *body
    )))
}

/// What stands before the 32 bytes of an Ed25519 key (RFC 8410 §7).
const ED25519_KEY: [u8; 16] = [
    0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
];
/// What stands before the number of a P-256 key, and between it and its point (RFC 5915 §3).
const P256_KEY: [u8; 36] = [
    0x30, 0x81, 0x87, 2, 1, 0, 0x30, 0x13, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48,
    0xce, 0x3d, 3, 1, 7, 4, 0x6d, 0x30, 0x6b, 2, 1, 1, 4, 0x20,
];
const P256_POINT: [u8; 5] = [0xa1, 0x44, 3, 0x42, 0];
/// The same for P-384.
const P384_KEY: [u8; 35] = [
    0x30, 0x81, 0xb6, 2, 1, 0, 0x30, 0x10, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 5, 0x2b, 0x81, 4, 0,
    0x22, 4, 0x81, 0x9e, 0x30, 0x81, 0x9b, 2, 1, 1, 4, 0x30,
];
const P384_POINT: [u8; 5] = [0xa1, 0x64, 3, 0x62, 0];

fn ed25519(key: &[u8]) -> Result<Ed25519KeyPair, KeyUnfit> {
    match KeyText::read(key)? {
        KeyText::Pkcs8(der) => Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map_err(|_| KeyUnfit),
        KeyText::Raw(seed) => match seed.len() {
            // The seed, or the seed and its public key as libsodium writes them. That follows from the seed, and a phantom that
            // was drawn letter by letter has another.
            32 | 64 => Ed25519KeyPair::from_seed_unchecked(&seed[..32]).map_err(|_| KeyUnfit),
            _ => Err(KeyUnfit),
        },
        KeyText::Traditional(_) => Err(KeyUnfit),
    }
}

fn rsa(key: &[u8]) -> Result<RsaKeyPair, KeyUnfit> {
    match KeyText::read(key)? {
        KeyText::Pkcs8(der) => match inner_of_pss(&der) {
            Some(inner) => RsaKeyPair::from_der(inner).map_err(|_| KeyUnfit),
            None => RsaKeyPair::from_pkcs8(&der).map_err(|_| KeyUnfit),
        },
        KeyText::Traditional(der) => RsaKeyPair::from_der(&der).map_err(|_| KeyUnfit),
        KeyText::Raw(_) => Err(KeyUnfit),
    }
}

/// The RSA key inside of a PKCS #8 key that is marked for PSS alone (RFC 4055 §1.2), which aws-lc does not read.
///
/// DER: a sequence of the version 0, a sequence with the algorithm's name, and the key as an octet string.
fn inner_of_pss(der: &[u8]) -> Option<&[u8]> {
    const ID_RSASSA_PSS: [u8; 11] = [0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a];
    let (whole, _) = element(der, 0x30)?;
    let (_, rest) = element(whole, 0x02)?;
    let (algorithm, rest) = element(rest, 0x30)?;
    let (key, _) = element(rest, 0x04)?;
    algorithm.starts_with(&ID_RSASSA_PSS).then_some(key)
}

/// The content of a DER element of this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let rest = der.strip_prefix(&[tag])?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 | 0x82 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 3))?;
            (
                bytes
                    .iter()
                    .fold(0, |length, byte| length << 8 | usize::from(*byte)),
                rest,
            )
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

fn rsa_sign(
    key: &[u8],
    padding: &'static dyn signature::RsaEncoding,
    text: &[u8],
) -> Result<Vec<u8>, KeyUnfit> {
    let pair = rsa(key)?;
    let mut signed = vec![0; pair.public_modulus_len()];
    pair.sign(padding, &SystemRandom::new(), text, &mut signed)
        .map_err(|_| KeyUnfit)?;
    Ok(signed)
}

/// A private key as it is kept: PEM (RFC 7468), or the raw bytes of Ed25519.
enum KeyText {
    Pkcs8(Zeroizing<Vec<u8>>),
    /// `EC PRIVATE KEY` (RFC 5915) or `RSA PRIVATE KEY` (RFC 8017).
    Traditional(Zeroizing<Vec<u8>>),
    Raw(Zeroizing<Vec<u8>>),
}

impl KeyText {
    fn read(key: &[u8]) -> Result<KeyText, KeyUnfit> {
        let Some(text) = std::str::from_utf8(key)
            .ok()
            .filter(|text| text.contains("-----BEGIN "))
        else {
            return Ok(KeyText::Raw(Zeroizing::new(key.to_vec())));
        };
        // Files of keys in JSON come with their line breaks still written as `\n`.
        let text = Zeroizing::new(text.replace("\\n", "\n"));
        // `EC PARAMETERS` may stand first (OpenSSL); the key is what ends in `PRIVATE KEY`.
        let (label, body) = text
            .split("-----BEGIN ")
            .skip(1)
            .filter_map(|block| block.split_once("-----"))
            .find(|(label, _)| label.ends_with("PRIVATE KEY"))
            .ok_or(KeyUnfit)?;
        let body = body.split("-----END ").next().ok_or(KeyUnfit)?;
        let body: Zeroizing<String> =
            Zeroizing::new(body.chars().filter(|c| !c.is_ascii_whitespace()).collect());
        let der = Zeroizing::new(STANDARD.decode(body.as_bytes()).map_err(|_| KeyUnfit)?);
        match label {
            "PRIVATE KEY" => Ok(KeyText::Pkcs8(der)),
            "EC PRIVATE KEY" | "RSA PRIVATE KEY" => Ok(KeyText::Traditional(der)),
            _ => Err(KeyUnfit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_a_seed_signs_and_is_the_same_for_the_same_seed() {
        for algorithm in [Algorithm::Ed25519, Algorithm::EcdsaP256, Algorithm::EcdsaP384] {
            let key = key_of_seed(algorithm, &[7; 32]).unwrap();
            assert_eq!(*key, *key_of_seed(algorithm, &[7; 32]).unwrap());
            assert_ne!(*key, *key_of_seed(algorithm, &[8; 32]).unwrap());
            let signature = algorithm.sign(key.as_bytes(), b"text").unwrap();
            assert_eq!(algorithm.verify(key.as_bytes(), b"text", &signature), Ok(true));
            assert_eq!(algorithm.verify(key.as_bytes(), b"texts", &signature), Ok(false));
            // As it stands in a file of JSON.
            let escaped = key.replace('\n', "\\n");
            assert_eq!(
                algorithm.verify(escaped.as_bytes(), b"text", &signature),
                Ok(true)
            );
        }
        assert!(key_of_seed(Algorithm::RsaPssSha512, &[7; 32]).is_none());
        assert!(
            key_of_seed(Algorithm::EcdsaP256, &[0xff; 32]).is_none(),
            "beyond the order of the curve"
        );
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let p256 = key_of_seed(Algorithm::EcdsaP256, &[7; 32]).unwrap();
        for (algorithm, key) in [
            (Algorithm::Ed25519, &b"short"[..]),
            (Algorithm::Ed25519, p256.as_bytes()),
            (Algorithm::EcdsaP384, p256.as_bytes()),
            (Algorithm::RsaPssSha512, p256.as_bytes()),
            (
                Algorithm::EcdsaP256,
                b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
            ),
            (
                Algorithm::EcdsaP256,
                b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
            ),
            (Algorithm::named("hmac-sha256").unwrap(), b""),
        ] {
            assert_eq!(algorithm.sign(key, b"text"), Err(KeyUnfit));
        }
    }
}
