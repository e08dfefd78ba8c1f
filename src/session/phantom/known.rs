//! Formats that clients and scanners recognise: prefixes, fixed marks and checksums.

use gateway_names::prefixes::{self, Tail};

use super::slots::{Alphabet, CHECKSUM_DIGITS, Crc32, LETTERS, Slot, uuid_slots};

/// Marks inside or at the end of a format that clients look for: the prefix, the mark, and whether
/// the mark ends the value.
const MARKS: &[(&str, &str, bool)] = &[
    ("sk-", "T3BlbkFJ", false),
    ("sk-ant-api03-", "AA", true),
    ("", BOT, false),
];
/// The text after the number of a Telegram bot. The number is public.
const BOT: &str = ":AA";

/// Returns the positions of a credential that is not a JWT.
pub(super) fn slots_of(credential: &[u8]) -> (Vec<Slot>, Option<Crc32>) {
    // The longest known prefix that fits is kept as it is.
    let known = prefixes::matches(credential)
        .filter(|found| found.rest.len() >= 8)
        .max_by_key(|found| found.prefix.len());
    let (tail, rest) = match known {
        Some(found) => (found.tail, found.rest),
        None => (Tail::Any, behind_a_word(credential)),
    };
    let prefix = &credential[..credential.len() - rest.len()];
    let mut slots: Vec<Slot> = prefix.iter().copied().map(Slot::Fixed).collect();
    let mut check = None;
    match tail {
        Tail::Checksum if rest.len() == 36 && rest.iter().all(u8::is_ascii_alphanumeric) => {
            slots.extend(std::iter::repeat_n(Slot::Draw(Alphabet::Alnum), rest.len()));
            check = Some(Crc32 {
                over: prefix.len()..credential.len() - CHECKSUM_DIGITS,
            });
        }
        Tail::Base32
            if rest
                .iter()
                .all(|byte| Alphabet::Base32.letters().contains(byte)) =>
        {
            slots.extend(std::iter::repeat_n(
                Slot::Draw(Alphabet::Base32),
                rest.len(),
            ));
        }
        _ => slots.extend(free_slots(rest)),
    }
    keep_marks(credential, &mut slots);
    (slots, check)
}

/// Returns the text after a short word and `_`, if it is as random as a key. Many services that are
/// not known here have such a prefix.
fn behind_a_word(credential: &[u8]) -> &[u8] {
    let word = credential
        .iter()
        .take_while(|byte| byte.is_ascii_lowercase());
    let rest = &credential[word.count()..];
    let length = credential.len() - rest.len();
    match rest.strip_prefix(b"_") {
        Some(rest) if (2..=8).contains(&length) && bits(&free_slots(rest)) >= KEY_BITS => rest,
        _ => credential,
    }
}

fn bits(slots: &[Slot]) -> f64 {
    slots.iter().map(|slot| slot.bits()).sum()
}

/// Returns the positions of text without a known format: a UUID, a run of hexadecimal digits,
/// base64, or letter by letter. If its own classes would give fewer bits than a key has, any letter
/// or digit may stand for any other.
fn free_slots(text: &[u8]) -> Vec<Slot> {
    if let Some(slots) = uuid(text) {
        return slots;
    }
    if let Some(hex) = hex_alphabet(text).filter(|_| text.len() >= 16) {
        return vec![Slot::Draw(hex); text.len()];
    }
    let mut slots: Vec<Slot> = text.iter().map(|byte| Slot::of_class(*byte)).collect();
    if bits(&slots) < KEY_BITS {
        for slot in slots.iter_mut().filter(|slot| slot.fixed().is_none()) {
            *slot = Slot::Draw(Alphabet::Alnum);
        }
    }
    // The digit before the padding holds unused bits that a strict decoder checks (RFC 4648
    // §3.5), so it is kept.
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    if (1..=2).contains(&padding) && text.len() > 8 {
        let last = text.len() - padding - 1;
        slots[last] = Slot::Fixed(text[last]);
    }
    slots
}

fn uuid(text: &[u8]) -> Option<Vec<Slot>> {
    let shaped = text.len() == 36
        && text.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    let digits: Vec<u8> = text.iter().copied().filter(u8::is_ascii_hexdigit).collect();
    let hex = hex_alphabet(&digits).filter(|_| shaped)?;
    Some(uuid_slots(hex, text[14]))
}

/// The alphabet of hexadecimal digits in one case. Digits without letters count as decimal.
fn hex_alphabet(text: &[u8]) -> Option<Alphabet> {
    let lettered = text.iter().any(u8::is_ascii_alphabetic);
    [Alphabet::HexLower, Alphabet::HexUpper]
        .into_iter()
        .find(|hex| lettered && text.iter().all(|byte| hex.letters().contains(byte)))
}

