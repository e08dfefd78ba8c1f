//! RSA keys made of a seed: the same seed gives the same key, which no library's generator does.
//!
//! They are for phantoms alone. Such a key must load in every client and must not be guessed by
//! another session; it never guards anything of its own, and its arithmetic takes no care to run in
//! constant time.

use num_bigint::BigUint;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The numbers of a key (RFC 8017 §A.1.2) in their order, after the version, each as bytes with the
/// highest first.
pub(super) type Numbers = [Vec<u8>; 8];

/// A key whose modulus has so many bits: a multiple of 128. There is one for every seed.
pub(super) fn key_of_seed(bits: usize, seed: &[u8; 32]) -> Option<Numbers> {
    let mut stream = Stream {
        seed: Zeroizing::new(*seed),
        drawn: 0,
    };
    let one = prime(bits / 2, &mut stream);
    let mut two = prime(bits / 2, &mut stream);
    while two == one {
        two = prime(bits / 2, &mut stream);
    }
    // As the generators of OpenSSL have it.
    let (p, q) = if two < one { (one, two) } else { (two, one) };
    let (p_less, q_less) = (&p - 1_u32, &q - 1_u32);
    let exponent = BigUint::from(EXPONENT);
    let numbers = [
        &p * &q,
        exponent.clone(),
        exponent.modinv(&(&p_less * &q_less))?,
        p.clone(),
        q.clone(),
        exponent.modinv(&p_less)?,
        exponent.modinv(&q_less)?,
        q.modinv(&p)?,
    ];
    Some(numbers.map(|number| number.to_bytes_be()))
}

/// A prime of so many bits, the two highest of which are set: the product of two such has all its
/// bits (FIPS 186-5 §A.1.3).
fn prime(bits: usize, stream: &mut Stream) -> BigUint {
    let small = small_primes();
    loop {
        let mut start = stream.number(bits);
        for at in [0, bits - 1, bits - 2] {
            start.set_bit(at as u64, true);
        }
        let rests: Vec<u64> = small
            .iter()
            .map(|small| remainder(&start, *small))
            .collect();
        let rest = remainder(&start, EXPONENT);
        for step in (0..LONGEST_SEARCH).step_by(2) {
            let sieved = small
                .iter()
                .zip(&rests)
                .any(|(small, rest)| (rest + step) % small == 0);
            // e must have an inverse modulo p - 1.
            if sieved || (rest + step) % EXPONENT == 1 {
                continue;
            }
            let candidate = &start + step;
            if candidate.bits() > bits as u64 {
                break;
            }
            if is_prime(&candidate) {
                return candidate;
            }
        }
    }
}

/// Miller and Rabin's test. The candidates are drawn, not chosen by an adversary, so that a few
/// bases are plenty.
fn is_prime(candidate: &BigUint) -> bool {
    let less = candidate - 1_u32;
    let twos = less.trailing_zeros().unwrap_or_default();
    let odd = &less >> twos;
    let one = BigUint::from(1_u32);
    BASES.iter().all(|base| {
        let mut power = BigUint::from(*base).modpow(&odd, candidate);
        if power == one || power == less {
            return true;
        }
        (1..twos).any(|_| {
            power = &power * &power % candidate;
            power == less
        })
    })
}

fn remainder(number: &BigUint, divisor: u64) -> u64 {
    (number % divisor)
        .iter_u64_digits()
        .next()
        .unwrap_or_default()
}

fn small_primes() -> Vec<u64> {
    let mut primes: Vec<u64> = Vec::new();
    for candidate in (3..LARGEST_SMALL).step_by(2) {
        let mut divisors = primes
            .iter()
            .take_while(|prime| *prime * *prime <= candidate);
        if divisors.all(|prime| candidate % prime != 0) {
            primes.push(candidate);
        }
    }
    primes
}

/// An endless row of bytes: SHA-256 of the seed and a count.
struct Stream {
    seed: Zeroizing<[u8; 32]>,
    drawn: u64,
}

impl Stream {
    /// A number below 2^`bits`; `bits` is a multiple of eight.
    fn number(&mut self, bits: usize) -> BigUint {
        let mut bytes = Zeroizing::new(Vec::with_capacity(bits / 8 + 32));
        while bytes.len() < bits / 8 {
            let block = Sha256::new()
                .chain_update(DOMAIN)
                .chain_update(&self.seed[..])
                .chain_update(self.drawn.to_be_bytes())
                .finalize();
            self.drawn += 1;
            bytes.extend_from_slice(&block);
        }
        BigUint::from_bytes_be(&bytes[..bits / 8])
    }
}

/// The public exponent that everybody uses; a prime.
const EXPONENT: u64 = 65_537;
/// How far from a drawn number a prime is looked for, before another is drawn.
const LONGEST_SEARCH: u64 = 1 << 14;
/// Candidates with a divisor below this are not tested further.
const LARGEST_SMALL: u64 = 1 << 14;
const BASES: [u32; 8] = [2, 3, 5, 7, 11, 13, 17, 19];
const DOMAIN: &[u8] = b"gateway phantom rsa v1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_are_told_from_other_numbers() {
        // 2^127 - 1, 2^128 - 159 and 2^128 - 173 are primes.
        for prime in [u128::MAX >> 1, u128::MAX - 158, u128::MAX - 172] {
            assert!(is_prime(&BigUint::from(prime)), "{prime}");
        }
        // Odd, and products of primes of about the same size; 2^67 - 1 is Cole's.
        for other in [(1 << 67) - 1, u128::MAX, u128::MAX - 160, u128::MAX - 174] {
            assert!(!is_prime(&BigUint::from(other)), "{other}");
        }
    }

    #[test]
    fn the_numbers_of_a_key_belong_together() {
        let numbers = key_of_seed(512, &[7; 32]).unwrap();
        let [n, e, d, p, q, dp, dq, inverse] = numbers
            .each_ref()
            .map(|bytes| BigUint::from_bytes_be(bytes));
        let one = BigUint::from(1_u32);
        assert_eq!(n, &p * &q);
        assert!(q < p && p.bits() == 256 && q.bits() == 256 && n.bits() == 512);
        let (p_less, q_less) = (&p - 1_u32, &q - 1_u32);
        assert_eq!(&e * d % (&p_less * &q_less), one);
        assert_eq!(&e * dp % p_less, one);
        assert_eq!(&e * dq % q_less, one);
        assert_eq!(q * inverse % p, one);
    }

    #[test]
    fn one_seed_gives_one_key_and_another_another() {
        let key = key_of_seed(512, &[7; 32]);
        assert_eq!(key, key_of_seed(512, &[7; 32]));
        assert_ne!(key, key_of_seed(512, &[8; 32]));
    }
}
