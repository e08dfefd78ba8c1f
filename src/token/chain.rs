//! The chain of MACs that signs a token, and the ids of its links.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// A MAC, with which its holder could add caveats.
pub(crate) type MacBytes = Zeroizing<[u8; 32]>;

/// Names a token and all that was derived from it: the first half of the hash of its last MAC.
/// Says nothing of the MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrefixId([u8; 16]);

impl PrefixId {
    pub(crate) fn of(mac: &[u8; 32]) -> Self {
        let hash = Sha256::digest(mac);
        Self(std::array::from_fn(|at| hash[at]))
    }

    /// Reads the id as it is written.
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        let id = Self(u128::from_str_radix(text, 16).ok()?.to_be_bytes());
        (id.to_string() == text).then_some(id)
    }
}

/// Writes 32 hexadecimal digits.
impl fmt::Display for PrefixId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// The last MAC of an identifier and its caveats, and the id of each link.
pub(crate) fn chain<'a>(
    root: &[u8; 32],
    identifier: &[u8],
    caveats: impl Iterator<Item = &'a [u8]>,
) -> (MacBytes, Box<[PrefixId]>) {
    let mut last = mac(root, &[identifier]);
    let mut ids = vec![PrefixId::of(&last)];
    for caveat in caveats {
        last = mac(&last, &[caveat]);
        ids.push(PrefixId::of(&last));
    }
    (last, ids.into())
}

pub(crate) fn mac(key: &[u8; 32], parts: &[&[u8]]) -> MacBytes {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    Zeroizing::new(mac.finalize().into_bytes().into())
}
