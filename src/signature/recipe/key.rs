//! Private keys as they are kept: the kind and encoding of each, and a phantom key of the same kind
//! and encoding.

use aws_lc_rs::agreement::{ECDH_P256, ECDH_P384, PrivateKey};
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair};
use pkcs8::der::asn1::{BitStringRef, OctetStringRef, UintRef};
use pkcs8::der::{Decode as _, Encode as _};
use pkcs8::{AlgorithmIdentifierRef, ObjectIdentifier, PrivateKeyInfoRef};
use sec1::{EcParameters, EcPrivateKey};
use sha2::{Digest as _, Sha384};
use zeroize::Zeroizing;

use super::algorithm::Algorithm;
use super::key_fault::KeyFault;
use super::keytext::{Bytes, Coding};
use super::rsa;

/// The kind and encoding of a private key, without its value: enough to read it, and to make
/// another of the same form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyForm {
    kind: KeyKind,
    frame: Frame,
    coding: Coding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Ed25519,
    P256,
    P384,
    Rsa { bits: usize },
}

impl KeyKind {
    fn name(self) -> &'static str {
        match self {
            KeyKind::Ed25519 => "an Ed25519 key",
            KeyKind::P256 => "an ECDSA key of the curve P-256",
            KeyKind::P384 => "an ECDSA key of the curve P-384",
            KeyKind::Rsa { .. } => "an RSA key",
        }
    }
}

/// How the key's bytes are arranged.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Frame {
    /// PKCS #8 (RFC 5958), with its algorithm identifier as written. Its version 2 also has the
    /// public key.
    Pkcs8 { algorithm: Vec<u8>, public: bool },
    /// RFC 5915.
    Sec1,
    /// RFC 8017 §A.1.2.
    Pkcs1,
    /// The 32 bytes of Ed25519 (RFC 8032 §5.1.5).
    Seed,
    /// The seed and then the public key, as libsodium and Go store them.
    Pair,
}

/// A parsed private key.
pub(super) enum SigningKey {
    Ed25519(Ed25519KeyPair),
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl SigningKey {
    /// Reads a key that is kept as text, for an algorithm.
    pub(super) fn read(algorithm: Algorithm, text: &[u8]) -> Result<SigningKey, KeyFault> {
        Ok(read(algorithm, text)?.1)
    }
}

impl KeyForm {
    /// The form of a text that must be a key with which the algorithm signs.
    ///
    /// # Errors
    /// [`KeyFault`] by cause.
    pub fn of(algorithm: Algorithm, text: &[u8]) -> Result<KeyForm, KeyFault> {
        let form = read(algorithm, text)?.0;
        match form.kind {
            KeyKind::Rsa { bits } if !RSA_BITS.contains(&bits) => Err(KeyFault::Size(bits)),
            _ => Ok(form),
        }
    }

    /// Whether a text has PEM's marks, which no other secret has.
    pub fn is_pem(text: &[u8]) -> bool {
        memchr::memmem::find(text, b"-----BEGIN ").is_some()
    }

    /// The algorithm that signs with the private key in a text, by the kind of the key.
    ///
    /// # Errors
    /// [`KeyFault`] by cause.
    pub fn algorithm(text: &[u8]) -> Result<Algorithm, KeyFault> {
        let (coding, bytes) = Coding::read(text)?;
        let (kind, _, _) = arranged(&coding, &bytes)?;
        Ok(match kind {
            KeyKind::Ed25519 => Algorithm::Ed25519,
            KeyKind::P256 => Algorithm::EcdsaP256,
            KeyKind::P384 => Algorithm::EcdsaP384,
            KeyKind::Rsa { .. } => Algorithm::RsaPkcs1Sha256,
        })
    }

