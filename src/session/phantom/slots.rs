//! The positions of a shape: each is a fixed byte, or drawn from an alphabet.

use super::draw::Stream;

/// One position of a shape.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Fixed(u8),
    Draw(Alphabet),
}

/// The letters allowed at a position. All of them are unreserved in every encoding, so no alphabet
/// changes an encoded length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Alphabet {
    Upper,
    Lower,
    Digit,
    NonZero,
    Alpha,
    Alnum,
    HexLower,
    HexUpper,
    Base32,
}

/// A checksum at the end of a credential: CRC-32 of the bytes in `over`, as six base-62 digits
/// (GitHub, npm).
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Crc32 {
    pub(super) over: std::ops::Range<usize>,
}

pub(super) fn fill_slots(slots: &[Slot], stream: &mut Stream) -> Vec<u8> {
    let fill = |slot: &Slot| match slot {
        Slot::Fixed(byte) => *byte,
        Slot::Draw(alphabet) => stream.pick(alphabet.letters()),
    };
    slots.iter().map(fill).collect()
}

/// A UUID's positions. Version and variant are kept, because readers check them.
pub(super) fn uuid_slots(hex: Alphabet, version: u8) -> Vec<Slot> {
    let variant = if hex == Alphabet::HexUpper {
        b'A'
    } else {
        b'a'
    };
    (0..36)
        .map(|at| match at {
            8 | 13 | 18 | 23 => Slot::Fixed(b'-'),
            14 => Slot::Fixed(version),
            19 => Slot::Fixed(variant),
            _ => Slot::Draw(hex),
        })
        .collect()
}

impl Slot {
    /// Returns the position for a byte: a letter or digit is drawn anew from its class, any other
    /// byte is kept.
    pub(super) fn of_class(byte: u8) -> Self {
        match byte {
            b'A'..=b'Z' => Self::Draw(Alphabet::Upper),
            b'a'..=b'z' => Self::Draw(Alphabet::Lower),
            b'0'..=b'9' => Self::Draw(Alphabet::Digit),
            other => Self::Fixed(other),
        }
    }

    /// Returns the byte that every phantom has at this position.
    pub(super) fn fixed(&self) -> Option<u8> {
        match self {
            Self::Fixed(byte) => Some(*byte),
            Self::Draw(_) => None,
        }
    }

    /// Returns how much randomness the position adds, in bits.
    pub(super) fn bits(self) -> f64 {
        match self {
            Self::Fixed(_) => 0.0,
            Self::Draw(alphabet) => (alphabet.letters().len() as f64).log2(),
        }
    }
}

impl Alphabet {
    pub(super) fn letters(self) -> &'static [u8] {
        match self {
            Self::Upper => &LETTERS[10..36],
            Self::Lower => &LETTERS[36..],
            Self::Digit => &LETTERS[..10],
            Self::NonZero => &LETTERS[1..10],
            Self::Alpha => &LETTERS[10..],
            Self::Alnum => LETTERS,
            Self::HexLower => b"0123456789abcdef",
            Self::HexUpper => b"0123456789ABCDEF",
            Self::Base32 => b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
        }
    }

    /// Returns the alphabet of a class in a declared shape.
    pub(super) fn named(class: &str) -> Option<Self> {
        Some(match class {
            "upper" => Self::Upper,
            "lower" => Self::Lower,
            "digit" => Self::Digit,
            "alpha" => Self::Alpha,
            "alnum" | "word" | "base64" | "crc32" => Self::Alnum,
            "hex" => Self::HexLower,
            "HEX" => Self::HexUpper,
            "base32" => Self::Base32,
            _ => return None,
        })
    }
}

/// Base 62, in the order used by the checksums of GitHub and npm.
pub(super) const LETTERS: &[u8; 62] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
pub(super) const CHECKSUM_DIGITS: usize = 6;
