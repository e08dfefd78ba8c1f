//! Finds members of a JSON document in place, so that every other byte is unchanged.

use std::ops::Range;

use gateway_message::json::{Json, JsonFault, JsonParts};
use zeroize::Zeroizing;

use super::unreadable::FileFault;

/// Checks that a text is one JSON document.
pub(super) fn check(text: &str) -> Result<(), FileFault> {
    read(text, &JsonParts::default()).map(|_| ())
}

/// Finds the value of a pointer's member (RFC 6901); `None` if there is no such member.
pub(super) fn find(text: &str, pointer: &str) -> Result<Option<Range<usize>>, FileFault> {
    let segments: Vec<String> = segments(pointer).collect();
    let mut wanted = JsonParts::default();
    wanted.at(&segments);
    let json = read(text, &wanted)?;
    let mut segments = segments.iter();
    let found = segments.try_fold(json.root(), |value, segment| value.member(segment));
    Ok(found.map(|value| value.at()))
}

/// Returns the names and the values' ranges of the members of an object at a pointer.
pub(super) fn members(text: &str, pointer: &str) -> Result<Vec<(String, Range<usize>)>, FileFault> {
    let Some(at) = find(text, pointer)? else {
        return Ok(Vec::new());
    };
    let (mut wanted, start) = (JsonParts::default(), at.start);
    wanted.names();
    let json = read(&text[at], &wanted)?;
    let place = |at: Range<usize>| start + at.start..start + at.end;
    let members = json.root().members();
    let members = members.map(|(name, value)| (name.to_owned(), place(value.at())));
    Ok(members.collect())
}

fn read<'t>(text: &'t str, wanted: &JsonParts<'_>) -> Result<Json<'t>, FileFault> {
    let read = Json::read(text.as_bytes(), wanted);
    read.map_err(|fault| match fault {
        JsonFault::Doubled => FileFault::Doubled,
        JsonFault::Malformed(at) => {
            FileFault::Form(format!("it is no whole JSON document, at byte {at}"))
        }
        JsonFault::Excess => FileFault::Form(fault.to_string()),
    })
}

/// Reads a text, or a number as it is written. `None` for null and for an empty text.
pub(super) fn scalar(raw: &str) -> Result<Option<Zeroizing<String>>, FileFault> {
    let value = match raw.as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw).map_err(|_| FileFault::NoText)?,
        Some(b'0'..=b'9') => raw.to_owned(),
        Some(b'n') => String::new(),
        _ => return Err(FileFault::NoText),
    };
    let value = Zeroizing::new(value);
    Ok((!value.is_empty()).then_some(value))
}

/// Whether the value at a pointer is a number.
pub(super) fn is_number(text: &str, pointer: &str) -> bool {
    let found = find(text, pointer).ok().flatten();
    found.is_some_and(|at| text.as_bytes()[at.start].is_ascii_digit())
}

/// Encodes a text as JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the unescaped names in a pointer.
pub(super) fn segments(pointer: &str) -> impl Iterator<Item = String> {
    let parts = pointer.split('/').skip(1);
    parts.map(|part| part.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn walk(text: &str, pointer: &str, value: &Value) {
        let at = find(text, pointer).unwrap().unwrap();
        let found: Value = serde_json::from_str(&text[at]).unwrap();
        assert_eq!(found, *value, "{pointer}");
        for (name, value) in value.as_object().into_iter().flatten() {
            let name = name.replace('~', "~0").replace('/', "~1");
            walk(text, &format!("{pointer}/{name}"), value);
        }
    }

    #[test]
    fn every_member_is_found_where_it_is() {
        let text = r#" { "a\"}{" : [ "]", {"x":"}"} , [ ] ] ,"":{ },"b/~":{"\u00e9\\":"\\\"","n":-1.5e3,
            "t":true , "z":null},"c":{"d":{"e":"é😀"}}} "#;
        check(text).unwrap();
        let whole: Value = serde_json::from_str(text).unwrap();
        walk(text, "", &whole);
        let compact = whole.to_string();
        walk(&compact, "", &whole);
        for pointer in ["/x", "/c/d/e/f", "/a\"}{/0", "/c/"] {
            assert_eq!(find(text, pointer).unwrap(), None, "{pointer}");
        }
    }
}