    /// Derives a phantom key of this form from a seed: it signs, but gives no access. The same seed
    /// gives the same key.
    ///
    /// `None` for the rare seed that gives no key. RSA's primes are searched for, which takes a
    /// moment.
    pub fn phantom(&self, seed: &[u8; 32]) -> Option<Zeroizing<String>> {
        let bytes = match self.kind {
            KeyKind::Ed25519 => self.framed_ed25519(seed)?,
            KeyKind::P256 | KeyKind::P384 => self.framed_ec(seed)?,
            KeyKind::Rsa { bits } => {
                let numbers = rsa::key_of_seed(bits, seed)?;
                let version: &[u8] = &[0];
                let members: Vec<UintRef<'_>> = std::iter::once(version)
                    .chain(numbers.iter().map(|number| &number[..]))
                    .map(UintRef::new)
                    .collect::<Result<_, _>>()
                    .ok()?;
                self.in_frame(Zeroizing::new(members.to_der().ok()?), None)?
            }
        };
        Some(self.coding.write(&bytes))
    }

    fn framed_ed25519(&self, seed: &[u8; 32]) -> Option<Bytes> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        let public = pair.public_key().as_ref();
        match self.frame {
            Frame::Seed => Some(Zeroizing::new(seed.to_vec())),
            Frame::Pair => Some(Zeroizing::new([&seed[..], public].concat())),
            // RFC 8410 §7: the key is an octet string of its own.
            _ => {
                let key = OctetStringRef::new(seed).and_then(|seed| seed.to_der());
                self.in_frame(Zeroizing::new(key.ok()?), Some(public))
            }
        }
    }

    /// RFC 5915 §3. Names the curve, unless the frame around the key does.
    fn framed_ec(&self, seed: &[u8; 32]) -> Option<Bytes> {
        let (algorithm, curve, scalar) = match self.kind {
            KeyKind::P384 => (
                &ECDH_P384,
                P384,
                Zeroizing::new(Sha384::digest(seed).to_vec()),
            ),
            _ => (&ECDH_P256, P256, Zeroizing::new(seed.to_vec())),
        };
        let key = PrivateKey::from_private_key(algorithm, &scalar).ok()?;
        let point = key.compute_public_key().ok()?;
        let key = EcPrivateKey {
            private_key: &scalar,
            parameters: (self.frame == Frame::Sec1).then_some(EcParameters::NamedCurve(curve)),
            public_key: Some(point.as_ref()),
        };
        self.in_frame(Zeroizing::new(key.to_der().ok()?), None)
    }

    fn in_frame(&self, key: Bytes, public: Option<&[u8]>) -> Option<Bytes> {
        let Frame::Pkcs8 {
            algorithm,
            public: with,
        } = &self.frame
        else {
            return Some(key);
        };
        let public = public.filter(|_| *with).map(BitStringRef::from_bytes);
        let whole = PrivateKeyInfoRef {
            algorithm: AlgorithmIdentifierRef::from_der(algorithm).ok()?,
            private_key: OctetStringRef::new(&key).ok()?,
            public_key: public.transpose().ok()?,
        };
        Some(Zeroizing::new(whole.to_der().ok()?))
    }
}

/// Reads a key and its form. Refuses a key with which the algorithm does not sign.
fn read(algorithm: Algorithm, text: &[u8]) -> Result<(KeyForm, SigningKey), KeyFault> {
    let (coding, bytes) = Coding::read(text)?;
    let (kind, frame, inner) = arranged(&coding, &bytes)?;
    let key = match (algorithm, kind) {
        (Algorithm::Ed25519, KeyKind::Ed25519) => SigningKey::Ed25519(ed25519(&frame, &bytes)?),
        (Algorithm::EcdsaP256, KeyKind::P256) => SigningKey::Ecdsa(ecdsa(
            &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            &frame,
            &bytes,
        )?),
        (Algorithm::EcdsaP384, KeyKind::P384) => SigningKey::Ecdsa(ecdsa(
            &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
            &frame,
            &bytes,
        )?),
        (Algorithm::RsaPssSha512 | Algorithm::RsaPkcs1Sha256, KeyKind::Rsa { bits }) => {
            if !(RSA_BITS[0]..=RSA_BITS[2]).contains(&bits) {
                return Err(KeyFault::Size(bits));
            }
            // aws-lc reads no PKCS #8 key that is marked for PSS (RFC 4055 §1.2); the key inside is
            // the same.
            SigningKey::Rsa(RsaKeyPair::from_der(inner).map_err(|_| KeyFault::Damaged)?)
        }
        (_, kind) => {
            return Err(KeyFault::Kind {
                is: kind.name(),
                wanted: wanted(algorithm)?,
            });
        }
    };
    let form = KeyForm {
        kind,
        frame,
        coding,
    };
    Ok((form, key))
}

