//! Facts of a form (`application/x-www-form-urlencoded`).

use std::str::FromStr;

use super::plain::of_text;
use super::{FactType, FactValue, Location};
use crate::form::{Pair, begins_as_json, split_pairs};
use gateway_message::folded_parameter;
use gateway_message::pairs::decoded;

/// The name of a value in a form, such as `amount` or `card[number]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormName {
    text: String,
    /// `card` and `number`, each folded.
    parts: Vec<String>,
}

/// Why a text is no name of a value in a form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a name in a form has letters, digits and `_`, `-`, `.`, and parts in brackets: `card[number]`"
)]
pub struct FormNameMalformed(());

impl FromStr for FormName {
    type Err = FormNameMalformed;

    fn from_str(text: &str) -> Result<Self, FormNameMalformed> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.[]".contains(&b);
        let parts = parts(text);
        let brackets = text.matches('[').count();
        let is_closed = text.matches(']').count() == brackets
            && (brackets == 0 || text.ends_with(']') && text.matches("][").count() + 1 == brackets);
        if !text.bytes().all(plain) || !is_closed || parts.iter().any(String::is_empty) {
            return Err(FormNameMalformed(()));
        }
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }
}

/// The parts of a name in the reading in which most spellings are one.
fn parts(name: &str) -> Vec<String> {
    // What no name holds, and some reader may drop; it reads up to NUL.
    let name: String = name.chars().filter(|c| c.is_ascii()).collect();
    let name = name.split('\0').next().unwrap_or_default();
    let parts = name.split('[').map(|part| part.trim_end_matches(']'));
    parts.map(folded_parameter).collect()
}

/// Reads the wanted values of one form.
pub(super) struct FormReader<'w> {
    wanted: Vec<Wanted<'w>>,
}

struct Wanted<'w> {
    name: Option<&'w FormName>,
    kind: FactType,
    /// In how many pairs some reader sees it.
    seen: usize,
    value: Option<FactValue>,
}

impl<'w> FormReader<'w> {
    pub fn new(wanted: &[(&'w Location, FactType)]) -> Self {
        let wanted = wanted.iter().map(|(location, kind)| Wanted {
            name: match location {
                Location::Form(name) => Some(name),
                Location::Json(_) => None,
            },
            kind: *kind,
            seen: 0,
            value: None,
        });
        Self {
            wanted: wanted.collect(),
        }
    }

    /// The values, or nothing where some reader takes the content for something else.
    pub fn read(
        mut self,
        query: &str,
        content: &[u8],
        coded: &[u8],
    ) -> Option<Vec<Option<FactValue>>> {
        // A reader that tells the format by the content takes it for JSON; others stop after so
        // many pairs, and see no more of it.
        let more = |pairs: &[u8], most| split_pairs(pairs).nth(most).is_some();
        let many = more(content, MOST_PAIRS)
            || more(query.as_bytes(), MOST_PAIRS)
            || more(coded, MOST_CODED_PAIRS);
        if begins_as_json(content) || many {
            return None;
        }
        for pair in split_pairs(content) {
            let name = decoded(pair.name, b' ');
            // To some readers it names the charset of the others.
            if name.text.trim().eq_ignore_ascii_case("_charset_") {
                return None;
            }
            let clear = pair.agreed && name.clear;
            self.see(&name.text, Some(pair).filter(|_| clear));
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

    /// Takes a pair for what its name may be; its value only where all readers see it so.
    fn see(&mut self, name: &str, clear: Option<Pair<'_>>) {
        let seen = parts(name);
        for one in &mut self.wanted {
            let Some(wanted) = one.name.filter(|wanted| may_be(&wanted.parts, &seen)) else {
                continue;
            };
            one.seen += 1;
            let raw = clear.as_ref().filter(|_| wanted.text == name);
            let value = raw
                .and_then(|pair| pair.value)
                .map(|raw| decoded(raw, b' '));
            one.value = value
                .filter(|value| value.clear)
                .and_then(|value| of_text(&value.text, one.kind));
        }
    }
}

/// Whether a query says something under this name, in any spelling.
pub(super) fn is_named(query: &str, name: &[String]) -> bool {
    let mut pairs = split_pairs(query.as_bytes());
    pairs.any(|pair| may_be(name, &parts(&decoded(pair.name, b' ').text)))
}

/// Whether one of two names is the other, or stands above it. An empty part in brackets is any.
fn may_be(wanted: &[String], seen: &[String]) -> bool {
    let mut both = wanted.iter().zip(seen).enumerate();
    both.all(|(nth, (wanted, seen))| wanted == seen || (nth > 0 && seen.is_empty()))
}

/// `max_input_vars` of PHP and `parameterLimit` of qs.
const MOST_PAIRS: usize = 1_000;
/// Coded bytes hold a separator by chance now and then; more is work without an end.
const MOST_CODED_PAIRS: usize = 65_536;