fn keep_marks(credential: &[u8], slots: &mut [Slot]) {
    for (prefix, mark, ends) in MARKS {
        if !credential.starts_with(prefix.as_bytes()) {
            continue;
        }
        let at = if *ends {
            credential
                .ends_with(mark.as_bytes())
                .then(|| credential.len() - mark.len())
        } else {
            memchr::memmem::find(credential, mark.as_bytes())
        };
        let is_bots = |at: &usize| *mark != BOT || credential[..*at].iter().all(u8::is_ascii_digit);
        if let Some(at) = at.filter(is_bots) {
            for (slot, byte) in slots[at..].iter_mut().zip(mark.bytes()) {
                *slot = Slot::Fixed(byte);
            }
        }
    }
}

/// The entropy that makes a phantom as hard to guess as a key.
pub(super) const KEY_BITS: f64 = 128.0;

/// CRC-32 (IEEE 802.3) as six base-62 digits: the checksum at the end of GitHub and npm tokens.
pub(super) fn base62_crc32(bytes: &[u8]) -> [u8; CHECKSUM_DIGITS] {
    let mut sum = crc32fast::hash(bytes);
    let mut digits = [b'0'; CHECKSUM_DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = LETTERS[(sum % 62) as usize];
        sum /= 62;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_published_revoked_token_is_its_own() {
        // A token revoked long ago, widely used as the worked example of the format.
        assert_eq!(&base62_crc32(b"zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ"), b"0mLq17");
    }

    #[test]
    fn the_checksum_is_the_common_crc_32() {
        let value = u64::from(0xCBF4_3926_u32); // the check value of CRC-32/ISO-HDLC over "123456789"
        let text = base62_crc32(b"123456789");
        let back = text.iter().fold(0_u64, |sum, digit| {
            sum * 62 + LETTERS.iter().position(|letter| letter == digit).unwrap() as u64
        });
        assert_eq!(back, value);
    }

    #[test]
    fn an_unknown_prefix_stays_and_what_follows_is_as_random_as_a_key() {
        let fixed = |secret: &[u8]| {
            let slots = slots_of(secret).0;
            let fixed = slots
                .iter()
                .take_while(|slot| matches!(slot, Slot::Fixed(_)));
            (fixed.count(), bits(&slots) >= KEY_BITS)
        };
        for (secret, kept, is_key) in [
            (&b"demo_4f8Kq2LmZx90TbVnRs7YcW1e"[..], 5, true),
            (b"demo_1234567890123456789012345", 5, true),
            (b"demo_4f8Kq2", 0, false),
            (b"my_own_password", 0, false),
            (b"averylongword_4f8Kq2LmZx90TbVnRs7YcW1e", 0, true),
            (b"1234567890123456789012345", 0, true),
        ] {
            assert_eq!(fixed(secret), (kept, is_key), "{secret:?}");
        }
    }

    #[test]
    fn the_longest_prefix_wins_and_marks_stay() {
        let secret = b"sk-proj-abcdefghABCDEFGH01234567T3BlbkFJabcdefghABCDEFGH01234567";
        let (slots, _) = slots_of(secret);
        let fixed: Vec<u8> = slots
            .iter()
            .filter_map(|slot| {
                if let Slot::Fixed(byte) = slot {
                    Some(*byte)
                } else {
                    None
                }
            })
            .collect();
        assert_eq!(fixed, b"sk-proj-T3BlbkFJ");
    }

    #[test]
    fn a_short_secret_has_a_phantom_of_any_letters_and_a_bots_mark_stays() {
        for secret in [&b"12345678"[..], b"password", b"Abcdef12"] {
            assert_eq!(bits(&slots_of(secret).0) as u32, 47);
        }
        let fixed = |secret: &[u8]| -> Vec<u8> {
            let slots = slots_of(secret).0;
            slots.iter().filter_map(Slot::fixed).collect()
        };
        let bot = b"1234567890:AAHkLmNoPqRsTuVwXyZaBcDeFgHiJkLmNoP";
        assert_eq!(fixed(bot), b":AA");
        assert_eq!(fixed(b"someone:AAHkLmNoPqRsTuVwXyZaBcDeFgHiJkLmNoP"), b":");
    }

    #[test]
    fn padding_and_the_digit_before_it_stay() {
        let (slots, _) = slots_of(b"dGhpcyBpcyBhIGtleQ==");
        assert!(matches!(slots[17], Slot::Fixed(b'Q')));
        assert!(matches!(slots[18], Slot::Fixed(b'=')));
        assert!(matches!(slots[16], Slot::Draw(_)));
    }
}
