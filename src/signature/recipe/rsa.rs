//! RSA keys made of a seed: the same seed gives the same key, which no library's generator does.
//!
//! They are for phantoms alone. Such a key must load in every client and must not be guessed by another session; it never
//! guards anything of its own, and its arithmetic takes no care to run in constant time.

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The numbers of a key (RFC 8017 §A.1.2) in their order, after the version, each as bytes with the highest first.
pub(super) type Numbers = [Zeroizing<Vec<u8>>; 8];

/// Limbs of a number, the lowest first.
type Limbs = Zeroizing<Vec<u64>>;

/// A key whose modulus has so many bits: a multiple of 128.
pub(super) fn key_of_seed(bits: usize, seed: &[u8; 32]) -> Numbers {
    let mut stream = Stream {
        seed: Zeroizing::new(*seed),
        drawn: 0,
    };
    let limbs = bits / 128;
    let one = prime(limbs, &mut stream);
    let mut two = prime(limbs, &mut stream);
    while *two == *one {
        two = prime(limbs, &mut stream);
    }
    // The coefficient below rests on q being the smaller.
    let (p, q) = if is_less(&two, &one) {
        (one, two)
    } else {
        (two, one)
    };
    let (p_less, q_less) = (minus(&p, 1), minus(&q, 1));
    let coefficient = {
        let field = Field::new(&p);
        // Fermat: the inverse of q modulo the prime p is its power p - 2.
        let power = field.power(&Base::Number(&field.inside(&q)), &minus(&p, 2));
        field.outside(&power)
    };
    let bytes = |number: &[u64]| {
        Zeroizing::new(
            number
                .iter()
                .rev()
                .flat_map(|limb| limb.to_be_bytes())
                .collect::<Vec<u8>>(),
        )
    };
    [
        bytes(&product(&p, &q)),
        bytes(&[EXPONENT]),
        bytes(&inverse(&product(&p_less, &q_less))),
        bytes(&p),
        bytes(&q),
        bytes(&inverse(&p_less)),
        bytes(&inverse(&q_less)),
        bytes(&coefficient),
    ]
}

/// The inverse of [`EXPONENT`] modulo a number that it does not divide: `(1 + k·modulus) / e`, with the one `k` below `e` that
/// leaves no remainder.
fn inverse(modulus: &[u64]) -> Limbs {
    let rest = remainder(modulus, EXPONENT);
    // e is prime, so this is the inverse of the rest modulo e.
    let inverse = (0..EXPONENT - 2).fold(1, |power, _| power * rest % EXPONENT);
    let k = u128::from(EXPONENT - inverse);
    let mut carry = 1_u128;
    let mut sum: Limbs = Zeroizing::new(Vec::with_capacity(modulus.len() + 1));
    for limb in modulus {
        let next = u128::from(*limb) * k + carry;
        sum.push(next as u64);
        carry = next >> 64;
    }
    sum.push(carry as u64);
    let mut rest = 0_u128;
    for limb in sum.iter_mut().rev() {
        let whole = rest << 64 | u128::from(*limb);
        *limb = (whole / u128::from(EXPONENT)) as u64;
        rest = whole % u128::from(EXPONENT);
    }
    sum
}

/// A prime of so many limbs, whose two highest bits are set: the product of two such has all its bits (FIPS 186-5 §A.1.3).
fn prime(limbs: usize, stream: &mut Stream) -> Limbs {
    let small = small_primes();
    loop {
        let mut start: Limbs = Zeroizing::new((0..limbs).map(|_| stream.limb()).collect());
        start[limbs - 1] |= 3 << 62;
        start[0] |= 1;
        let rests: Vec<u64> = small.iter().map(|small| remainder(&start, *small)).collect();
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
            let Some(candidate) = plus(&start, step) else {
                break;
            };
            if is_prime(&candidate) {
                return candidate;
            }
        }
    }
}

/// Miller and Rabin's test. The candidates are drawn, not chosen by an adversary, so that a few bases are plenty.
fn is_prime(candidate: &[u64]) -> bool {
    let field = Field::new(candidate);
    let less = minus(candidate, 1);
    let twos = less
        .iter()
        .position(|limb| *limb != 0)
        .map_or(0, |at| at * 64 + less[at].trailing_zeros() as usize);
    let odd = shifted(&less, twos);
    let minus_one = field.inside(&less);
    BASES.iter().all(|base| {
        let mut power = match base {
            2 => field.power(&Base::Two, &odd),
            base => {
                let mut number = vec![0; candidate.len()];
                number[0] = *base;
                field.power(&Base::Number(&field.inside(&number)), &odd)
            }
        };
        if *power == *field.one || *power == *minus_one {
            return true;
        }
        (1..twos).any(|_| {
            power = field.times(&power, &power);
            *power == *minus_one
        })
    })
}

