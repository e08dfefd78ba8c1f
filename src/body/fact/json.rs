//! Reads values of a JSON document (RFC 8259): the value at a JSON Pointer (RFC 6901), and the
//! outermost members.

use gateway_message::content_name::part;
use gateway_message::json::{Json, JsonParts, MOST_TEXTS, Value, begins_as_json};
use gateway_message::{Pointer, folded};
use serde::Deserialize as _;
use serde::de::IgnoredAny;

use super::form::is_named;
use super::value::{FactType, FactValue, of_number, of_string};
use super::value_span::{AmbiguousJson, ValueSpan};
use crate::Member;

/// The value of a fact, if it is of its type and no other spelling of a name leads to another.
pub(crate) fn fact(
    root: Value<'_>,
    pointer: &Pointer,
    query: &str,
    kind: FactType,
) -> Option<FactValue> {
    if is_in_query(pointer, query) {
        return None;
    }
    let mut tokens = pointer.tokens().iter();
    let value = tokens.try_fold(root, |value, token| match below(value, token)? {
        Some((found, true)) => Ok(found),
        _ => Err(AmbiguousJson),
    });
    let value = value.ok()?;
    match kind {
        FactType::Long => of_number(value.number()?),
        FactType::String => of_string(&value.text()?),
        FactType::Bool => value.flag().map(FactValue::Bool),
        FactType::Strings => {
            let all = value.elements();
            if !value.is_list() || all.len() > MOST_TEXTS {
                return None;
            }
            let texts = all.map(|(_, one)| match of_string(&one.text()?)? {
                FactValue::String(text) => Some(text),
                _ => None,
            });
            texts.collect::<Option<_>>().map(FactValue::Strings)
        }
    }
}

/// The value at a pointer, in any spelling.
pub(crate) fn spot(
    root: Value<'_>,
    pointer: &Pointer,
    query: &str,
) -> Result<Option<ValueSpan>, AmbiguousJson> {
    let (mut value, mut is_exact) = (root, true);
    for token in pointer.tokens() {
        let Some((found, is_same)) = below(value, token)? else {
            return Ok(None);
        };
        (value, is_exact) = (found, is_exact && is_same);
    }
    if value.is_null() {
        return Ok(None);
    }
    if is_in_query(pointer, query) {
        return Err(AmbiguousJson);
    }
    Ok(Some(ValueSpan {
        at: value.at(),
        text: value.text().map(Into::into),
        is_exact,
    }))
}

/// Finds the value at a pointer in a text message, which may be JSON.
///
/// # Errors
/// [`AmbiguousJson`] if it begins as JSON does, and readers may disagree about it.
pub fn spot_in_message(text: &[u8], pointer: &Pointer) -> Result<Option<ValueSpan>, AmbiguousJson> {
    if !begins_as_json(text) {
        return Ok(None);
    }
    let mut wanted = JsonParts::default();
    wanted.at(pointer.tokens());
    let read = Json::read(text, &wanted).map_err(|_| AmbiguousJson)?;
    spot(read.root(), pointer, "")
}

/// The members of the outermost object, or of the objects in the outermost list. `null` is an
/// empty text.
pub(crate) fn members(root: Value<'_>, is_asked: &dyn Fn(&str) -> bool) -> Vec<Member> {
    let listed = root.elements().map(|(_, one)| one);
    let members = listed.chain([root]).flat_map(Value::members);
    let members = members.filter(|(name, _)| is_asked(name));
    let member = |(name, value): (&str, Value<'_>)| Member {
        name: name.to_owned(),
        value: if value.is_null() {
            Some(String::new())
        } else {
            value.text().map(Into::into)
        },
    };
    members.map(member).collect()
}

/// The member or element with this name or index, in any spelling, and whether the spelling is
/// exact.
fn below<'j>(value: Value<'j>, token: &str) -> Result<Option<(Value<'j>, bool)>, AmbiguousJson> {
    let wanted = folded(token);
    let named = value.members();
    let mut named = named
        .filter(|(name, _)| folded(name) == wanted)
        .map(|(name, value)| (value, name == token));
    let nth = wanted.parse::<usize>().ok();
    let nth = nth.filter(|nth| nth.to_string() == wanted);
    let mut listed = value.elements().filter(|(at, _)| Some(*at) == nth);
    let listed = listed
        .next()
        .map(|(nth, one)| (one, nth.to_string() == token));
    let found = named.next().or(listed);
    match named.next() {
        Some(_) => Err(AmbiguousJson),
        None => Ok(found),
    }
}

/// Whether the query has a parameter with the pointer's name. Rails, for one, prefers the query to
/// the document.
fn is_in_query(pointer: &Pointer, query: &str) -> bool {
    let tokens = pointer.tokens().iter();
    let name: Vec<String> = tokens.map(|token| part(token)).collect();
    is_named(query, &name)
}

/// Whether some reader would read a whole document at the start of the content, whatever follows.
pub(crate) fn begins_with_document(content: &[u8]) -> bool {
    let first = || IgnoredAny::deserialize(&mut serde_json::Deserializer::from_slice(content));
    begins_as_json(content) && first().is_ok()
}
