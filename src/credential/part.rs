//! Finds the parts of a secret that must be protected even alone: so long and random that other
//! text does not contain them by chance.

use std::ops::Range;

/// The characters of a secret of which no short run may be echoed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DrawnPart {
    /// Their range in the secret. The characters before and after it are in the phantom too.
    pub(super) letters: Range<usize>,
    /// The length of run that is searched for: six for a token of letters and digits.
    pub(super) least: usize,
    /// Runs of digits only that are nearly `least` long or longer. Within these, a run must have
    /// [`LEAST_DIGITS`].
    pub(super) digits: Vec<Range<usize>>,
}

impl DrawnPart {
    /// Returns the part of a secret to search for in pieces; `None` if only the whole secret is
    /// searched for.
    ///
    /// It is `None` if pieces would occur by chance, as with a password made of words, or if the
    /// secret has so little entropy that two known pieces would reveal it.
    pub(super) fn of(secret: &[u8], phantom: &[u8]) -> Option<Self> {
        let letters = unshared(secret, phantom);
        // Leave out numbers, which name an account or a time and are common in pages. If too little
        // is left without them, keep them.
        let unnumbered = without(secret, letters.clone(), |text| {
            is_word(text) || is_number(text)
        });
        Self::in_letters(secret, unnumbered).or_else(|| Self::in_letters(secret, letters))
    }

    fn in_letters(secret: &[u8], letters: Range<usize>) -> Option<Self> {
        let text = &secret[letters.clone()];
        let kinds = CharacterCounts::of(text);
        let bits = kinds.bits()?.min(bits_within(text));
        if bits * text.len() as f64 <= LEAST_BITS || kinds.reads_as_words(text) {
            return None;
        }
        let least = (BITS_OF_A_PIECE / bits).ceil() as usize;
        let digits = if least < LEAST_DIGITS {
            rows_of_digits(secret, &letters, least)
        } else {
            Vec::new()
        };
        Some(Self {
            letters,
            least,
            digits,
        })
    }

    /// Returns how many letters of a piece must differ from the phantom's in the same place. Some
    /// match by chance; if more match, the piece is the phantom's own, or a constant of its kind.
    pub(super) fn least_differing(&self) -> usize {
        self.least.div_ceil(2)
    }
}

/// The entropy of each character in bits without the first and last ones, which may be constants:
/// the `SK` of `SK` and hexadecimal digits.
fn bits_within(text: &[u8]) -> f64 {
    let within = text.get(BY_CHANCE..text.len().saturating_sub(BY_CHANCE));
    let bits = within.and_then(|within| CharacterCounts::of(within).bits());
    bits.unwrap_or(f64::INFINITY)
}

/// The range in which a secret differs from its phantom.
///
/// In a web token this is the signature. The rest names the subject, is largely the same in every
/// token of the issuer, and is worthless without the signature.
fn unshared(secret: &[u8], phantom: &[u8]) -> Range<usize> {
    let last_dot = secret.iter().rposition(|byte| *byte == b'.');
    if let Some(dot) = last_dot.filter(|_| secret.starts_with(b"eyJ")) {
        return dot + 1..secret.len();
    }
    let same = |pair: &(&u8, &u8)| pair.0 == pair.1;
    let beyond_chance = |count: usize| if count <= BY_CHANCE { 0 } else { count };
    let first = secret.iter().zip(phantom).take_while(same).count();
    let first = beyond_chance(first);
    let behind = secret[first..].iter().rev().zip(phantom.iter().rev());
    let last = if secret.len() == phantom.len() {
        beyond_chance(behind.take_while(same).count())
    } else {
        0
    };
    // Leave out words before or after the random part that name a service or an environment:
    // `sk-live-`, `-v1`.
    without(secret, first..secret.len() - last, is_word)
}

/// Removes segments of this kind before and after the random part.
fn without(
    secret: &[u8],
    mut letters: Range<usize>,
    is_other: impl Fn(&[u8]) -> bool,
) -> Range<usize> {
    let parts = |byte: &u8| b"-_.:/+=".contains(byte);
    while let Some(at) = secret[letters.clone()].iter().position(parts)
        && is_other(&secret[letters.start..letters.start + at])
    {
        letters.start += at + 1;
    }
    while let Some(at) = secret[letters.clone()].iter().rposition(parts)
        && is_other(&secret[letters.start + at + 1..letters.end])
    {
        letters.end = letters.start + at;
    }
    letters
}

