//! URL-encoded forms: `application/x-www-form-urlencoded`.

use super::search::MemberSearch;
use gateway_message::pairs::decoded;

/// Finds the members among the pairs.
pub(super) fn find(content: &[u8], found: &mut MemberSearch<'_>) {
    for pair in split_pairs(content) {
        let name = decoded(pair.name, b' ').text;
        if (found.is_asked)(&name) {
            let value = pair.value.unwrap_or_default();
            found.found(&name, Some(decoded(value, b' ').text));
        }
    }
}

/// One pair of a form, still encoded.
pub(crate) struct Pair<'a> {
    pub name: &'a [u8],
    /// The text after `=`.
    pub value: Option<&'a [u8]>,
    /// Whether all readers see this pair. All split at `&`, but some also split at `;` or at the
    /// end of a line.
    pub agreed: bool,
}

/// Splits a form into pairs, at every separator that any reader uses.
pub(crate) fn split_pairs(content: &[u8]) -> impl Iterator<Item = Pair<'_>> {
    let inner = |b: &u8| matches!(b, b';' | b'\r' | b'\n');
    content.split(|b| *b == b'&').flat_map(move |whole| {
        let agreed = !whole.iter().any(inner);
        whole.split(inner).map(move |pair| {
            let equals = memchr::memchr(b'=', pair);
            Pair {
                name: &pair[..equals.unwrap_or(pair.len())],
                value: equals.map(|at| &pair[at + 1..]),
                agreed,
            }
        })
    })
}
