//! The fields of a multipart form (`multipart/form-data`, RFC 7578), if all readers split it alike.

use std::ops::Range;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use memchr::memmem;

/// The fields with their names, and where each value stands. Files are left out, and so are parts
/// that some reader may see otherwise. `None` if some reader may split the content otherwise.
pub fn multipart_fields(head: &HeaderMap, content: &[u8]) -> Option<Vec<(String, Range<usize>)>> {
    let delimiter = format!("--{}", boundary(head)?);
    let mut starts = memmem::find_iter(content, &delimiter);
    let mut found = Vec::new();
    let mut start = starts.next().filter(|start| *start == 0)?;
    for _ in 0..MOST_PARTS {
        let from = start + delimiter.len();
        let rest = &content[from..];
        if matches!(rest, b"--" | b"--\r\n") {
            return Some(found);
        }
        start = starts.next()?;
        let end = start.checked_sub(2)?;
        let part = content.get(from..end)?.strip_prefix(b"\r\n")?;
        if &content[end..start] != b"\r\n" {
            return None;
        }
        let head = memmem::find(part, b"\r\n\r\n")?;
        let name = name_of(std::str::from_utf8(&part[..head]).ok()?)?;
        found.extend(name.map(|name| (name, from + 2 + head + 4..end)));
    }
    None
}

/// The boundary, if all readers find the same one.
fn boundary(head: &HeaderMap) -> Option<String> {
    let mut all = head.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (all.next(), all.next()) else {
        return None;
    };
    let mut parts = value.to_str().ok()?.split(';').map(str::trim);
    let is_form = parts.next()?.eq_ignore_ascii_case("multipart/form-data");
    let (Some(parameter), None) = (parts.next(), parts.next()) else {
        return None;
    };
    let (name, value) = parameter.split_once('=')?;
    let value = unquoted(value);
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"'()+_-./:=?".contains(&b);
    let is_plain = (1..=70).contains(&value.len()) && value.bytes().all(plain);
    (is_form && is_plain && name.eq_ignore_ascii_case("boundary")).then(|| value.to_owned())
}

/// The name of the field whose head this is: `Some(None)` if it is a file, or not plain.
fn name_of(head: &str) -> Option<Option<String>> {
    let (mut name, mut is_plain) = (None, true);
    for line in head.split("\r\n") {
        let (field, value) = line.split_once(':')?;
        if line.contains(['\r', '\n']) || field.contains(' ') {
            return None;
        }
        let value = value.trim();
        match &*field.to_ascii_lowercase() {
            "content-disposition" if name.is_none() => name = Some(disposition(value)),
            "content-type" => {
                let value = value.to_ascii_lowercase().replace(' ', "");
                is_plain &= matches!(&*value, "text/plain" | "text/plain;charset=utf-8");
            }
            "content-length" => {}
            _ => is_plain = false,
        }
    }
    Some(name?.filter(|_| is_plain))
}

/// The name in a disposition that has nothing else.
fn disposition(value: &str) -> Option<String> {
    let (kind, parameter) = value.split_once(';')?;
    let (name, value) = parameter.trim().split_once('=')?;
    let value = unquoted(value);
    let plain = |b: u8| b.is_ascii_graphic() && !b"\"\\%;,='".contains(&b);
    let is_field = kind.trim().eq_ignore_ascii_case("form-data")
        && name.eq_ignore_ascii_case("name")
        && value.bytes().all(plain);
    is_field.then(|| value.to_owned())
}

fn unquoted(text: &str) -> &str {
    let inner = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(text)
}

/// As many as frameworks read (Werkzeug's `max_form_parts`).
const MOST_PARTS: usize = 1_000;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn fields(kind: &'static str, content: &str) -> Option<Vec<(String, String)>> {
        let head = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        let found = multipart_fields(&head, content.as_bytes())?;
        let value = |(name, at): (String, Range<usize>)| (name, content[at].to_owned());
        Some(found.into_iter().map(value).collect())
    }

    const KIND: &str = "multipart/form-data; boundary=b-1";

    #[test]
    fn fields_are_found_and_files_are_not() {
        let content = "--b-1\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\nabc\r\n\
            --b-1\r\ncontent-disposition: form-data; name=\"file\"; filename=\"x\"\r\nContent-Type: image/png\r\n\r\n\r\n-b-1\r\n\
            --b-1\r\nContent-Disposition: form-data; name=empty\r\nContent-Type: text/plain; charset=UTF-8\r\n\r\n\r\n--b-1--\r\n";
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let expected = [("token", "abc"), ("empty", "")].map(own);
        assert_eq!(fields(KIND, content).unwrap(), expected);
        assert_eq!(
            fields("Multipart/Form-Data; boundary=\"b-1\"", content).unwrap(),
            expected
        );
    }

    #[test]
    fn a_form_that_splits_in_two_ways_is_not_read() {
        let part = "Content-Disposition: form-data; name=\"token\"\r\n\r\nabc";
        let whole = format!("--b-1\r\n{part}\r\n--b-1--\r\n");
        assert!(fields(KIND, &whole).is_some());
        for (kind, content) in [
            (KIND, format!("x\r\n{whole}")),
            (KIND, format!("{whole}x")),
            (KIND, whole.replace("abc\r\n", "abc\n")),
            (KIND, whole.replace("abc", "a--b-1c")),
            (KIND, whole.replace("--b-1--", "--b-1")),
            (KIND, whole.replace("--b-1\r\n", "--b-1 \r\n")),
            (KIND, whole.replace("\r\n\r\n", "\n\n")),
            (KIND, whole.replace("\r\n\r\n", "\r\nX: a\nb: c\r\n\r\n")),
            (KIND, whole.replace("\r\n\r\n", "\r\n folded\r\n\r\n")),
            (
                "multipart/form-data; boundary=b-1; boundary=c",
                whole.clone(),
            ),
            ("multipart/mixed; boundary=b-1", whole.clone()),
            ("multipart/form-data", whole.clone()),
        ] {
            assert!(fields(kind, &content).is_none(), "{kind} {content:?}");
        }
        for head in [
            "name=\"a%62\"",
            "name*=UTF-8''token",
            "name=\"a\"; x=y",
            "name=\"a\\\"b\"",
        ] {
            let content = whole.replace("name=\"token\"", head);
            assert_eq!(fields(KIND, &content).unwrap(), [], "{head}");
        }
    }
}
