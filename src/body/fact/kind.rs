//! The readable format that a request declares for its content.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// A format from which facts are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ContentKind {
    /// `application/json`, or another `application` type that ends with `+json` (RFC 6839 §3.1).
    Json,
    /// `application/x-www-form-urlencoded`.
    Form,
}

impl ContentKind {
    /// The declared format. `None` unless it is declared exactly once, and in UTF-8.
    pub fn of(fields: &HeaderMap) -> Option<Self> {
        let mut all = fields.get_all(CONTENT_TYPE).iter();
        let (Some(value), None) = (all.next(), all.next()) else {
            return None;
        };
        let text = value.to_str().ok()?.to_ascii_lowercase();
        // Readers that join fields may see a second type after a comma.
        if text.contains(',') {
            return None;
        }
        let mut parts = text.split(';').map(str::trim);
        let kind = Self::of_essence(parts.next()?)?;
        is_utf8(parts).then_some(kind)
    }

    fn of_essence(essence: &str) -> Option<Self> {
        let (top, sub) = essence.split_once('/')?;
        let is_token = |text: &str| !text.is_empty() && text.bytes().all(is_token_byte);
        if !is_token(top) || !is_token(sub) {
            return None;
        }
        match (top, sub) {
            ("application", "json") => Some(Self::Json),
            ("application", "x-www-form-urlencoded") => Some(Self::Form),
            // Tornado, for one, compares only the start of the type.
            ("application", sub) if sub.starts_with("x-www-form-urlencoded") => None,
            ("application", sub) if sub.ends_with("+json") => Some(Self::Json),
            _ => None,
        }
    }
}

/// Whether the content is declared as plain text in UTF-8, or as nothing.
pub(crate) fn is_text(fields: &HeaderMap) -> bool {
    let mut all = fields.get_all(CONTENT_TYPE).iter();
    let Some(value) = all.next() else { return true };
    let text = value.to_str().unwrap_or_default().to_ascii_lowercase();
    let mut parts = text.split(';').map(str::trim);
    let is_one = all.next().is_none() && !text.contains(',');
    is_one && parts.next() == Some("text/plain") && is_utf8(parts)
}

/// Whether the parameters name no charset, or UTF-8 exactly once.
fn is_utf8<'a>(parameters: impl Iterator<Item = &'a str>) -> bool {
    let mut named = 0;
    for parameter in parameters.filter(|text| text.contains("charset")) {
        let Some((name, value)) = parameter.split_once('=') else {
            return false;
        };
        let quoted = value
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'));
        if name != "charset" || quoted.unwrap_or(value) != "utf-8" {
            return false;
        }
        named += 1;
    }
    named <= 1
}

/// RFC 9110 §5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
