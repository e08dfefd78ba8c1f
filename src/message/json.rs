//! Members of a JSON document, found in place, so that every other byte of it stays.

use std::ops::Range;

/// The members of the object or array that starts at an index: the name of each with its quotes,
/// empty in an array, and where its value is. None if neither starts there.
///
/// The text must have been parsed as JSON, since this walk does not check the grammar.
pub fn members(text: &str, at: usize) -> impl Iterator<Item = (&str, Range<usize>)> {
    let byte = |at: usize| text.as_bytes().get(at).copied();
    let opens = byte(at);
    let mut at = matches!(opens, Some(b'{' | b'[')).then(|| skip_space(text, at + 1));
    std::iter::from_fn(move || {
        let start = at.filter(|start| !matches!(byte(*start), None | Some(b'}' | b']')))?;
        let name = match opens {
            Some(b'{') => start..value_end(text, start),
            _ => start..start,
        };
        let value = match name.is_empty() {
            true => start,
            false => skip_space(text, skip_space(text, name.end) + 1),
        };
        let end = value_end(text, value);
        let after = skip_space(text, end);
        let more = byte(after) == Some(b',');
        at = more.then(|| skip_space(text, after + 1));
        Some((&text[name], value..end))
    })
}

/// The index of the first byte from `at` on that is no white space.
pub fn skip_space(text: &str, at: usize) -> usize {
    let rest = text.as_bytes().iter().skip(at);
    at + rest.take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// The index after the value that starts here.
pub fn value_end(text: &str, start: usize) -> usize {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate().skip(start) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' | b',' | b' ' | b'\t' | b'\r' | b'\n' if depth == 0 => return at,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        let closed = matches!(byte, b'"' | b'}' | b']') && !in_string && depth == 0;
        if closed && at > start {
            return at + 1;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_where_they_are() {
        let text = r#" { "a" : [1, {"b":2}] ,"c\"":"x,}\\" } "#;
        let of = |at| members(text, at).map(|(name, value)| (name, &text[value]));
        let found: Vec<_> = of(1).collect();
        assert_eq!(
            found,
            [(r#""a""#, r#"[1, {"b":2}]"#), (r#""c\"""#, r#""x,}\\""#)]
        );
        let list: Vec<_> = of(text.find('[').unwrap()).collect();
        assert_eq!(list, [("", "1"), ("", r#"{"b":2}"#)]);
        for (empty, at) in [("{}", 0), ("[ ]", 0), ("1", 0), ("", 0), ("{}", 9)] {
            assert_eq!(members(empty, at).count(), 0, "{empty}");
        }
    }
}
