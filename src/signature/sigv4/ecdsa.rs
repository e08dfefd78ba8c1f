//! SigV4a's keys: a P-256 key pair that client and service both derive from the secret key.

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeLess as _};
use zeroize::Zeroizing;

use super::Fault;

/// A derived key pair. The library wipes the private half on drop.
pub(super) struct EcdsaKey {
    private: EcdsaKeyPair,
    public: Box<[u8]>,
}

impl EcdsaKey {
    /// Derives the key: NIST SP 800-108 in counter mode over HMAC-SHA256, until the number is a
    /// P-256 scalar. The secret is never the key itself.
    ///
    /// AWS has not published a specification; this follows `aws-c-auth` (`key_derivation.c`), and
    /// the result is tested against AWS's own code.
    pub(super) fn derive(access_key: &str, secret: &[u8]) -> Result<EcdsaKey, Fault> {
        let mut input = Zeroizing::new(Vec::with_capacity(5 + secret.len()));
        input.extend_from_slice(b"AWS4A");
        input.extend_from_slice(secret);
        let mac_key = hmac::Key::new(hmac::HMAC_SHA256, &input);
        for counter in 1..=254_u8 {
            let mut mac = hmac::Context::with_key(&mac_key);
            mac.update(&1_u32.to_be_bytes());
            mac.update(b"AWS4-ECDSA-P256-SHA256\0");
            mac.update(access_key.as_bytes());
            mac.update(&[counter]);
            mac.update(&256_u32.to_be_bytes());
            let mut scalar = Zeroizing::new([0; 32]);
            scalar.copy_from_slice(mac.sign().as_ref());
            if bool::from(is_above(&scalar, &ORDER_LESS_2)) {
                continue;
            }
            increment(&mut scalar);
            return EcdsaKey::of(&scalar);
        }
        Err(Fault::Key)
    }

    fn of(scalar: &[u8; 32]) -> Result<EcdsaKey, Fault> {
        let exchange = PrivateKey::from_private_key(&ECDH_P256, scalar).map_err(|_| Fault::Key)?;
        let public = exchange.compute_public_key().map_err(|_| Fault::Key)?;
        let private = EcdsaKeyPair::from_private_key_and_public_key(
            &ECDSA_P256_SHA256_ASN1_SIGNING,
            scalar,
            public.as_ref(),
        );
        Ok(EcdsaKey {
            private: private.map_err(|_| Fault::Key)?,
            public: public.as_ref().into(),
        })
    }

    /// The signature in DER.
    pub(super) fn sign(&self, text: &[u8]) -> Result<Vec<u8>, Fault> {
        let signature = self.private.sign(&SystemRandom::new(), text);
        signature
            .map(|s| s.as_ref().to_vec())
            .map_err(|_| Fault::Key)
    }

    pub(super) fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.public)
            .verify(text, signature)
            .is_ok()
    }
}

/// Whether one big-endian number is greater than another, in constant time.
fn is_above(number: &[u8; 32], bound: &[u8; 32]) -> Choice {
    let (mut above, mut below) = (Choice::from(0), Choice::from(0));
    for (a, b) in number.iter().zip(bound) {
        above |= b.ct_lt(a) & !below;
        below |= a.ct_lt(b) & !above;
    }
    above
}

/// Adds one; the carry always runs through all bytes.
fn increment(number: &mut [u8; 32]) {
    let mut carry = Choice::from(1);
    for byte in number.iter_mut().rev() {
        let more = byte.wrapping_add(1);
        *byte = u8::conditional_select(byte, &more, carry);
        carry &= subtle::ConstantTimeEq::ct_eq(byte, &0);
    }
}

/// The order of P-256 (NIST SP 800-186 §3.2.1.3) minus two, big-endian.
const ORDER_LESS_2: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6,
    0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x4f,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The public keys that the tests of `aws-c-auth` publish for two example credentials.
    #[test]
    fn the_derived_key_pairs_are_the_published_ones() {
        for (access_key, secret, public) in [
            (
                "AKIDEXAMPLE",
                &b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"[..],
                "04b6618f6a65740a99e650b33b6b4b5bd0d43b176d721a3edfea7e7d2d56d936b1\
                 865ed22a7eadc9c5cb9d2cbaca1b3699139fedc5043dc6661864218330c8e518",
            ),
            (
                "AKIAIOSFODNN7EXAMPLE",
                b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                "0418b7d04643359f6ec270dcbab8dce6d169d66ddc9778c75cfb08dfdb701637ab\
                 fa36b35e4fe67e3112261d2e17a956ef85b06e44712d2850bcd3c2161e9993f2",
            ),
        ] {
            assert_eq!(
                base16ct::lower::encode_string(
                    &EcdsaKey::derive(access_key, secret).unwrap().public
                ),
                public
            );
        }
    }

    #[test]
    fn numbers_are_compared_and_counted_in_all_their_bytes() {
        let number = |last: [u8; 2]| {
            let mut bytes = [0xff; 32];
            bytes[30..].copy_from_slice(&last);
            bytes
        };
        assert!(bool::from(is_above(&number([1, 0]), &number([0, 0xff]))));
        assert!(!bool::from(is_above(&number([0, 0xff]), &number([1, 0]))));
        assert!(!bool::from(is_above(&ORDER_LESS_2, &ORDER_LESS_2)));
        let mut counted = number([0, 0xff]);
        increment(&mut counted);
        assert_eq!(counted, number([1, 0]));
        let mut low = [0; 32];
        low[0] = 1;
        assert!(bool::from(is_above(&low, &[0; 32])));
    }
}