/// The kind of key with which an algorithm signs.
fn wanted(algorithm: Algorithm) -> Result<&'static str, KeyFault> {
    Ok(match algorithm {
        Algorithm::Ed25519 => KeyKind::Ed25519.name(),
        Algorithm::EcdsaP256 => KeyKind::P256.name(),
        Algorithm::EcdsaP384 => KeyKind::P384.name(),
        Algorithm::RsaPssSha512 | Algorithm::RsaPkcs1Sha256 => "an RSA key",
        Algorithm::Hmac(_) => return Err(KeyFault::Form),
    })
}

/// Finds the kind, the frame and the key within the frame in the bytes of a text.
fn arranged<'a>(coding: &Coding, bytes: &'a [u8]) -> Result<(KeyKind, Frame, &'a [u8]), KeyFault> {
    match coding {
        Coding::Pem { label, .. } => framed(label, bytes),
        _ if bytes.len() == 32 => Ok((KeyKind::Ed25519, Frame::Seed, bytes)),
        _ => Ok((KeyKind::Ed25519, Frame::Pair, bytes)),
    }
}

fn ed25519(frame: &Frame, bytes: &[u8]) -> Result<Ed25519KeyPair, KeyFault> {
    let pair = match frame {
        Frame::Seed => Ed25519KeyPair::from_seed_unchecked(bytes),
        // Refused if the halves do not belong together: clients that use the public half would make
        // other signatures.
        Frame::Pair => Ed25519KeyPair::from_seed_and_public_key(&bytes[..32], &bytes[32..]),
        _ => Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes),
    };
    pair.map_err(|_| KeyFault::Damaged)
}

fn ecdsa(
    algorithm: &'static signature::EcdsaSigningAlgorithm,
    frame: &Frame,
    der: &[u8],
) -> Result<EcdsaKeyPair, KeyFault> {
    let pair = match frame {
        Frame::Sec1 => EcdsaKeyPair::from_private_key_der(algorithm, der),
        _ => EcdsaKeyPair::from_pkcs8(algorithm, der),
    };
    pair.map_err(|_| KeyFault::Damaged)
}

/// Finds the kind, the frame and the key within the frame in a PEM block with this label.
fn framed<'a>(label: &str, der: &'a [u8]) -> Result<(KeyKind, Frame, &'a [u8]), KeyFault> {
    match label {
        "EC PRIVATE KEY" => {
            let key = EcPrivateKey::from_der(der).map_err(|_| KeyFault::Damaged)?;
            let named = key.parameters.and_then(EcParameters::named_curve);
            let kind = match (named, key.private_key.len()) {
                (Some(named), _) => curve(named)?,
                (None, 32) => KeyKind::P256,
                (None, 48) => KeyKind::P384,
                (None, _) => return Err(KeyFault::Damaged),
            };
            Ok((kind, Frame::Sec1, der))
        }
        "RSA PRIVATE KEY" => Ok((rsa_kind(der)?, Frame::Pkcs1, der)),
        _ => pkcs8(der),
    }
}

