//! The canonical request: the text that client, gateway and service each compute for a request.
//!
//! AWS General Reference, "Create a canonical request". A service decodes what it receives and
//! encodes it again. So this module does the same, and does not trust the client to have done it.

use std::borrow::Cow;

use gateway_message::pairs::ESCAPED;
use http::{HeaderMap, HeaderName};
use percent_encoding::{AsciiSet, percent_decode_str, percent_encode, utf8_percent_encode};

use super::Fault;

/// How a service makes a path canonical.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PathRule {
    /// Dot segments are resolved and doubled slashes joined.
    pub(super) normalise: bool,
    /// The path is escaped once more as written; otherwise it is decoded and escaped once.
    pub(super) double: bool,
}

impl PathRule {
    pub(super) const S3: PathRule = PathRule {
        normalise: false,
        double: false,
    };
    pub(super) const OTHERS: PathRule = PathRule {
        normalise: true,
        double: true,
    };
}

/// The parts of a canonical request.
pub(super) struct CanonicalRequest<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) rule: PathRule,
    /// Already canonical.
    pub(super) query: &'a str,
    pub(super) host: &'a str,
    pub(super) fields: &'a HeaderMap,
    /// Ascending; `host` refers to the argument.
    pub(super) signed: &'a [HeaderName],
    /// `host` is called `:authority`, which sorts before all others.
    pub(super) as_authority: bool,
    pub(super) payload: &'a str,
}

impl CanonicalRequest<'_> {
    /// The text that is hashed.
    pub(super) fn text(&self) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::with_capacity(512 + self.path.len() + self.query.len());
        line(&mut out, self.method.as_bytes());
        path(self.path, self.rule, &mut out);
        out.push(b'\n');
        line(&mut out, self.query.as_bytes());
        let is_apart = |name: &HeaderName| self.as_authority && *name == http::header::HOST;
        if self.as_authority {
            line(&mut out, format!(":authority:{}", self.host).as_bytes());
        }
        for name in self.signed.iter().filter(|name| !is_apart(name)) {
            out.extend_from_slice(name.as_str().as_bytes());
            out.push(b':');
            if *name == http::header::HOST {
                out.extend_from_slice(self.host.as_bytes());
            } else {
                values(self.fields, name, &mut out)?;
            }
            out.push(b'\n');
        }
        out.push(b'\n');
        if self.as_authority {
            out.extend_from_slice(b":authority;");
        }
        let names = self.signed.iter().filter(|name| !is_apart(name));
        line(&mut out, signed_names(names).as_bytes());
        out.extend_from_slice(self.payload.as_bytes());
        Ok(out)
    }
}

/// The list of names, as written in a signature.
pub(super) fn signed_names<'a>(signed: impl IntoIterator<Item = &'a HeaderName>) -> String {
    let mut text = String::with_capacity(128);
    for name in signed {
        if !text.is_empty() {
            text.push(';');
        }
        text.push_str(name.as_str());
    }
    text
}

/// A query's pairs, each encoded once and sorted; `keep` decides by the raw name which of them
/// count.
pub(super) fn query(raw: &str, keep: impl Fn(&str) -> bool, more: &[(&str, &str)]) -> String {
    let mut pairs: Vec<(Cow<'_, str>, Cow<'_, str>)> = raw
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(|(name, _)| keep(name))
        .map(|(name, value)| {
            (
                recoded(name, UrlPart::Query),
                recoded(value, UrlPart::Query),
            )
        })
        .chain(
            more.iter()
                .map(|(name, value)| (Cow::Borrowed(*name), encoded(value))),
        )
        .collect();
    pairs.sort();
    let mut text = String::with_capacity(raw.len() + 16);
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(&name);
        text.push('=');
        text.push_str(&value);
    }
    text
}

/// Escapes everything except the unreserved characters of RFC 3986.
pub(super) fn encoded(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, ESCAPED).into()
}

fn path(raw: &str, rule: PathRule, out: &mut Vec<u8>) {
    let path = if rule.normalise {
        normalised(raw)
    } else {
        Cow::Borrowed(raw)
    };
    let part = if rule.double {
        UrlPart::Escaped
    } else {
        UrlPart::Path
    };
    out.extend_from_slice(recoded(&path, part).as_bytes());
}

/// RFC 3986 §5.2.4; drops empty segments except a last one.
fn normalised(path: &str) -> Cow<'_, str> {
    if !path.contains("//") && !path.contains("/.") {
        return Cow::Borrowed(path);
    }
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    let mut text = String::with_capacity(path.len());
    for segment in &kept {
        text.push('/');
        text.push_str(segment);
    }
    let is_directory = ["/", "/.", "/.."].iter().any(|end| path.ends_with(end));
    if kept.is_empty() || is_directory {
        text.push('/');
    }
    Cow::Owned(text)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    /// Decoded and encoded; `+` is a space.
    Query,
    /// Decoded and encoded; a slash stays a slash.
    Path,
    /// Encoded as written; a slash stays a slash.
    Escaped,
}

