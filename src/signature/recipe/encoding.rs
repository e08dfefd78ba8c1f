//! Percent escapes and form data: encodings that several parts of a recipe share.

use gateway_message::pairs::ESCAPED;
use percent_encoding::{AsciiSet, percent_decode, percent_encode};

/// A name and a value, decoded.
pub(super) type NameAndValue = (Vec<u8>, Vec<u8>);

/// Escapes all except the unreserved characters (RFC 3986 §2.3).
pub(super) fn uri(bytes: &[u8]) -> String {
    percent_encode(bytes, ESCAPED).to_string()
}

/// The same, but keeps slashes.
pub(super) fn uri_path(bytes: &[u8]) -> String {
    percent_encode(bytes, ESCAPED_IN_PATH).to_string()
}

/// The pairs of a query or a form, decoded as form data (`+` is a space); empty pieces are skipped.
pub(super) fn pairs(text: &[u8]) -> impl Iterator<Item = NameAndValue> {
    text.split(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let mut halves = pair.splitn(2, |byte| *byte == b'=');
            let mut half = || decoded(halves.next().unwrap_or_default());
            (half(), half())
        })
}

/// Decodes form data.
pub(super) fn decoded(text: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = text
        .iter()
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    percent_decode(&spaced).collect()
}

const ESCAPED_IN_PATH: &AsciiSet = &ESCAPED.remove(b'/');