/// Arithmetic modulo an odd number, by Montgomery's method: what is inside stands for itself times 2^(64 · limbs).
struct Field<'a> {
    modulus: &'a [u64],
    /// The negative inverse of the modulus modulo 2^64.
    inverse: u64,
    one: Limbs,
    /// What brings a number inside.
    square: Limbs,
}

impl<'a> Field<'a> {
    fn new(modulus: &'a [u64]) -> Self {
        // Newton: each step doubles the bits that are right, from three on.
        let inverse = (0..6).fold(modulus[0], |found, _| {
            found.wrapping_mul(2_u64.wrapping_sub(modulus[0].wrapping_mul(found)))
        });
        let mut power: Limbs = Zeroizing::new(vec![0; modulus.len()]);
        power[0] = 1;
        let bits = 64 * modulus.len();
        (0..bits).for_each(|_| double(&mut power, modulus));
        let one = power.clone();
        (0..bits).for_each(|_| double(&mut power, modulus));
        Self {
            modulus,
            inverse: inverse.wrapping_neg(),
            one,
            square: power,
        }
    }

    fn inside(&self, number: &[u64]) -> Limbs {
        self.times(number, &self.square)
    }

    fn outside(&self, number: &[u64]) -> Limbs {
        let mut one = Zeroizing::new(vec![0; self.modulus.len()]);
        one[0] = 1;
        self.times(number, &one)
    }

    fn times(&self, one: &[u64], two: &[u64]) -> Limbs {
        let mut product = Zeroizing::new(vec![0; self.modulus.len()]);
        let mut over = 0_u64;
        for factor in two {
            let carry = add_product(&mut product, one, *factor);
            let (high, first) = over.overflowing_add(carry);
            let factor = product[0].wrapping_mul(self.inverse);
            // The lowest limb becomes zero, and everything moves down by one.
            let carry = add_product(&mut product, self.modulus, factor);
            product.copy_within(1.., 0);
            let (top, second) = high.overflowing_add(carry);
            *product.last_mut().unwrap_or(&mut over) = top;
            over = u64::from(first) + u64::from(second);
        }
        if over != 0 || !is_less(&product, self.modulus) {
            subtract(&mut product, self.modulus);
        }
        product
    }

    fn power(&self, base: &Base<'_>, exponent: &[u64]) -> Limbs {
        let mut power = self.one.clone();
        for limb in exponent.iter().rev() {
            for bit in (0..64).rev() {
                power = self.times(&power, &power);
                match base {
                    _ if limb >> bit & 1 == 0 => {}
                    Base::Two => double(&mut power, self.modulus),
                    Base::Number(base) => power = self.times(&power, base),
                }
            }
        }
        power
    }
}

/// What is raised to a power: two is doubled instead of multiplied, which spares a third of the search.
enum Base<'a> {
    Two,
    Number(&'a [u64]),
}

/// Adds a product to a number of the same length; gives what is left over.
fn add_product(sum: &mut [u64], number: &[u64], factor: u64) -> u64 {
    sum.iter_mut().zip(number).fold(0, |carry, (sum, limb)| {
        let next = u128::from(*limb) * u128::from(factor) + u128::from(*sum) + u128::from(carry);
        *sum = next as u64;
        (next >> 64) as u64
    })
}

fn add_at(number: &mut [u64], summand: u64) {
    let mut carry = summand;
    for limb in number {
        let (sum, over) = limb.overflowing_add(carry);
        (*limb, carry) = (sum, u64::from(over));
    }
}

/// Doubles a number below the modulus, modulo that.
fn double(number: &mut [u64], modulus: &[u64]) {
    let over = number.iter_mut().fold(0, |carry, limb| {
        let next = *limb >> 63;
        *limb = *limb << 1 | carry;
        next
    });
    if over == 1 || !is_less(number, modulus) {
        subtract(number, modulus);
    }
}

fn subtract(number: &mut [u64], other: &[u64]) {
    let mut borrow = 0;
    for (limb, other) in number.iter_mut().zip(other) {
        let (difference, first) = limb.overflowing_sub(*other);
        let (difference, second) = difference.overflowing_sub(borrow);
        (*limb, borrow) = (difference, u64::from(first || second));
    }
}

fn is_less(one: &[u64], two: &[u64]) -> bool {
    one.iter().rev().lt(two.iter().rev())
}

fn plus(number: &[u64], summand: u64) -> Option<Limbs> {
    let mut sum = Zeroizing::new(number.to_vec());
    add_at(&mut sum, summand);
    // One that grew beyond its limbs is small now.
    (!is_less(&sum, number)).then_some(sum)
}

fn minus(number: &[u64], subtrahend: u64) -> Limbs {
    let mut other = vec![0; number.len()];
    other[0] = subtrahend;
    let mut difference = Zeroizing::new(number.to_vec());
    subtract(&mut difference, &other);
    difference
}