/// A text as a service writes it after parsing it.
fn recoded(raw: &str, part: UrlPart) -> Cow<'_, str> {
    if is_recoded(raw.as_bytes(), part) {
        return Cow::Borrowed(raw);
    }
    let decoded: Cow<'_, [u8]> = match part {
        UrlPart::Escaped => raw.as_bytes().into(),
        UrlPart::Path => percent_decode_str(raw).into(),
        UrlPart::Query => percent_decode_str(&raw.replace('+', " "))
            .collect::<Vec<u8>>()
            .into(),
    };
    let escaped = match part {
        UrlPart::Query => ESCAPED,
        UrlPart::Path | UrlPart::Escaped => ESCAPED_IN_PATH,
    };
    Cow::Owned(percent_encode(&decoded, escaped).to_string())
}

/// Whether a text is already what a service would write, as from most clients.
fn is_recoded(mut rest: &[u8], part: UrlPart) -> bool {
    let is_itself = |byte: u8| is_unreserved(byte) || (byte == b'/' && part != UrlPart::Query);
    loop {
        match rest {
            [] => return true,
            [byte, after @ ..] if is_itself(*byte) => rest = after,
            [b'%', digits @ ..] if part != UrlPart::Escaped => match digits.split_at_checked(2) {
                // The service would rewrite an escape in lower case, or of a byte that needs none.
                Some((digits, after))
                    if base16ct::upper::decode(digits, &mut [0])
                        .is_ok_and(|value| !value.iter().copied().all(is_itself)) =>
                {
                    rest = after;
                }
                _ => return false,
            },
            _ => return false,
        }
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

const ESCAPED_IN_PATH: &AsciiSet = &ESCAPED.remove(b'/');

/// The values of a field, trimmed, with runs of white space collapsed to one space, joined by
/// commas.
fn values(fields: &HeaderMap, name: &HeaderName, out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut values = fields.get_all(name).iter();
    let first = values.next().ok_or_else(|| Fault::Absent(name.clone()))?;
    value(first.as_bytes(), out);
    for next in values {
        out.push(b',');
        value(next.as_bytes(), out);
    }
    Ok(())
}

fn value(raw: &[u8], out: &mut Vec<u8>) {
    let raw = raw.trim_ascii();
    let mut spaced = false;
    for &byte in raw {
        let is_space = byte.is_ascii_whitespace();
        if !(is_space && spaced) {
            out.push(if is_space { b' ' } else { byte });
        }
        spaced = is_space;
    }
}

fn line(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(raw: &str, rule: PathRule) -> String {
        let mut out = Vec::new();
        path(raw, rule, &mut out);
        String::from_utf8(out).unwrap()
    }

    /// The two folders of AWS's suite that have no key, and how S3 treats an object's key.
    #[test]
    fn a_path_is_encoded_once_for_s3_and_twice_for_others() {
        for (raw, once, twice) in [
            (
                "/test/@connections/JBDvjfGEIAMCERw%3D",
                "/test/%40connections/JBDvjfGEIAMCERw%3D",
                "/test/%40connections/JBDvjfGEIAMCERw%253D",
            ),
            (
                "/functions/arn%3Aaws%3Alambda",
                "/functions/arn%3Aaws%3Alambda",
                "/functions/arn%253Aaws%253Alambda",
            ),
            ("/a/./b/../c//d/", "/a/./b/../c//d/", "/a/c/d/"),
            (
                "/a+b (c)~%7e%2B",
                "/a%2Bb%20%28c%29~~%2B",
                "/a%2Bb%20%28c%29~%257e%252B",
            ),
            ("/%E1%88%B4", "/%E1%88%B4", "/%25E1%2588%25B4"),
            ("/%e1%88%b4%", "/%E1%88%B4%25", "/%25e1%2588%25b4%25"),
            ("/..", "/..", "/"),
            ("/a/..", "/a/..", "/"),
            ("/a/b/..", "/a/b/..", "/a/"),
            ("/a/.", "/a/.", "/a/"),
            ("//", "//", "/"),
            ("/.a/..b/", "/.a/..b/", "/.a/..b/"),
        ] {
            assert_eq!(path_of(raw, PathRule::S3), once);
            assert_eq!(path_of(raw, PathRule::OTHERS), twice);
        }
    }

    #[test]
    fn a_query_is_decoded_encoded_and_sorted() {
        for (raw, canonical) in [
            ("", ""),
            ("a", "a="),
            ("b=2&a=1", "a=1&b=2"),
            ("a=2&a=1&a", "a=&a=1&a=2"),
            ("a=b+c&d=e%20f", "a=b%20c&d=e%20f"),
            ("A=%7e&a=/?:@", "A=~&a=%2F%3F%3A%40"),
            ("&&a=1&", "a=1"),
            ("a=b=c", "a=b%3Dc"),
            ("%61=1&a%2d=2", "a=1&a-=2"),
            ("a-b=1&a=2&a%3D=3", "a=2&a%3D=3&a-b=1"),
        ] {
            assert_eq!(query(raw, |_| true, &[]), canonical, "{raw}");
            assert_eq!(query(canonical, |_| true, &[]), canonical, "{raw}");
        }
    }

    #[test]
    fn field_values_lose_white_space_and_keep_their_order() {
        let mut fields = HeaderMap::new();
        let name = HeaderName::from_static("my-header");
        for value in ["  a   b ", "\"c \t d\"", ""] {
            fields.append(
                &name,
                http::HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        let mut out = Vec::new();
        values(&fields, &name, &mut out).unwrap();
        assert_eq!(out, b"a b,\"c d\",");
        let absent = HeaderName::from_static("absent");
        assert_eq!(
            values(&fields, &absent, &mut out),
            Err(Fault::Absent(absent.clone()))
        );
    }
}
