//! The forms in which an origin may send a lent secret back, each with the form of its phantom
//! beside it.
//!
//! Found: plain; hex; hex with what stands between bytes (space, colon, hyphen, `0x`); `\x41`;
//! base64 and base64url at the three alignments; percent-encoded in the usual sets and in full;
//! escaped in JSON and HTML, in the usual sets and in full; UTF-16. The Basic form is base64 at one
//! of the alignments. Of secrets that have a [`DrawnPart`], pieces of each form are found, too, and
//! so base64 with line breaks, and escapes that are mixed at will.
//!
//! Not found: a form of a form (base64 in hex), decimal numbers (which differ in length), base32,
//! other charsets.

use std::ops::Range;

use zeroize::Zeroizing;

use super::part::{DrawnPart, LEAST_DIGITS};
use super::scrub::Unscrubbable;

/// One spelling of a secret and what is written over it.
pub(super) struct Form {
    pub(super) secret: Zeroizing<Vec<u8>>,
    /// As long as the secret's spelling, with the same punctuation.
    pub(super) stand_in: Zeroizing<Vec<u8>>,
    /// The spelling of the phantom, where that is not the stand-in: it replaces the whole form, and
    /// may have another length.
    pub(super) phantom: Option<Box<[u8]>>,
    pub(super) tail: Option<Tail>,
    pub(super) piece: Option<Piece>,
    /// What stands between the bytes of a form in hex, where something does.
    pub(super) between: Option<&'static [u8]>,
}

/// Which pieces of a form are looked for.
#[derive(Clone)]
pub(super) struct Piece {
    /// Where the letters stand that count.
    pub(super) within: Range<usize>,
    /// How many bytes of them make a piece.
    pub(super) least: usize,
    /// How many of those must differ from the stand-in's.
    pub(super) differing: usize,
    /// Where no letter stands whole but digits.
    digits: Vec<Range<usize>>,
    /// How many bytes make a piece there.
    least_of_digits: usize,
}

impl Piece {
    pub(super) fn longest_that_is_none(&self) -> usize {
        match self.digits.is_empty() {
            true => self.least - 1,
            false => self.least.max(self.least_of_digits) - 1,
        }
    }

    /// How many bytes a row must have that stands here.
    pub(super) fn least_in(&self, row: &Range<usize>) -> usize {
        let holds = |digits: &Range<usize>| digits.start <= row.start && row.end <= digits.end;
        match self.digits.iter().any(holds) {
            true => self.least_of_digits,
            false => self.least,
        }
    }
}

/// The base64 character after the interior of a form, which holds bits of the secret's last byte
/// and of what follows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    /// Which of the six bits are the secret's.
    mask: u8,
    secret: u8,
    phantom: u8,
    alphabet: &'static [u8; 64],
}

impl Tail {
    /// The character to write in place of this one, if its known bits are the secret's.
    pub(super) fn replace(self, character: u8) -> Option<u8> {
        let alphabet = [self.alphabet, STANDARD, URL_SAFE]
            .into_iter()
            .find(|a| a.contains(&character))?;
        let sextet = alphabet.iter().position(|&c| c == character)? as u8;
        (sextet & self.mask == self.secret)
            .then(|| alphabet[usize::from(sextet & !self.mask | self.phantom)])
    }
}

/// What is looked for, and what stands in its place.
pub(super) struct Sought<'a> {
    pub(super) secret: &'a [u8],
    /// As long as the secret, with the same punctuation: the phantom, or a mask.
    pub(super) stand_in: &'a [u8],
    /// What the workload holds, of whatever length.
    pub(super) phantom: &'a [u8],
}

/// All forms of one secret; each spelling once.
///
/// # Errors
/// [`Unscrubbable`] by cause.
pub(super) fn forms(
    sought: &Sought<'_>,
    part: Option<&DrawnPart>,
) -> Result<Vec<Form>, Unscrubbable> {
    forms_in(spellings, sought, part)
}

