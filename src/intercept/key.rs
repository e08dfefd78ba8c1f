//! A P-256 key. It leaves the memory of AWS-LC only to be sealed with its session's record.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};
use zeroize::Zeroizing;

/// An ECDSA key on P-256.
///
/// The scalar stays inside AWS-LC, which overwrites every block of memory that it frees. Only
/// [`Key::pkcs8`] returns it, for a CA that outlives the process.
#[derive(Clone)]
pub(super) struct Key(Arc<EcdsaKeyPair>);

impl Key {
    /// Creates a random key; `None` if the system's random source fails.
    pub(super) fn generate() -> Option<Self> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).ok()?;
        Some(Self(Arc::new(pair)))
    }

    /// Reads a key that [`Key::pkcs8`] wrote.
    pub(super) fn read(pkcs8: &[u8]) -> Option<Self> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8).ok()?;
        Some(Self(Arc::new(pair)))
    }

    /// Returns the private key as PKCS #8.
    pub(super) fn pkcs8(&self) -> Option<Zeroizing<Vec<u8>>> {
        let document = self.0.to_pkcs8v1().ok()?;
        Some(Zeroizing::new(document.as_ref().to_vec()))
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let signature = self.0.sign(&SystemRandom::new(), message).ok()?;
        Some(signature.as_ref().to_vec())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(P-256)")
    }
}

/// The issuer's side: signs certificates.
impl rcgen::PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl rcgen::SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Key::sign(self, message).ok_or(rcgen::Error::RemoteKeyError)
    }
}

/// The server's side: signs handshakes.
impl SigningKey for Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered
            .contains(&SignatureScheme::ECDSA_NISTP256_SHA256)
            .then(|| Box::new(self.clone()) as Box<dyn Signer>)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl Signer for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Key::sign(self, message).ok_or_else(|| rustls::Error::General("signing failed".into()))
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ECDSA_NISTP256_SHA256
    }
}
