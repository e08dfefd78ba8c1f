//! Finds one member of a JSON object and replaces it in place, leaving every other byte unchanged.

use std::ops::Range;

use gateway_message::json::{Json, JsonParts};

/// The range of a member's value in the outermost object; `Ok(None)` if there is no such member.
///
/// # Errors
/// The text is not a JSON object, or has a member twice, so two readers could read it
/// differently.
pub(super) fn find(text: &[u8], name: &str) -> Result<Option<Range<usize>>, JsonMalformed> {
    let mut wanted = JsonParts::default();
    wanted.member_of(name);
    let json = Json::read(text, &wanted).map_err(|_| JsonMalformed)?;
    if json.root().is_object() {
        Ok(json.root().member(name).map(|value| value.at()))
    } else {
        Err(JsonMalformed)
    }
}

/// A text that is not a JSON object, or is ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JsonMalformed;

/// The text of a string or number that [`find`] found.
pub(super) fn read(value: &[u8]) -> Option<Vec<u8>> {
    match serde_json::from_slice(value).ok()? {
        serde_json::Value::String(text) => Some(text.into_bytes()),
        serde_json::Value::Number(_) => Some(value.to_vec()),
        _ => None,
    }
}

/// The text with the value at `at` replaced: a string by a string, a number by a number.
pub(super) fn replace(text: &[u8], at: &Range<usize>, value: &[u8]) -> Option<Vec<u8>> {
    let number = text.get(at.start).is_some_and(|byte| *byte != b'"');
    if number && (value.is_empty() || !value.iter().all(u8::is_ascii_digit)) {
        return None;
    }
    let written = if number {
        value.to_vec()
    } else {
        serde_json::to_vec(std::str::from_utf8(value).ok()?).ok()?
    };
    Some([&text[..at.start], &written, &text[at.end..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_replaced_where_it_stands() {
        for (text, value, wanted) in [
            (
                r#"{"nonce": 12 , "a":1.50}"#,
                "99",
                r#"{"nonce": 99 , "a":1.50}"#,
            ),
            (
                r#"{"a":{"nonce":1},"nonce":"12"}"#,
                "99",
                r#"{"a":{"nonce":1},"nonce":"99"}"#,
            ),
            (
                r#"{"a":["x,\"nonce\":1",{}],"non\u0063e":1}"#,
                "2",
                r#"{"a":["x,\"nonce\":1",{}],"non\u0063e":2}"#,
            ),
        ] {
            let at = find(text.as_bytes(), "nonce").unwrap().unwrap();
            let replaced = replace(text.as_bytes(), &at, value.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(replaced).unwrap(), wanted);
        }
        assert_eq!(find(br#"{"a":"nonce","b":["nonce"]}"#, "nonce"), Ok(None));
    }

    #[test]
    fn what_is_ambiguous_or_no_object_is_refused() {
        for text in [
            r#"{"nonce":1,"nonce":2}"#,
            r#"{"nonce":1,"non\u0063e":2}"#,
            "[1]",
            "{",
            "{}x",
            "",
        ] {
            assert_eq!(find(text.as_bytes(), "nonce"), Err(JsonMalformed), "{text}");
        }
        let text = br#"{"nonce":1}"#;
        let at = find(text, "nonce").unwrap().unwrap();
        assert_eq!(replace(text, &at, b"1,\"b\":2"), None);
    }
}