/// The forms in which services repeat a text that they were sent; the text is looked for as a
/// whole.
///
/// # Errors
/// As [`forms`].
pub(super) fn usual_forms(text: &[u8], mask: &[u8]) -> Result<Vec<Form>, Unscrubbable> {
    let sought = Sought {
        secret: text,
        stand_in: mask,
        phantom: mask,
    };
    forms_in(usual_spellings, &sought, None)
}

fn forms_in(
    spellings: impl Fn(&[u8]) -> Vec<Spelled>,
    sought: &Sought<'_>,
    part: Option<&DrawnPart>,
) -> Result<Vec<Form>, Unscrubbable> {
    let Sought {
        secret,
        stand_in,
        phantom,
    } = *sought;
    if secret.len() < SHORTEST {
        return Err(Unscrubbable::TooShort);
    }
    if secret == stand_in {
        return Err(Unscrubbable::PhantomIsSecret);
    }
    if secret.len() != stand_in.len() {
        return Err(Unscrubbable::ShapeDiffers);
    }
    let same_length = secret.len() == phantom.len();
    let mut forms: Vec<Form> = Vec::new();
    let spelled = spellings(secret).into_iter().zip(spellings(stand_in));
    for ((secret, stand_in), phantom) in spelled.zip(spellings(phantom)) {
        let pairs = secret.text.iter().zip(stand_in.text.iter());
        if secret.text.len() != stand_in.text.len() || !pairs.clone().all(|(s, p)| alike(*p, *s)) {
            return Err(Unscrubbable::ShapeDiffers);
        }
        // A secret as long as its phantom never changes a length, so one whose punctuation is
        // escaped elsewhere keeps the stand-in.
        let fits = !same_length || phantom.text.len() == secret.text.len();
        if !forms.iter().any(|known| known.secret == secret.text) {
            forms.push(Form {
                piece: part.map(|part| secret.piece(part)),
                phantom: (fits && phantom.text != stand_in.text).then(|| phantom.text[..].into()),
                secret: secret.text,
                stand_in: stand_in.text,
                tail: None,
                between: secret.between,
            });
        }
    }
    // Base64 of another length would shift what stands behind it.
    let written = if same_length { phantom } else { stand_in };
    for alphabet in [STANDARD, URL_SAFE] {
        for shift in 0..3 {
            let (form, tail) = sextets(secret, shift, alphabet);
            let (stand_in, written_tail) = sextets(written, shift, alphabet);
            let tail = Tail {
                phantom: written_tail.secret,
                ..tail
            };
            let tail = (tail.secret != tail.phantom).then_some(tail);
            if !forms.iter().any(|known| known.secret == form) {
                forms.push(Form {
                    piece: part.map(|part| sextets_of(part, shift, form.len())),
                    secret: form,
                    stand_in,
                    phantom: None,
                    tail,
                    between: None,
                });
            }
        }
    }
    Ok(forms)
}

/// The pieces of a form in base64: the characters that are made of a part's letters alone.
fn sextets_of(part: &DrawnPart, shift: usize, length: usize) -> Piece {
    let first = (8 * shift).div_ceil(6);
    let at = |letter: usize| 8 * (shift + letter);
    let start = at(part.letters.start).div_ceil(6).saturating_sub(first);
    let end = (at(part.letters.end) / 6).saturating_sub(first);
    let touched = |row: &Range<usize>| {
        at(row.start).div_ceil(6).saturating_sub(first)..(at(row.end) / 6).saturating_sub(first)
    };
    Piece {
        within: start..end.min(length),
        // Fewer by one where the letters begin within a character.
        least: 8 * part.least / 6 - 1,
        differing: part.least - 2,
        digits: part.digits.iter().map(touched).collect(),
        least_of_digits: 8 * LEAST_DIGITS / 6,
    }
}

/// Whether a byte may stand where a phantom has another: letters and digits for each other, all
/// else for itself.
pub(super) fn alike(phantom: u8, byte: u8) -> bool {
    if phantom.is_ascii_alphanumeric() {
        byte.is_ascii_alphanumeric()
    } else {
        byte == phantom
    }
}