/// Whether the text is short, in one case, and not a number in any base.
fn is_word(text: &[u8]) -> bool {
    let one_case =
        !text.iter().any(u8::is_ascii_uppercase) || !text.iter().any(u8::is_ascii_lowercase);
    text.len() <= LONGEST_WORD
        && one_case
        && (text.is_empty() || !text.iter().all(u8::is_ascii_hexdigit))
}

/// Whether the text is a number, as in `xoxb-1690481729063-` and `7123456789:`.
fn is_number(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_digit)
}

/// Returns the runs of digits that could contain a piece, or all of one except a few bits.
fn rows_of_digits(secret: &[u8], letters: &Range<usize>, least: usize) -> Vec<Range<usize>> {
    let mut start = letters.start;
    let mut rows = Vec::new();
    let text = &secret[letters.clone()];
    for row in text.chunk_by(|one, two| one.is_ascii_digit() == two.is_ascii_digit()) {
        if is_number(row) && row.len() + 1 >= least {
            rows.push(start..start + row.len());
        }
        start += row.len();
    }
    rows
}

/// The number of characters of each kind.
#[derive(Default)]
struct CharacterCounts {
    digits: usize,
    lower: usize,
    upper: usize,
    /// Letters that are hexadecimal digits, in lower and upper case.
    hex: [usize; 2],
}

impl CharacterCounts {
    fn of(text: &[u8]) -> Self {
        let mut kinds = Self::default();
        for byte in text {
            match byte {
                b'0'..=b'9' => kinds.digits += 1,
                b'a'..=b'z' => kinds.lower += 1,
                b'A'..=b'Z' => kinds.upper += 1,
                _ => {}
            }
            kinds.hex[0] += usize::from((b'a'..=b'f').contains(byte));
            kinds.hex[1] += usize::from((b'A'..=b'F').contains(byte));
        }
        kinds
    }

    /// Returns the entropy of each character in bits, if drawn at random; `None` for letters of one
    /// case only, which may be words.
    fn bits(&self) -> Option<f64> {
        let of = match (self.lower, self.upper, self.digits) {
            (0, 0, 1..) => 10.0_f64,
            (lower, 0, 1..) if lower == self.hex[0] => 16.0,
            (0, upper, 1..) if upper == self.hex[1] => 16.0,
            (_, 0, 1..) | (0, _, 1..) => 36.0,
            (1.., 1.., 0) => 52.0,
            (1.., 1.., 1..) => 62.0,
            _ => return None,
        };
        Some(of.log2())
    }

    /// Whether more of the text is in runs of four letters of one case than chance would explain.
    fn reads_as_words(&self, text: &[u8]) -> bool {
        let case = |byte: &u8| match byte {
            b'a'..=b'z' => 1,
            b'A'..=b'Z' => 2,
            _ => 0,
        };
        let rows = text.chunk_by(|one, two| case(one) == case(two));
        let words = rows.filter(|row| row.len() >= 4 && case(&row[0]) != 0);
        let in_words: usize = words.map(<[u8]>::len).sum();
        let most = if self.lower == 0 || self.upper == 0 {
            text.len() * 4 / 5
        } else {
            text.len() * 3 / 5
        };
        in_words > most
    }
}

/// How many letters at an end a drawn phantom may share with its secret by chance. They stay in the
/// part, so that it is the same for all phantoms of a shape, and sessions share the search.
const BY_CHANCE: usize = 2;

const LONGEST_WORD: usize = 8;

/// A run of this many digits has as much entropy as a piece needs, whatever surrounds it.
pub(super) const LEAST_DIGITS: usize = 11;

/// A piece of this entropy occurs by chance once in 17 billion characters of the same kind.
const BITS_OF_A_PIECE: f64 = 34.0;