fn pkcs8(der: &[u8]) -> Result<(KeyKind, Frame, &[u8]), KeyFault> {
    let damaged = |_| KeyFault::Damaged;
    let key = PrivateKeyInfoRef::from_der(der).map_err(damaged)?;
    let inner = key.private_key.as_bytes();
    let kind = match key.algorithm.oid {
        ED25519 => KeyKind::Ed25519,
        EC => curve(
            key.algorithm
                .parameters_oid()
                .map_err(|_| KeyFault::Damaged)?,
        )?,
        RSA | RSA_PSS => rsa_kind(inner)?,
        _ => {
            return Err(KeyFault::Kind {
                is: "a key of a kind that signs nothing here",
                wanted: "an Ed25519, ECDSA or RSA key",
            });
        }
    };
    let frame = Frame::Pkcs8 {
        algorithm: key.algorithm.to_der().map_err(damaged)?,
        public: key.public_key.is_some() && kind == KeyKind::Ed25519,
    };
    Ok((kind, frame, inner))
}

fn curve(named: ObjectIdentifier) -> Result<KeyKind, KeyFault> {
    match named {
        P256 => Ok(KeyKind::P256),
        P384 => Ok(KeyKind::P384),
        _ => Err(KeyFault::Kind {
            is: "an ECDSA key of another curve",
            wanted: "one of P-256 or P-384",
        }),
    }
}

/// RFC 8017 §A.1.2: the modulus is the second of the numbers.
fn rsa_kind(der: &[u8]) -> Result<KeyKind, KeyFault> {
    let numbers = Vec::<UintRef<'_>>::from_der(der).map_err(|_| KeyFault::Damaged)?;
    let modulus = numbers.get(1).ok_or(KeyFault::Damaged)?.as_bytes();
    let zeros = modulus.first().map_or(0, |byte| byte.leading_zeros());
    Ok(KeyKind::Rsa {
        bits: modulus.len() * 8 - zeros as usize,
    })
}

