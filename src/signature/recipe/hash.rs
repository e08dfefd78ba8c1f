//! Hashes and HMAC, by the names that descriptions use.

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use serde::Deserialize;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::name::named_variant;

/// A hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Hash {
    /// For content alone: it is broken, so no MAC is made with it.
    Md5,
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MacHash {
    /// Broken as a hash, sound inside HMAC (RFC 6194 §3.3); services still ask for it.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl MacHash {
    /// The hash of `hmac-NAME`.
    pub(super) fn named(name: &str) -> Option<MacHash> {
        named_variant(name.strip_prefix("hmac-")?)
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
