//! As much of DER (X.690) as private keys need.

use zeroize::Zeroizing;

/// Bytes that may be of a key.
pub(super) type Bytes = Zeroizing<Vec<u8>>;

/// The content of an element of this tag at the beginning, and what follows it.
pub(super) fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let rest = der.strip_prefix(&[tag])?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 | 0x82 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 3))?;
            let length = bytes
                .iter()
                .fold(0, |length, byte| length << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// An element of this tag with these contents; keys have fewer than 64 KiB.
pub(super) fn object<'a>(tag: u8, contents: impl IntoIterator<Item = &'a [u8]>) -> Bytes {
    let contents: Vec<&[u8]> = contents.into_iter().collect();
    let length: usize = contents.iter().map(|content| content.len()).sum();
    let [.., high, low] = length.to_be_bytes();
    let head: &[u8] = match length {
        0..=0x7f => &[tag, low],
        0x80..=0xff => &[tag, 0x81, low],
        _ => &[tag, 0x82, high, low],
    };
    let pieces: Vec<&[u8]> = std::iter::once(head).chain(contents).collect();
    Zeroizing::new(pieces.concat())
}

/// A number of which the bytes are given, the highest first.
pub(super) fn integer(bytes: &[u8]) -> Bytes {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let digits = &bytes[zeros.min(bytes.len().saturating_sub(1))..];
    // The highest bit is a sign.
    let sign: &[u8] = if digits.first().is_some_and(|byte| byte >> 7 == 1) {
        &[0]
    } else {
        &[]
    };
    object(INTEGER, [sign, digits])
}

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BITS: u8 = 0x03;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const OBJECT: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_at_every_length() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff] {
            let content = vec![7; length];
            let mut written = object(OCTETS, [&content[..]]).to_vec();
            written.push(9);
            assert_eq!(element(&written, OCTETS), Some((&content[..], &[9][..])));
            assert_eq!(element(&written, SEQUENCE), None);
            assert_eq!(element(&written[..length], OCTETS), None, "cut off");
        }
    }

    #[test]
    fn a_number_is_as_short_as_it_can_be_and_never_negative() {
        for (bytes, wanted) in [
            (&[0][..], &[2, 1, 0][..]),
            (&[0, 0, 1], &[2, 1, 1]),
            (&[0x80], &[2, 2, 0, 0x80]),
            (&[0, 0x7f, 0], &[2, 2, 0x7f, 0]),
        ] {
            assert_eq!(*integer(bytes), wanted);
        }
    }
}
