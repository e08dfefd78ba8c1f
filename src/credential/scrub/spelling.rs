//! How writers spell a text byte by byte: plain, hex, percent-encoded, escaped, UTF-16.

use std::ops::Range;

use zeroize::Zeroizing;

/// A text spelled byte by byte.
pub(super) struct SpelledText {
    pub(super) text: Zeroizing<Vec<u8>>,
    /// The range of each byte's spelling.
    pub(super) bytes: Vec<Range<usize>>,
    /// The separator between hex bytes, if there is one.
    pub(super) between: Option<&'static [u8]>,
}

/// Returns all spellings byte by byte, always the same number in the same order.
pub(super) fn spellings(bytes: &[u8]) -> Vec<SpelledText> {
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
    // Letter case that is lost in transit. Keys in hex are equivalent in both.
    for recased in [u8::to_ascii_lowercase, u8::to_ascii_uppercase] {
        all.push(spell(bytes, b"", |byte, out| out.push(recased(&byte))));
    }
    // UTF-16 in either byte order, without the NUL before or after the whole.
    all.push(spell(bytes, b"\0", |byte, out| out.push(byte)));
    all
}

/// Returns the spellings in which letters and digits stand for themselves.
pub(super) fn usual_spellings(bytes: &[u8]) -> Vec<SpelledText> {
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

/// Spells each byte. One byte becomes at most eight, so the buffer never grows and leaves no
/// copy behind.
fn spell(bytes: &[u8], between: &'static [u8], one: impl Fn(u8, &mut Vec<u8>)) -> SpelledText {
    let mut text = Zeroizing::new(Vec::with_capacity(8 * bytes.len()));
    let mut places = Vec::with_capacity(bytes.len());
    for (at, &byte) in bytes.iter().enumerate() {
        if at > 0 {
            text.extend_from_slice(between);
        }
        let start = text.len();
        one(byte, &mut text);
        places.push(start..text.len());
    }
    SpelledText {
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
        // The URL standard's form encoding, the only one that keeps spaces, writes them as `+`.
        b' ' if kept.contains(' ') => out.push(b'+'),
        _ if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) => out.push(byte),
        _ => {
            out.push(b'%');
            hex(byte, digits, out);
        }
    }
}

/// Escapes as JSON (RFC 8259 §7): the required characters, and those that some writers escape too.
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

const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// The separators that writers put between hex bytes (AWS errors, certificate fingerprints, C
/// sources).
const BETWEEN_HEX: [&[u8]; 6] = [b" ", b":", b"-", b",0x", b", 0x", b" 0x"];

/// The text around each hex byte: full percent-encoding, string literals, HTML references.
const AROUND_HEX: [(&[u8], &[u8]); 4] =
    [(b"%", b""), (b"\\x", b""), (b"&#x", b";"), (b"&#x00", b";")];

/// What percent-encoding keeps besides letters and digits: nothing (strict writers), RFC 3986
/// unreserved, `encodeURIComponent`, the same with `/` (path writers), `encodeURI`, and forms.
const KEPT_IN_PERCENT: [&str; 6] = [
    "",
    "-._~",
    "-._~!*'()",
    "-._~/",
    "-._~!*'();/?:@&=+$,#",
    "-._* ",
];

/// The characters that JSON writers escape beyond the required ones: none, `/` (PHP), those that
/// would end a script element (Go, Rails), or both; and what .NET and Gson add to these.
const ESCAPED_IN_JSON: [&str; 7] = ["", "/", "<>&", "<>&'", "<>&/'", "<>&'+`", "<>&'="];

/// The characters that are written as entities, by family of writers.
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