/// RFC 8410 §3, RFC 5480 §2.1.1, RFC 8017 §A.1, RFC 4055 §3.1.
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const RSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
/// The accepted sizes of RSA keys, in bits: those that services require.
const RSA_BITS: [usize; 3] = [2048, 3072, 4096];

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Algorithm {
        Algorithm::named(name).unwrap()
    }

    /// Keys that OpenSSL made (`openssl genpkey`, `ecparam`, `genrsa -traditional`), which sign
    /// nothing real.
    fn kept() -> Vec<(Algorithm, String)> {
        let text = include_str!("../../../tests/signing_recipes/keys.json");
        let found: std::collections::BTreeMap<String, (String, String)> =
            serde_json::from_str(text).unwrap();
        found
            .into_values()
            .map(|(algorithm, key)| (named(&algorithm), key))
            .collect()
    }

    #[test]
    fn a_phantom_has_the_form_of_its_key_and_signs() {
        assert!(kept().len() >= 12);
        for (algorithm, key) in kept() {
            let form = KeyForm::of(algorithm, key.as_bytes())
                .unwrap_or_else(|fault| panic!("{fault}: {key}"));
            let phantom = form.phantom(&[7; 32]).unwrap();
            // A text without `+`, `/`, `-` and `_` is base64 of either alphabet.
            let again = KeyForm::of(algorithm, phantom.as_bytes()).unwrap();
            assert_eq!((again.kind, again.frame), (form.kind, form.frame));
            // Numbers of RSA may be a byte shorter; else length and lines are the same.
            assert_eq!(phantom.lines().count(), key.lines().count(), "{key}");
            assert!(phantom.len().abs_diff(key.len()) <= 8, "{key}");
            let signature = algorithm.sign(phantom.as_bytes(), b"text").unwrap();
            assert_eq!(
                algorithm.verify(phantom.as_bytes(), b"text", &signature),
                Ok(true)
            );
            assert_eq!(
                algorithm.verify(phantom.as_bytes(), b"texts", &signature),
                Ok(false)
            );
            assert_eq!(
                algorithm.verify(key.as_bytes(), b"text", &signature),
                Ok(false)
            );
        }
    }

    #[test]
    fn another_seed_gives_another_key_and_one_beyond_the_curve_none() {
        for (algorithm, key) in kept() {
            let form = KeyForm::of(algorithm, key.as_bytes()).unwrap();
            // The test of their generation shows it for RSA keys.
            if !matches!(form.kind, KeyKind::Rsa { .. }) {
                assert_eq!(
                    *form.phantom(&[7; 32]).unwrap(),
                    *form.phantom(&[7; 32]).unwrap()
                );
                assert_ne!(
                    *form.phantom(&[7; 32]).unwrap(),
                    *form.phantom(&[8; 32]).unwrap()
                );
            }
            if form.kind == KeyKind::P256 {
                assert!(
                    form.phantom(&[0xff; 32]).is_none(),
                    "beyond the order of the curve"
                );
            }
        }
    }

    #[test]
    fn no_changed_key_makes_a_panic() {
        for (algorithm, key) in kept() {
            // RSA keys are slow to check.
            let step = if key.len() > 1000 { 29 } else { 1 };
            for at in (0..key.len()).step_by(step) {
                let mut changed = key.clone().into_bytes();
                changed[at] ^= 1;
                let _ = KeyForm::of(algorithm, &changed);
                let _ = KeyForm::of(algorithm, &key.as_bytes()[..at]);
            }
        }
    }

    #[test]
    fn what_is_no_key_of_the_kind_is_refused_by_cause_and_never_shown() {
        let block = |label: &str| {
            format!("-----BEGIN {label}-----\nQ0FOQVJZQ0FOQVJZ\n-----END {label}-----\n")
        };
        let kept = kept();
        let of = |kind: &str| {
            let fits = |(algorithm, text): &&(Algorithm, String)| {
                *algorithm == named(kind) && text.contains("BEGIN PRIVATE")
            };
            kept.iter().find(fits).unwrap().1.clone()
        };
        let (ed, p256) = (of("ed25519"), of("ecdsa-p256-sha256"));
        let cut = ed.replacen("MC4C", "MC5C", 1);
        let kind = |is, wanted| KeyFault::Kind { is, wanted };
        let twice = format!("{ed}{ed}");
        for (algorithm, text, fault) in [
            ("ed25519", "CANARYCANARYCANARYCANARYCANARY", KeyFault::Form),
            ("ed25519", "", KeyFault::Form),
            (
                "rsa-pss-sha512",
                &"aa".repeat(32),
                kind("an Ed25519 key", "an RSA key"),
            ),
            (
                "ed25519",
                &block("ENCRYPTED PRIVATE KEY"),
                KeyFault::Encrypted,
            ),
            ("ed25519", &block("OPENSSH PRIVATE KEY"), KeyFault::OpenSsh),
            ("ed25519", &block("PUBLIC KEY"), KeyFault::Public),
            ("ed25519", &block("CERTIFICATE"), KeyFault::Public),
            ("ed25519", &block("PRIVATE KEY"), KeyFault::Damaged),
            ("ed25519", &block("DSA PRIVATE KEY"), KeyFault::Form),
            ("ed25519", &twice, KeyFault::Several),
            ("ed25519", &cut, KeyFault::Damaged),
            (
                "ed25519",
                &p256,
                kind("an ECDSA key of the curve P-256", "an Ed25519 key"),
            ),
            (
                "ecdsa-p384-sha384",
                &p256,
                kind(
                    "an ECDSA key of the curve P-256",
                    "an ECDSA key of the curve P-384",
                ),
            ),
            (
                "rsa-pkcs1-sha256",
                &ed,
                kind("an Ed25519 key", "an RSA key"),
            ),
            ("hmac-sha256", &ed, KeyFault::Form),
        ] {
            let found = KeyForm::of(named(algorithm), text.as_bytes()).err();
            assert_eq!(found.as_ref(), Some(&fault), "{algorithm}");
            assert!(!format!("{fault} {fault:?}").contains("CANARY"));
        }
        // The halves of a pair must belong together.
        let halves = format!("{}{}", "aa".repeat(32), "bb".repeat(32));
        assert_eq!(
            KeyForm::of(Algorithm::Ed25519, halves.as_bytes()),
            Err(KeyFault::Damaged)
        );
    }
}
