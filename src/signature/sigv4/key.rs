//! Hashing, and derived keys, which sign for one day, region and service.

use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::ecdsa::EcdsaKey;
use super::{Algorithm, AmzDate, ClientSignature, Fault};

/// A derived key. It is never printed, copied or compared, and wiped on drop.
pub(super) enum DerivedKey {
    /// Boxed, so that moving it leaves no copy behind.
    Hmac(Box<Zeroizing<[u8; 32]>>),
    Ecdsa(Box<EcdsaKey>),
}

impl DerivedKey {
    /// The key for an algorithm, region and service, on the day of a time.
    pub(super) fn derive(
        claim: &ClientSignature,
        access_key: &str,
        secret: &[u8],
        signed_at: AmzDate,
    ) -> Result<DerivedKey, Fault> {
        if claim.algorithm == Algorithm::V4a {
            return EcdsaKey::derive(access_key, secret)
                .map(|pair| DerivedKey::Ecdsa(Box::new(pair)));
        }
        let secret = std::str::from_utf8(secret).map_err(|_| Fault::Key)?;
        let derived =
            generate_signing_key(secret, signed_at.time(), claim.region(), &claim.service);
        let mut key = Box::new(Zeroizing::new([0; 32]));
        if derived.as_ref().len() != key.len() {
            return Err(Fault::Key);
        }
        key.copy_from_slice(derived.as_ref());
        Ok(DerivedKey::Hmac(key))
    }

    /// The signature of a string to sign, in hexadecimal.
    pub(super) fn sign(&self, text: &[u8]) -> Result<String, Fault> {
        match self {
            DerivedKey::Hmac(key) => Ok(calculate_signature(&key[..], text)),
            DerivedKey::Ecdsa(pair) => pair
                .sign(text)
                .map(|signature| base16ct::lower::encode_string(&signature)),
        }
    }

    /// Whether a signature was made with this key, in time that does not depend on where it
    /// differs.
    pub(super) fn verifies(&self, text: &[u8], signature: &str) -> bool {
        match self {
            DerivedKey::Hmac(key) => {
                let own = calculate_signature(&key[..], text);
                own.as_bytes().ct_eq(signature.as_bytes()).into()
            }
            DerivedKey::Ecdsa(pair) => base16ct::mixed::decode_vec(signature)
                .is_ok_and(|signature| pair.verifies(text, &signature)),
        }
    }
}

/// Incremental SHA-256.
pub(super) struct Hasher(aws_lc_rs::digest::Context);

impl Hasher {
    pub(super) fn new() -> Self {
        Self(aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> String {
        base16ct::lower::encode_string(self.0.finish().as_ref())
    }
}

/// The SHA-256 of a text, in hexadecimal.
pub(super) fn sha256(text: &[u8]) -> String {
    base16ct::lower::encode_string(
        aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text).as_ref(),
    )
}
