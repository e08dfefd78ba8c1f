//! Reads values of a form (`application/x-www-form-urlencoded`).

use std::ops::Range;

use gateway_message::FormName;
use gateway_message::content_name::{is_plain, parts};
use gateway_message::json::begins_as_json;
use gateway_message::pairs::decoded;

use crate::Member;

/// The pairs of a form that may be asked for.
pub(crate) struct Pairs {
    seen: Vec<DecodedPair>,
    /// Whether every reader finds the same pairs.
    is_clear: bool,
    /// Whether there are more than are kept.
    is_cut: bool,
}

/// One pair.
struct DecodedPair {
    name: String,
    parts: Vec<String>,
    value: String,
    /// The range of the value in the form, still escaped, if all readers agree on it.
    at: Option<Range<usize>>,
    /// Whether it is in the decoded content, not in the query or the coded bytes.
    is_content: bool,
}

/// A pair of a form, still encoded.
struct Pair<'a> {
    name: &'a [u8],
    /// The text after `=`.
    value: Option<&'a [u8]>,
    /// Whether all readers see this pair. All split at `&`, but some also split at `;` or at the
    /// end of a line.
    agreed: bool,
}

impl Pairs {
    /// Reads a form, with the query and the coded bytes, which some readers treat as more of it.
    /// Keeps the pairs that some reader may find under one of the names, or that are asked for.
    pub fn read(
        (query, content, coded): (&str, &[u8], &[u8]),
        names: &[FormName],
        is_asked: &dyn Fn(&str) -> bool,
    ) -> Self {
        let more = |pairs: &[u8], most| split_pairs(pairs).nth(most).is_some();
        let many = more(query.as_bytes(), MOST_PAIRS) || more(coded, MOST_CODED_PAIRS);
        let long = content.len() > MOST_BYTES || coded.len() > MOST_BYTES;
        let mut pairs = Self {
            seen: Vec::new(),
            // Some readers detect the format from the content and would read JSON.
            is_clear: !(begins_as_json(content) || many || long),
            is_cut: false,
        };
        let is_wanted = |seen: &[String]| names.iter().any(|name| may_be(name.parts(), seen));
        for (nth, pair) in split_pairs(content).enumerate() {
            let name = decoded(pair.name, b' ');
            // Some readers use this pair as the charset of the other pairs. Each splits a name with
            // loose brackets and broken escapes in its own way (`%u0061` is `a` to ASP).
            let is_charset = name.text.trim().eq_ignore_ascii_case("_charset_");
            // Some readers stop after a number of pairs and ignore the rest.
            let is_odd = is_charset || !name.clear || !is_plain(&name.text) || nth == MOST_PAIRS;
            pairs.is_clear &= !is_odd;
            let parts = parts(&name.text);
            if !is_asked(&name.text) && !is_wanted(&parts) {
                continue;
            }
            let value = decoded(pair.value.unwrap_or_default(), b' ');
            let agreed = pair.value.filter(|_| pair.agreed && value.clear);
            pairs.keep(DecodedPair {
                name: name.text,
                parts,
                value: value.text,
                at: agreed.map(|raw| range_of(content, raw)),
                is_content: true,
            });
        }
        let others = [query.as_bytes(), coded];
        if pairs.is_clear && !names.is_empty() {
            for pair in others.into_iter().flat_map(split_pairs) {
                let name = decoded(pair.name, b' ').text;
                let parts = parts(&name);
                if is_wanted(&parts) {
                    pairs.keep(DecodedPair {
                        name,
                        parts,
                        value: String::new(),
                        at: None,
                        is_content: false,
                    });
                }
            }
        }
        pairs
    }

    fn keep(&mut self, pair: DecodedPair) {
        if self.seen.len() < MOST_KEPT {
            self.seen.push(pair)
        } else {
            (self.is_clear, self.is_cut) = (false, true)
        }
    }

    /// The value of a name and its range, if every reader finds it exactly once.
    pub fn one(&self, name: &FormName) -> Option<(&str, Range<usize>)> {
        let mut named = self.seen.iter();
        let mut named = named
            .by_ref()
            .filter(|one| may_be(name.parts(), &one.parts));
        match (named.next(), named.next()) {
            (Some(one), None) if self.is_clear && one.name == name.as_str() => {
                Some((&one.value, one.at.clone()?))
            }
            _ => None,
        }
    }

    /// The members that are asked for. Members beyond the maximum, which no honest client reaches,
    /// count as one that is not text.
    pub fn members(&self, is_asked: &dyn Fn(&str) -> bool) -> impl Iterator<Item = Member> {
        let asked = self.seen.iter();
        let asked = asked.filter(move |one| one.is_content && is_asked(&one.name));
        let member = |one: &DecodedPair| Member {
            name: one.name.clone(),
            value: Some(one.value.clone()),
        };
        let rest = self.is_cut.then(|| Member {
            name: String::new(),
            value: None,
        });
        asked.map(member).chain(rest)
    }
}

/// Splits a form into pairs, at every separator that any reader uses.
fn split_pairs(content: &[u8]) -> impl Iterator<Item = Pair<'_>> {
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

/// The range of `part`, which is a slice of the content, in the content.
fn range_of(content: &[u8], part: &[u8]) -> Range<usize> {
    let from = part.as_ptr().addr() - content.as_ptr().addr();
    from..from + part.len()
}

/// Whether a query has a parameter with this name, in any spelling.
pub(crate) fn is_named(query: &str, name: &[String]) -> bool {
    let mut pairs = split_pairs(query.as_bytes());
    pairs.any(|pair| may_be(name, &parts(&decoded(pair.name, b' ').text)))
}

/// Whether one name equals or contains the other. An empty part in brackets matches any part.
/// `a[b` is `a_b` to PHP, and `a.b` is `a[b]` to Spring, so both may also be the same without
/// separators.
pub(super) fn may_be(wanted: &[String], seen: &[String]) -> bool {
    let mut both = wanted.iter().zip(seen).enumerate();
    both.all(|(nth, (wanted, seen))| wanted == seen || (nth > 0 && seen.is_empty()))
        || wanted.concat() == seen.concat()
}

/// The defaults of PHP's `max_input_vars` and qs's `parameterLimit`.
const MOST_PAIRS: usize = 1_000;
/// Tomcat reads no parameters of a form over 2 MiB, PHP none over 8 MiB; neither refuses it.
const MOST_BYTES: usize = 1 << 20;
/// Encoded bytes contain a separator by chance now and then. Reading more would be endless work.
const MOST_CODED_PAIRS: usize = 65_536;
/// The most pairs that are kept.
const MOST_KEPT: usize = 1_024;