fn product(one: &[u64], two: &[u64]) -> Limbs {
    let mut product = Zeroizing::new(vec![0; one.len() + two.len()]);
    for (at, factor) in two.iter().enumerate() {
        let carry = add_product(&mut product[at..at + one.len()], one, *factor);
        product[at + one.len()] = carry;
    }
    product
}

fn shifted(number: &[u64], bits: usize) -> Limbs {
    let (limbs, bits) = (bits / 64, bits % 64);
    let at = |index: usize| number.get(index).copied().unwrap_or_default();
    let limb = |index: usize| match bits {
        0 => at(index + limbs),
        _ => at(index + limbs) >> bits | at(index + limbs + 1) << (64 - bits),
    };
    Zeroizing::new((0..number.len()).map(limb).collect())
}

fn remainder(number: &[u64], divisor: u64) -> u64 {
    number.iter().rev().fold(0, |rest, limb| {
        ((u128::from(rest) << 64 | u128::from(*limb)) % u128::from(divisor)) as u64
    })
}

fn small_primes() -> Vec<u64> {
    let mut primes: Vec<u64> = Vec::new();
    for candidate in (3..LARGEST_SMALL).step_by(2) {
        let mut divisors = primes.iter().take_while(|prime| *prime * *prime <= candidate);
        if divisors.all(|prime| candidate % prime != 0) {
            primes.push(candidate);
        }
    }
    primes
}

/// An endless row of limbs: SHA-256 of the seed and a count.
struct Stream {
    seed: Zeroizing<[u8; 32]>,
    drawn: u64,
}

impl Stream {
    fn limb(&mut self) -> u64 {
        let block = Sha256::new()
            .chain_update(DOMAIN)
            .chain_update(&self.seed[..])
            .chain_update(self.drawn.to_be_bytes())
            .finalize();
        self.drawn += 1;
        block[..8]
            .iter()
            .fold(0, |limb, byte| limb << 8 | u64::from(*byte))
    }
}

/// The public exponent that everybody uses; a prime.
const EXPONENT: u64 = 65_537;
/// How far from a drawn number a prime is looked for, before another is drawn.
const LONGEST_SEARCH: u64 = 1 << 14;
/// Candidates with a divisor below this are not tested further.
const LARGEST_SMALL: u64 = 1 << 14;
const BASES: [u64; 8] = [2, 3, 5, 7, 11, 13, 17, 19];
const DOMAIN: &[u8] = b"gateway phantom rsa v1";

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: u128) -> [u64; 2] {
        [value as u64, (value >> 64) as u64]
    }

    #[test]
    fn primes_are_told_from_other_numbers() {
        // 2^127 - 1, 2^128 - 159 and 2^128 - 173 are primes.
        for prime in [u128::MAX >> 1, u128::MAX - 158, u128::MAX - 172] {
            assert!(is_prime(&number(prime)), "{prime}");
        }
        // Odd, and products of primes of about the same size; 2^67 - 1 is Cole's.
        for other in [(1 << 67) - 1, u128::MAX, u128::MAX - 160, u128::MAX - 174] {
            assert!(!is_prime(&number(other)), "{other}");
        }
    }

    #[test]
    fn arithmetic_modulo_a_number_is_that_of_small_numbers() {
        let modulus = [0xffff_ffff_ffff_ffc5_u64]; // 2^64 - 59, a prime
        let field = Field::new(&modulus);
        let (one, two) = (0x1234_5678_9abc_def1_u64, 0xfedc_ba98_7654_3211_u64);
        let wanted = (u128::from(one) * u128::from(two) % u128::from(modulus[0])) as u64;
        let product = field.times(&field.inside(&[one]), &field.inside(&[two]));
        assert_eq!(*field.outside(&product), [wanted]);
        // Fermat's little theorem.
        let base = field.inside(&[one]);
        assert_eq!(
            *field.power(&Base::Number(&base), &minus(&modulus, 1)),
            *field.one
        );
        assert_eq!(*field.power(&Base::Two, &[10]), *field.inside(&[1024]));
        let inverse = inverse(&modulus);
        let whole = u128::from(inverse[0]) * u128::from(EXPONENT) % u128::from(modulus[0]);
        assert_eq!((whole, inverse[1]), (1, 0));
    }

    #[test]
    fn one_seed_gives_one_key_and_another_another() {
        let key = key_of_seed(512, &[7; 32]);
        assert_eq!(key, key_of_seed(512, &[7; 32]));
        assert_ne!(key[0], key_of_seed(512, &[8; 32])[0]);
        assert_eq!((key[0].len(), key[0][0] >> 7), (64, 1), "all bits of the modulus");
    }
}
