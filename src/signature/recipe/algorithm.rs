//! Algorithms by the names that descriptions use.

use super::hash::MacHash;

/// The algorithm that signs a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// HMAC; client and service hold the same key.
    Hmac(MacHash),
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

impl Algorithm {
    pub(super) fn named(name: &str) -> Option<Algorithm> {
        Some(match name {
            "ed25519" => Algorithm::Ed25519,
            "ecdsa-p256-sha256" => Algorithm::EcdsaP256,
            "ecdsa-p384-sha384" => Algorithm::EcdsaP384,
            "rsa-pss-sha512" => Algorithm::RsaPssSha512,
            "rsa-pkcs1-sha256" => Algorithm::RsaPkcs1Sha256,
            mac => Algorithm::Hmac(MacHash::named(mac)?),
        })
    }
}