/// A secret needs more entropy than this, in bits, to be searched for in pieces: 20 letters and
/// digits. Enough of it is still unknown after two pieces and as many letters more.
const LEAST_BITS: f64 = 119.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn least(secret: &str) -> Option<(Range<usize>, usize)> {
        let part = DrawnPart::of(secret.as_bytes(), &vec![b'!'; secret.len()])?;
        Some((part.letters, part.least))
    }

    #[test]
    fn the_less_a_letter_says_the_more_make_a_piece() {
        assert_eq!(least("A1b2C3d4E5f6G7h8I9j0"), Some((0..20, 6)));
        assert_eq!(least("0f9e8d7c6b5a49382716051423324150"), Some((0..32, 9)));
        assert_eq!(least("a1z2y3x4w5v6u7t8s9r0q1p2"), Some((0..24, 7)));
        assert_eq!(
            least("314159265358979323846264338327950288"),
            Some((0..36, 11))
        );
    }

    #[test]
    fn numbers_before_and_behind_what_is_drawn_are_no_part_of_it() {
        for (secret, letters) in [
            (
                "xoxb-1690481729063-1719384472105-A1b2C3d4E5f6G7h8I9j0K1l2",
                33..57,
            ),
            (
                "xoxp-1690481729063-1719384472105-0f9e8d7c6b5a49382716051423324150",
                33..65,
            ),
            ("7123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsawA", 11..46),
            ("A1b2C3d4E5f6G7h8I9j0K1l2.1690481729", 0..24),
            // Without the numbers, too little would be left.
            ("16904817-6b5a-4938-a716-051423324150", 0..36),
        ] {
            assert_eq!(
                least(secret).map(|(letters, _)| letters),
                Some(letters),
                "{secret}"
            );
        }
        let secret = b"A1b2C3d4E5f6123456789K12345l2M3n4";
        let part = DrawnPart::of(secret, &vec![b'!'; secret.len()]).unwrap();
        assert_eq!(part.digits, [11..21, 22..27]);
    }

    #[test]
    fn passwords_and_what_two_pieces_would_give_away_are_looked_for_whole() {
        for secret in [
            "correct-horse-battery-staple",
            "CorrectHorseBatteryStaple",
            "TheWorkplacePassword2024",
            "administrator1administrator2",
            "A1b2C3d4E5f6G7h8I9j",
            "0f9e8d7c6b5a49382716051423",
        ] {
            assert_eq!(least(secret), None, "{secret}");
        }
    }

    #[test]
    fn what_the_phantom_has_too_is_no_part_of_it() {
        let part = DrawnPart::of(
            b"ghp_A1b2C3d4E5f6G7h8I9j0-v1",
            b"ghp_Z9y8X7w6V5u4T3s2R1q9-v1",
        );
        assert_eq!(part.map(|part| part.letters), Some(4..24));
        // By chance, a drawn phantom begins and ends like the secret.
        let by_chance = DrawnPart::of(
            b"0f9e8d7c6b5a49382716051423324150",
            b"0fd1c2b3a49586778695a4b3c2d1e050",
        );
        assert_eq!(by_chance.map(|part| part.letters), Some(0..32));
        // A constant as short is taken for chance, and says nothing of what is drawn.
        let part = DrawnPart::of(
            b"SK0f9e8d7c6b5a49382716051423324150",
            b"SK1d2c3b4a5968778695a4b3c2d1e0f123",
        );
        assert_eq!(part.map(|part| part.least), Some(9));
        // In a format that the phantom does not know, it redraws this part too; it still counts as
        // a word.
        for (secret, letters) in [
            ("sk-live-A1b2C3d4E5f6G7h8I9j0", 8..28),
            ("xk/A1b2C3d4E5f6G7h8I9j0-prod", 3..23),
            ("0f9e8d7c-6b5a-4938-a716-051423324150", 0..36),
        ] {
            assert_eq!(
                least(secret).map(|(letters, _)| letters),
                Some(letters),
                "{secret}"
            );
        }
        let token =
            b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let part = DrawnPart::of(token, &[b'x'; 9]);
        assert_eq!(part.map(|part| part.letters.start), Some(37));
    }

    /// A random character, as services draw them.
    fn letter(state: &mut u64) -> char {
        const LETTERS: &[u8; 62] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(LETTERS[(*state >> 33) as usize % LETTERS.len()])
    }

    #[test]
    fn of_ten_thousand_drawn_tokens_nearly_all_have_pieces_of_six() {
        let mut state = 1;
        for (length, without) in [(24, 100), (36, 20)] {
            let tokens =
                (0..10_000).map(|_| (0..length).map(|_| letter(&mut state)).collect::<String>());
            let whole_alone = tokens.filter(|token| least(token).is_none());
            let count = whole_alone.count();
            assert!(count <= without, "{length} letters: {count}");
        }
    }
}