/// The base64 characters that are made of these bytes alone, if `shift` bytes stand before them in
/// the first group.
///
/// The character before them holds 2 or 4 high bits of the first byte beside foreign ones (where
/// `shift` is not 0) and stays as it is; it tells at most the class of that byte, which the phantom
/// tells too. The one after them is the [`Tail`].
fn sextets(bytes: &[u8], shift: usize, alphabet: &'static [u8; 64]) -> (Zeroizing<Vec<u8>>, Tail) {
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

/// A text spelled byte for byte.
struct Spelled {
    text: Zeroizing<Vec<u8>>,
    /// Where the spelling of each byte stands.
    bytes: Vec<Range<usize>>,
    between: Option<&'static [u8]>,
}

impl Spelled {
    fn piece(&self, part: &DrawnPart) -> Piece {
        let bytes = &self.bytes[part.letters.clone()];
        let length = |row: &[Range<usize>]| row[row.len() - 1].end - row[0].start;
        let least = |bytes: &[Range<usize>], count: usize| bytes.windows(count).map(length).min();
        // Up to where the letters around them are not whole.
        let alone = |row: &Range<usize>| {
            let before = row
                .start
                .checked_sub(1)
                .map_or(0, |at| self.bytes[at].start + 1);
            let behind = self
                .bytes
                .get(row.end)
                .map_or(self.text.len(), |byte| byte.end - 1);
            before..behind
        };
        let digits = part.digits.iter();
        let least_of_digits = digits
            .clone()
            .filter_map(|row| least(&self.bytes[row.clone()], LEAST_DIGITS));
        Piece {
            within: bytes[0].start..bytes[bytes.len() - 1].end,
            least: least(bytes, part.least).unwrap_or(self.text.len()),
            least_of_digits: least_of_digits.min().unwrap_or(self.text.len()),
            digits: digits.map(alone).collect(),
            // By chance a phantom has a letter of its secret's at the same place; a constant of all
            // tokens of a kind is more.
            differing: part.least - 2,
        }
    }
}

/// The spellings byte for byte, always as many and in the same order.
fn spellings(bytes: &[u8]) -> Vec<Spelled> {
    let mut all = usual_spellings(bytes);
    for digits in [LOWER, UPPER] {
        all.push(spell(bytes, b"", |byte, out| hex(byte, digits, out)));
        for between in BETWEEN_HEX {
            all.push(spell(bytes, between, |byte, out| hex(byte, digits, out)));
        }
        for (before, after) in AROUND_HEX {
            all.push(spell(bytes, b"", |byte, out| {
                out.extend_from_slice(before);
                hex(byte, digits, out);
                out.extend_from_slice(after);
            }));
        }
        all.push(spell(bytes, b"", |byte, out| {
            json_unicode(byte, digits, out)
        }));
    }
    // UTF-16 in either order of bytes, but for the NUL before or behind the whole.
    all.push(spell(bytes, b"\0", |byte, out| out.push(byte)));
    all
}

/// Those in which letters and digits stand for themselves.
fn usual_spellings(bytes: &[u8]) -> Vec<Spelled> {
    let mut all = vec![spell(bytes, b"", |byte, out| out.push(byte))];
    for digits in [LOWER, UPPER] {
        for kept in KEPT_IN_PERCENT {
            all.push(spell(bytes, b"", |byte, out| {
                percent(byte, kept, digits, out)
            }));
        }
        for escaped in ESCAPED_IN_JSON {
            all.push(spell(bytes, b"", |byte, out| {
                json(byte, escaped, digits, out)
            }));
        }
    }
    for entities in ENTITIES {
        all.push(spell(bytes, b"", |byte, out| {
            match entities.iter().find(|(special, _)| *special == byte) {
                Some((_, entity)) => out.extend_from_slice(entity.as_bytes()),
                None => out.push(byte),
            }
        }));
    }
    all
}

/// Spells each byte; six bytes are the most that one becomes, so no copy is left behind by growing.
fn spell(bytes: &[u8], between: &'static [u8], one: impl Fn(u8, &mut Vec<u8>)) -> Spelled {
    let mut text = Zeroizing::new(Vec::with_capacity(6 * bytes.len()));
    let mut places = Vec::with_capacity(bytes.len());
    for (at, &byte) in bytes.iter().enumerate() {
        if at > 0 {
            text.extend_from_slice(between);
        }
        let start = text.len();
        one(byte, &mut text);
        places.push(start..text.len());
    }
    Spelled {
        text,
        bytes: places,
        between: BETWEEN_HEX.contains(&between).then_some(between),
    }
}

fn hex(byte: u8, digits: &[u8; 16], out: &mut Vec<u8>) {
    out.extend_from_slice(&[
        digits[usize::from(byte >> 4)],
        digits[usize::from(byte & 0xf)],
    ]);
}

fn percent(byte: u8, kept: &str, digits: &[u8; 16], out: &mut Vec<u8>) {
    match byte {
        // The form encoding of the URL standard, which alone keeps spaces, writes them so.
        b' ' if kept.contains(' ') => out.push(b'+'),
        _ if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) => out.push(byte),
        _ => {
            out.push(b'%');
            hex(byte, digits, out);
        }
    }
}

