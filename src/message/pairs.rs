//! Decodes names and values of queries and forms.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str};

use super::canonical::iis_escape;

/// The bytes that are escaped in a name or a value: all but unreserved ones (RFC 3986 §2.3).
pub const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Decodes form data (`+` is a space). Bytes that are not UTF-8 are replaced.
pub fn form_text(raw: &str) -> Cow<'_, str> {
    if !raw.contains(['+', '%']) {
        return Cow::Borrowed(raw);
    }
    let spaced = raw.replace('+', " ");
    Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}

/// A decoded name or value.
#[derive(Debug)]
pub struct DecodedText {
    /// The text, in which `%u0061` is read as ASP does. Bytes that are not UTF-8 stay `%XX`, in
    /// upper case.
    pub text: String,
    /// Whether all decoders agree: each `%` starts an escape, and the bytes are UTF-8.
    pub clear: bool,
}

/// Percent-decodes a name or value. `plus` is the byte that `+` stands for.
pub fn decoded(raw: &[u8], plus: u8) -> DecodedText {
    let raw: Vec<u8> = raw
        .iter()
        .map(|byte| if *byte == b'+' { plus } else { *byte })
        .collect();
    let bytes = unescaped(&raw);
    let is_escape =
        |rest: &[u8]| matches!(rest, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    let whole = raw.split(|byte| *byte == b'%').skip(1).all(is_escape);
    DecodedText {
        clear: whole && std::str::from_utf8(&bytes).is_ok(),
        text: as_text(&bytes),
    }
}

fn unescaped(mut raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(raw.len());
    let next = |raw: &[u8]| {
        let mut places = memchr::memchr_iter(b'%', raw);
        places.find_map(|at| iis_escape(&raw[at..]).map(|(letter, rest)| (at, letter, rest.len())))
    };
    while let Some((at, letter, rest)) = next(raw) {
        bytes.extend(percent_encoding::percent_decode(&raw[..at]));
        bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        raw = &raw[raw.len() - rest..];
    }
    bytes.extend(percent_encoding::percent_decode(raw));
    bytes
}

/// Converts bytes to text. Bytes that are not UTF-8 become `%XX`, so this cannot be reversed.
pub fn as_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(percent_encoding::percent_encode_byte(*byte));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decoders_read_differently_is_not_clear() {
        for (raw, text, clear) in [
            (&b"a+b"[..], "a b", true),
            (b"%61", "a", true),
            (b"%6", "%6", false),
            (b"%zz", "%zz", false),
            (b"a%", "a%", false),
            (b"%FF", "%FF", false),
            (b"t%u006Fken%U0021%u00", "token!%u00", false),
            (b"\xff", "%FF", false),
            (b"%25", "%", true),
        ] {
            let decoded = decoded(raw, b' ');
            assert_eq!((decoded.text.as_str(), decoded.clear), (text, clear));
        }
    }
}
