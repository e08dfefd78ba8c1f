//! Algorithms: hashes, message authentication codes and signatures, by the names that descriptions use.

use aws_lc_rs::encoding::AsDer;
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
        match PrivateKey::read(key)? {
            PrivateKey::Pkcs8(der) => EcdsaKeyPair::from_pkcs8(algorithm, &der),
            PrivateKey::Traditional(der) => {
                return EcdsaKeyPair::from_private_key_der(algorithm, &der).map_err(|_| KeyUnfit);
            }
            PrivateKey::Raw(_) => return Err(KeyUnfit),
        }
        .map_err(|_| KeyUnfit)
    }
}

/// A new key pair of an algorithm, as PEM of PKCS #8: what a phantom of such a key must be.
pub(super) fn new_key(algorithm: Algorithm) -> Result<Zeroizing<String>, KeyUnfit> {
    let der = match algorithm {
        Algorithm::Ed25519 => {
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map(|d| d.as_ref().to_vec())
        }
        Algorithm::EcdsaP256 => {
            EcdsaKeyPair::generate_pkcs8(&signature::ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
                .map(|d| d.as_ref().to_vec())
        }
        Algorithm::EcdsaP384 => {
            EcdsaKeyPair::generate_pkcs8(&signature::ECDSA_P384_SHA384_FIXED_SIGNING, &SystemRandom::new())
                .map(|d| d.as_ref().to_vec())
        }
        Algorithm::RsaPssSha512 | Algorithm::RsaPkcs1Sha256 => {
            RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048)
                .and_then(|pair| pair.as_der())
                .map(|der: aws_lc_rs::encoding::Pkcs8V1Der<'_>| der.as_ref().to_vec())
        }
        Algorithm::Hmac(_) => return Err(KeyUnfit),
    };
    let der = Zeroizing::new(der.map_err(|_| KeyUnfit)?);
    let mut pem = Zeroizing::new(String::from("-----BEGIN PRIVATE KEY-----\n"));
    let text = Zeroizing::new(STANDARD.encode(&*der));
    for line in text.as_bytes().chunks(64) {
        pem.push_str(std::str::from_utf8(line).map_err(|_| KeyUnfit)?);
        pem.push('\n');
    }
    pem.push_str("-----END PRIVATE KEY-----\n");
    Ok(pem)
}

fn ed25519(key: &[u8]) -> Result<Ed25519KeyPair, KeyUnfit> {
    match PrivateKey::read(key)? {
        PrivateKey::Pkcs8(der) => Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map_err(|_| KeyUnfit),
        PrivateKey::Raw(seed) => match seed.len() {
            32 => Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyUnfit),
            // The seed and the public key, as libsodium writes them: they must belong together.
            64 => Ed25519KeyPair::from_seed_and_public_key(&seed[..32], &seed[32..]).map_err(|_| KeyUnfit),
            _ => Err(KeyUnfit),
        },
        PrivateKey::Traditional(_) => Err(KeyUnfit),
    }
}

fn rsa(key: &[u8]) -> Result<RsaKeyPair, KeyUnfit> {
    match PrivateKey::read(key)? {
        PrivateKey::Pkcs8(der) => RsaKeyPair::from_pkcs8(&der).map_err(|_| KeyUnfit),
        PrivateKey::Traditional(der) => RsaKeyPair::from_der(&der).map_err(|_| KeyUnfit),
        PrivateKey::Raw(_) => Err(KeyUnfit),
    }
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
enum PrivateKey {
    Pkcs8(Zeroizing<Vec<u8>>),
    /// `EC PRIVATE KEY` (RFC 5915) or `RSA PRIVATE KEY` (RFC 8017).
    Traditional(Zeroizing<Vec<u8>>),
    Raw(Zeroizing<Vec<u8>>),
}

impl PrivateKey {
    fn read(key: &[u8]) -> Result<PrivateKey, KeyUnfit> {
        let Some(text) = std::str::from_utf8(key)
            .ok()
            .filter(|text| text.contains("-----BEGIN "))
        else {
            return Ok(PrivateKey::Raw(Zeroizing::new(key.to_vec())));
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
            "PRIVATE KEY" => Ok(PrivateKey::Pkcs8(der)),
            "EC PRIVATE KEY" | "RSA PRIVATE KEY" => Ok(PrivateKey::Traditional(der)),
            _ => Err(KeyUnfit),
        }
    }
}