/// RFC 8259 §7: what must be escaped, and what some writers escape too.
fn json(byte: u8, escaped: &str, digits: &[u8; 16], out: &mut Vec<u8>) {
    match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        b'/' if escaped.contains('/') => out.extend_from_slice(b"\\/"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        _ if byte < b' ' || escaped.as_bytes().contains(&byte) => json_unicode(byte, digits, out),
        _ => out.push(byte),
    }
}

fn json_unicode(byte: u8, digits: &[u8; 16], out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\u00");
    hex(byte, digits, out);
}

/// The shortest secret that can be told from chance; the stores refuse shorter ones.
pub(super) const SHORTEST: usize = 8;

const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";
const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What writers of bytes in hex put between them (AWS's errors, certificates' prints, sources in
/// C).
const BETWEEN_HEX: [&[u8]; 6] = [b" ", b":", b"-", b",0x", b", 0x", b" 0x"];

/// What stands around each byte in hex: percent-encoding in full, string literals, references of
/// HTML.
const AROUND_HEX: [(&[u8], &[u8]); 3] = [(b"%", b""), (b"\\x", b""), (b"&#x", b";")];

/// What is left as it is beside letters and digits: nothing (strict writers), RFC 3986 unreserved,
/// `encodeURIComponent`, the same with `/` (path writers), `encodeURI`, and forms.
const KEPT_IN_PERCENT: [&str; 6] = [
    "",
    "-._~",
    "-._~!*'()",
    "-._~/",
    "-._~!*'();/?:@&=+$,#",
    "-._* ",
];

/// What is escaped beside the necessary: nothing, `/` (PHP), what would end a script element (Go,
/// Rails), both.
const ESCAPED_IN_JSON: [&str; 5] = ["", "/", "<>&", "<>&'", "<>&/'"];

/// What is written as which entity, by family of writers.
const ENTITIES: [&[(u8, &str)]; 9] = [
    &[AMP, LT, GT],
    &[AMP, LT, GT, QUOT],
    &[AMP, LT, GT, QUOT, (b'\'', "&apos;")],
    &[AMP, LT, GT, QUOT, (b'\'', "&#39;")],
    &[AMP, LT, GT, QUOT, (b'\'', "&#x27;")],
    &[AMP, LT, GT, QUOT, (b'\'', "&#x27;"), (b'/', "&#x2F;")],
    &[AMP, LT, GT, (b'"', "&#34;"), (b'\'', "&#39;")],
    &[
        AMP,
        LT,
        GT,
        (b'"', "&#34;"),
        (b'\'', "&#39;"),
        (b'+', "&#43;"),
    ],
    &[
        AMP,
        LT,
        GT,
        QUOT,
        (b'\'', "&#39;"),
        (b'/', "&#x2F;"),
        (b'`', "&#x60;"),
        (b'=', "&#x3D;"),
    ],
];
const AMP: (u8, &str) = (b'&', "&amp;");
const LT: (u8, &str) = (b'<', "&lt;");
const GT: (u8, &str) = (b'>', "&gt;");
const QUOT: (u8, &str) = (b'"', "&quot;");

#[cfg(test)]
mod tests;
