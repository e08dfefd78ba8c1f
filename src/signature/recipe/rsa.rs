//! RSA keys derived from a seed: the same seed gives the same key, unlike AWS-LC's generator.
//!
//! They are for phantoms alone. Such a key must load in every client, and another session must not
//! guess it; it never protects anything else.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use crypto_bigint::{BoxedUint, ConcatenatingMul, Limb, NonZero, Resize};
use crypto_primes::hazmat::{SetBits, SmallFactorsSieveFactory};
use crypto_primes::{Flavor, is_prime, sieve_and_find};

/// The numbers of a key (RFC 8017 §A.1.2) in their order, after the version, each as bytes with the
/// highest first.
pub(super) type Numbers = [Box<[u8]>; 8];

/// Derives a key whose modulus has this many bits: a multiple of 128.
///
/// `None` for the rare seed that gives no key.
pub(super) fn key_of_seed(bits: usize, seed: &[u8; 32]) -> Option<Numbers> {
    let bits = u32::try_from(bits).ok()?;
    let mut rng = ChaCha20Rng::from_seed(*seed);
    let (one, other) = (prime(bits / 2, &mut rng)?, prime(bits / 2, &mut rng)?);
    // In the order of OpenSSL's generator.
    let (p, q) = if other < one {
        (one, other)
    } else {
        (other, one)
    };
    let (p_less, q_less) = (less_one(&p)?, less_one(&q)?);
    let exponent = BoxedUint::from(EXPONENT).resize(bits);
    let totient = NonZero::new(p_less.as_ref().concatenating_mul(q_less.as_ref())).into_option()?;
    let private = exponent.invert_mod(&totient).into_option()?;
    let numbers = [
        p.concatenating_mul(&q),
        exponent,
        private.clone(),
        p.clone(),
        q.clone(),
        private.rem(&p_less),
        private.rem(&q_less),
        q.invert_odd_mod(&p.to_odd().into_option()?).into_option()?,
    ];
    Some(numbers.map(|number| number.to_be_bytes_trimmed_vartime()))
}

/// A prime of this many bits, the two highest of which are set, so that the product of two has full
/// length (FIPS 186-5 §A.1.3).
fn prime(bits: u32, rng: &mut ChaCha20Rng) -> Option<BoxedUint> {
    let sieve = SmallFactorsSieveFactory::new(Flavor::Any, bits, SetBits::TwoMsb).ok()?;
    let exponent = NonZero::new(Limb::from(EXPONENT)).into_option()?;
    // The exponent must have an inverse modulo p - 1.
    let fits = |_: &mut ChaCha20Rng, candidate: &BoxedUint| {
        candidate.rem_limb(exponent) != Limb::ONE && is_prime(Flavor::Any, candidate)
    };
    sieve_and_find(rng, sieve, fits).ok()?
}

fn less_one(number: &BoxedUint) -> Option<NonZero<BoxedUint>> {
    NonZero::new(number.wrapping_sub(BoxedUint::one())).into_option()
}

/// The usual public exponent, a prime.
const EXPONENT: u64 = 65_537;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_key_belong_together() {
        let numbers = key_of_seed(512, &[7; 32]).unwrap();
        let [n, e, d, p, q, dp, dq, inverse] = numbers
            .each_ref()
            .map(|bytes| BoxedUint::from_be_slice(bytes, 512).unwrap());
        let nonzero = |number: &BoxedUint| NonZero::new(number.clone()).unwrap();
        let product = |a: &BoxedUint, b: &BoxedUint, modulus: &BoxedUint| {
            a.concatenating_mul(b).rem(&nonzero(modulus))
        };
        assert_eq!(n, p.wrapping_mul(&q));
        assert!(q < p && p.bits() == 256 && q.bits() == 256 && n.bits() == 512);
        let one = BoxedUint::one_with_precision(512);
        let (p_less, q_less) = (p.wrapping_sub(&one), q.wrapping_sub(&one));
        assert_eq!(product(&e, &d, &p_less.wrapping_mul(&q_less)), one);
        assert_eq!(product(&e, &dp, &p_less), one);
        assert_eq!(product(&e, &dq, &q_less), one);
        assert_eq!(product(&q, &inverse, &p), one);
    }

    #[test]
    fn one_seed_gives_one_key_and_another_another() {
        let key = key_of_seed(512, &[7; 32]);
        assert_eq!(key, key_of_seed(512, &[7; 32]));
        assert_ne!(key, key_of_seed(512, &[8; 32]));
    }
}
