//! The base64 characters of a text, at each of the three alignments.

use zeroize::Zeroizing;

/// The base64 character after a form. It contains bits of the secret's last byte and of the next
/// one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    /// Which of the six bits are the secret's.
    mask: u8,
    secret: u8,
    phantom: u8,
    alphabet: &'static [u8; 64],
}

impl Tail {
    /// Returns a tail that is overwritten with the bits of another text; `None` if these are equal.
    pub(super) fn written_as(self, other: Tail) -> Option<Tail> {
        let tail = Tail {
            phantom: other.secret,
            ..self
        };
        (tail.secret != tail.phantom).then_some(tail)
    }

    /// Returns the character to write in place of this one, if its known bits match the secret.
    pub(super) fn replace(self, character: u8) -> Option<u8> {
        let alphabet = [self.alphabet, STANDARD, URL_SAFE]
            .into_iter()
            .find(|a| a.contains(&character))?;
        let sextet = alphabet.iter().position(|&c| c == character)? as u8;
        (sextet & self.mask == self.secret)
            .then(|| alphabet[usize::from(sextet & !self.mask | self.phantom)])
    }
}

/// Returns the base64 characters made only of these bytes, with `shift` bytes before them in the
/// first group.
///
/// If `shift` is not 0, the character before them contains 2 or 4 high bits of the first byte next
/// to foreign bits, and is left unchanged. It reveals at most the class of that byte, which the
/// phantom reveals too. The character after them is the [`Tail`].
pub(super) fn sextets(
    bytes: &[u8],
    shift: usize,
    alphabet: &'static [u8; 64],
) -> (Zeroizing<Vec<u8>>, Tail) {
    let bit_length = 8 * (shift + bytes.len());
    let sextet = |index: usize| {
        let byte = |at: usize| {
            at.checked_sub(shift)
                .and_then(|at| bytes.get(at))
                .copied()
                .unwrap_or(0)
        };
        let bit = 6 * index;
        let pair = u16::from_be_bytes([byte(bit / 8), byte(bit / 8 + 1)]);
        (pair >> (10 - bit % 8)) as u8 & 0x3f
    };
    let (first, end) = ((8 * shift).div_ceil(6), bit_length / 6);
    let mut interior = Zeroizing::new(Vec::with_capacity(end - first));
    interior.extend((first..end).map(|index| alphabet[usize::from(sextet(index))]));
    let mask = match bit_length % 6 {
        2 => 0b11_0000,
        4 => 0b11_1100,
        _ => 0,
    };
    let bits = if mask == 0 { 0 } else { sextet(end) & mask };
    (
        interior,
        Tail {
            mask,
            secret: bits,
            phantom: bits,
            alphabet,
        },
    )
}

pub(super) const STANDARD: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
pub(super) const URL_SAFE: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
