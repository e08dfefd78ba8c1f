//! Facts of a form (`application/x-www-form-urlencoded`).

use std::ops::Range;

use super::value::{FactType, FactValue, of_text};
use crate::form::{begins_as_json, split_pairs};
use gateway_message::FormName;
use gateway_message::content_name::{is_plain, parts};
use gateway_message::pairs::decoded;

/// Reads the wanted values of one form.
pub(crate) struct FormReader<'w> {
    wanted: Vec<Wanted<'w>>,
}

struct Wanted<'w> {
    name: Option<&'w FormName>,
    kind: FactType,
    /// The number of pairs that some reader would take for it.
    seen: usize,
    value: Option<Value>,
}

/// A value, and where it stands in the form, still escaped.
type Value = (FactValue, Range<usize>);

impl<'w> FormReader<'w> {
    pub fn new(wanted: impl Iterator<Item = (Option<&'w FormName>, FactType)>) -> Self {
        let wanted = wanted.map(|(name, kind)| Wanted {
            name,
            kind,
            seen: 0,
            value: None,
        });
        Self {
            wanted: wanted.collect(),
        }
    }

    /// The values. `None` if some reader reads the content in another format.
    pub fn read(mut self, query: &str, content: &[u8], coded: &[u8]) -> Option<Vec<Option<Value>>> {
        // Some readers detect the format from the content and would read JSON. Others stop after a
        // number of pairs and ignore the rest.
        let more = |pairs: &[u8], most| split_pairs(pairs).nth(most).is_some();
        let many = more(content, MOST_PAIRS)
            || more(query.as_bytes(), MOST_PAIRS)
            || more(coded, MOST_CODED_PAIRS);
        let long = content.len() > MOST_BYTES || coded.len() > MOST_BYTES;
        if begins_as_json(content) || many || long {
            return None;
        }
        for pair in split_pairs(content) {
            let name = decoded(pair.name, b' ');
            // Some readers use this pair as the charset of the other pairs. Each splits a name with
            // loose brackets and broken escapes in its own way (`%u0061` is `a` to ASP).
            let is_charset = name.text.trim().eq_ignore_ascii_case("_charset_");
            if is_charset || !name.clear || !is_plain(&name.text) {
                return None;
            }
            let agreed = pair.agreed;
            let clear = pair.value.filter(|_| agreed);
            let clear = clear.map(|raw| (raw, range_of(content, raw)));
            self.see(&name.text, clear);
        }
        for pair in split_pairs(query.as_bytes()).chain(split_pairs(coded)) {
            self.see(&decoded(pair.name, b' ').text, None);
        }
        let values = self.wanted.into_iter();
        Some(
            values
                .map(|one| one.value.filter(|_| one.seen == 1))
                .collect(),
        )
    }

    /// Counts a pair for every wanted name it may match. Its value counts only if all readers agree
    /// on it.
    fn see(&mut self, name: &str, clear: Option<(&[u8], Range<usize>)>) {
        let seen = parts(name);
        for one in &mut self.wanted {
            let Some(wanted) = one.name.filter(|wanted| may_be(wanted.parts(), &seen)) else {
                continue;
            };
            one.seen += 1;
            let clear = clear.clone().filter(|_| wanted.as_str() == name);
            one.value = clear.and_then(|(raw, at)| {
                let value = decoded(raw, b' ');
                let value = Some(value).filter(|value| value.clear)?;
                Some((of_text(&value.text, one.kind)?, at))
            });
        }
    }
}

/// Where a part of the content stands in it.
pub(super) fn range_of(content: &[u8], part: &[u8]) -> Range<usize> {
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
/// Tomcat reads no parameters of a form over 2 MiB, PHP none over 8 MiB, and both go on.
const MOST_BYTES: usize = 1 << 20;
/// Encoded bytes contain a separator by chance now and then. Reading more would be endless work.
const MOST_CODED_PAIRS: usize = 65_536;
