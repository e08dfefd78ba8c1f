//! Request targets: the canonical path and query, judged and forwarded alike.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use http::uri::PathAndQuery;
use percent_encoding::{AsciiSet, utf8_percent_encode};

use super::canonical::{canonical, is_plain, may_stand_in_query};
use super::pairs::{ESCAPED, form_text};
use super::parameter::parameter_names;
use super::path_pattern::other_readings;
use super::target_form::{EncodedSlash, TargetMalformed};

/// A canonical origin-form target: an absolute path and an optional query.
///
/// In canonical form, dot segments are resolved (RFC 3986 §5.2.4), unreserved characters are
/// decoded once, other escapes are in upper case, and characters that no URI may contain are
/// escaped. Doubled slashes stay, because object keys may contain them, and are judged and
/// forwarded as they are. In a query, a bare `;` becomes `%3B`, so an origin that treats it as a
/// separator cannot see a parameter that was not judged.
///
/// Two targets are equal if their canonical forms are.
#[derive(Clone)]
pub struct RequestTarget {
    canonical: PathAndQuery,
    /// The target as the client wrote it, if different. The client may have signed that one.
    sent: Option<Box<PathAndQuery>>,
}

impl PartialEq for RequestTarget {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for RequestTarget {}

impl std::hash::Hash for RequestTarget {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.canonical.hash(state);
    }
}

impl RequestTarget {
    /// Parses an origin-form target (RFC 9112 §3.2.1) into its canonical form.
    ///
    /// Parsing the canonical form again changes nothing.
    ///
    /// # Errors
    /// [`TargetMalformed`] by cause. Asterisk-form and authority-form are
    /// [`TargetMalformed::Form`].
    pub fn parse(bytes: &[u8], slashes: EncodedSlash) -> Result<RequestTarget, TargetMalformed> {
        check_shape(bytes)?;
        if is_plain(bytes) {
            return RequestTarget::from_canonical(bytes.to_vec());
        }
        let target = RequestTarget::from_canonical(canonical(bytes, slashes)?)?;
        // A client that uses the HTTP library cannot have signed a target that its parser refuses.
        let sent = PathAndQuery::try_from(bytes).ok();
        Ok(target.sent_as(sent))
    }

    /// Parses a target that an HTTP library already split off. Copies nothing if it is canonical.
    ///
    /// # Errors
    /// As [`RequestTarget::parse`].
    pub fn from_parsed(
        target: &PathAndQuery,
        slashes: EncodedSlash,
    ) -> Result<RequestTarget, TargetMalformed> {
        let bytes = target.as_str().as_bytes();
        check_shape(bytes)?;
        if is_plain(bytes) {
            return Ok(RequestTarget {
                canonical: target.clone(),
                sent: None,
            });
        }
        let canonical = RequestTarget::from_canonical(canonical(bytes, slashes)?)?;
        Ok(canonical.sent_as(Some(target.clone())))
    }

    /// Parses a target as policies and records write it, in which [`LENT`] may stand once in the
    /// path.
    ///
    /// # Errors
    /// As [`RequestTarget::parse`].
    pub fn judged(bytes: &[u8], slashes: EncodedSlash) -> Result<RequestTarget, TargetMalformed> {
        let target = RequestTarget::parse(bytes, slashes)?;
        let path = bytes.split(|byte| *byte == b'?').next().unwrap_or_default();
        let written = memchr::memmem::find_iter(path, LENT.as_bytes()).count();
        let mut escaped = memchr::memmem::find_iter(target.path().as_bytes(), ESCAPED_LENT);
        match (written, escaped.next(), escaped.next()) {
            (1, Some(at), None) => Ok(target.lending(at..at + ESCAPED_LENT.len())),
            _ => Ok(target),
        }
    }

    /// The same target with [`LENT`] in place of a part of the path.
    #[must_use]
    pub fn lending(&self, part: Range<usize>) -> RequestTarget {
        let whole = self.canonical.as_str();
        let whole = format!("{}{LENT}{}", &whole[..part.start], &whole[part.end..]);
        RequestTarget {
            canonical: whole.try_into().expect("a path with braces parses"),
            sent: None,
        }
    }

    /// The same target with a text in place of [`LENT`]. It is escaped and checked like a target
    /// from a client, and stays one segment.
    ///
    /// # Errors
    /// [`TargetMalformed::NoSuchParameter`] without a [`LENT`], otherwise by cause.
    pub fn with_lent(&self, text: &str) -> Result<RequestTarget, TargetMalformed> {
        let (before, after) = self
            .canonical
            .as_str()
            .split_once(LENT)
            .ok_or(TargetMalformed::NoSuchParameter)?;
        let whole = format!("{before}{}{after}", utf8_percent_encode(text, IN_SEGMENT));
        // Its encoded slashes were allowed when it was first parsed.
        let target = RequestTarget::parse(whole.as_bytes(), EncodedSlash::Keep)?;
        if target.canonical.as_str() == whole && !text.contains(['/', '?', '#', '%']) {
            Ok(target)
        } else {
            Err(TargetMalformed::EncodedSlash)
        }
    }

    /// The target as the client wrote it, if that differs from the canonical form. Use it only to
    /// check what the client signed: it is neither judged nor forwarded.
    pub fn as_sent(&self) -> Option<RequestTarget> {
        let canonical = PathAndQuery::clone(self.sent.as_ref()?);
        Some(RequestTarget {
            canonical,
            sent: None,
        })
    }

    /// Copies the canonical form, so that it does not keep alive the buffer into which the request
    /// was read.
    #[must_use]
    pub fn detached(&self) -> RequestTarget {
        let copied = PathAndQuery::try_from(self.canonical.as_str());
        RequestTarget {
            canonical: copied.expect("a path and query parses again"),
            sent: None,
        }
    }

    fn sent_as(mut self, sent: Option<PathAndQuery>) -> RequestTarget {
        self.sent = sent.filter(|sent| *sent != self.canonical).map(Box::new);
        self
    }

    /// The canonical path, always starting with `/`.
    pub fn path(&self) -> &str {
        self.canonical.path()
    }

    /// The canonical query without its `?`.
    pub fn query(&self) -> Option<&str> {
        self.canonical.query()
    }

    /// The target in the [other readings](other_readings) that origins may have of its path. They
    /// are judged like the target itself, and never forwarded.
    pub fn other_readings(&self) -> Vec<RequestTarget> {
        let query = self.query().map(|query| format!("?{query}"));
        let query = query.unwrap_or_default();
        let read = |path: String| {
            let canonical = PathAndQuery::try_from(path + &query);
            let canonical = canonical.expect("a part of a path is a path");
            RequestTarget {
                canonical,
                sent: None,
            }
        };
        let readings = other_readings(self.path());
        readings.into_iter().map(read).collect()
    }

    /// Path and query, as they are forwarded.
    pub fn path_and_query(&self) -> &PathAndQuery {
        &self.canonical
    }

    /// Path and query, for the request line.
    #[must_use]
    pub fn into_path_and_query(self) -> PathAndQuery {
        self.canonical
    }

    /// The query parameters in order, decoded as form data (`+` is a space), which loses nothing:
    /// every escape was checked to be UTF-8. Names may repeat, and values may be empty.
    pub fn query_pairs(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        self.raw_pairs()
            .map(|(name, value)| (form_text(name), form_text(value)))
    }

    /// The path segments in order, still escaped. A doubled or trailing slash yields an empty one.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.path()[1..].split('/')
    }

    /// Whether the query asks the origin to treat the request as another method (`_method`,
    /// `$httpMethod` and the like).
    pub fn overrides_method(&self) -> bool {
        self.has_parameter(&METHOD_PARAMETERS)
    }

    /// Whether the query asks the origin to read other fields than those judged (`$httpHeaders`,
    /// `$ct`). They may include `Authorization`.
    pub fn overrides_fields(&self) -> bool {
        self.has_parameter(&FIELD_PARAMETERS)
    }

    fn has_parameter(&self, names: &[&str]) -> bool {
        let is_one = |name: &Cow<'_, str>| names.iter().any(|one| name.eq_ignore_ascii_case(one));
        self.query_pairs()
            .any(|(name, _)| parameter_names(&name).iter().any(is_one))
    }

    /// Replaces the value of the parameter at `index`, counted as in
    /// [`RequestTarget::query_pairs`].
    ///
    /// The value is escaped so that it stays one value, whatever it contains, and the result is
    /// checked like a target from a client.
    ///
    /// # Errors
    /// [`TargetMalformed::NoSuchParameter`] if there is none, [`TargetMalformed::TooLong`] if the
    /// result is too long.
    pub fn with_query_value(
        &self,
        index: usize,
        value: &str,
    ) -> Result<RequestTarget, TargetMalformed> {
        let query = self.query().ok_or(TargetMalformed::NoSuchParameter)?;
        let range = parameter(query, index).ok_or(TargetMalformed::NoSuchParameter)?;
        let pair = &query[range.clone()];
        let name = pair.split_once('=').map_or(pair, |(name, _)| name);
        let value = utf8_percent_encode(value, ESCAPED);
        let (before, after) = (&query[..range.start], &query[range.end..]);
        self.with_query(&format!("{before}{name}={value}{after}"))
    }

    /// The same path, byte for byte, with another query, which must already be escaped.
    ///
    /// # Errors
    /// [`TargetMalformed::TooLong`], [`TargetMalformed::TooManyParameters`], or
    /// [`TargetMalformed::Character`] for a query with a character that no query may contain.
    pub fn with_query(&self, query: &str) -> Result<RequestTarget, TargetMalformed> {
        let text = format!("{}?{query}", self.path());
        check_shape(text.as_bytes())?;
        if !query.bytes().all(may_stand_in_query) {
            return Err(TargetMalformed::Character);
        }
        RequestTarget::from_canonical(text.into_bytes())
    }

    fn from_canonical(canonical: Vec<u8>) -> Result<RequestTarget, TargetMalformed> {
        if canonical.len() > LONGEST {
            return Err(TargetMalformed::TooLong);
        }
        let target = PathAndQuery::from_maybe_shared(Bytes::from(canonical))
            .map_err(|_| TargetMalformed::Character)?;
        Ok(RequestTarget {
            canonical: target,
            sent: None,
        })
    }

    fn raw_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let query = self.query().filter(|query| !query.is_empty());
        query
            .into_iter()
            .flat_map(|query| query.split('&'))
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }
}

/// Shows the path and hides the query, which may contain a secret once credentials are attached.
impl fmt::Debug for RequestTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = if self.query().is_some() { "?…" } else { "" };
        write!(
            f,
            "RequestTarget({} segments{query})",
            self.segments().count()
        )
    }
}

fn check_shape(bytes: &[u8]) -> Result<(), TargetMalformed> {
    if bytes.first() != Some(&b'/') {
        return Err(TargetMalformed::Form);
    }
    if bytes.len() > LONGEST {
        return Err(TargetMalformed::TooLong);
    }
    let separators = || bytes.iter().filter(|b| **b == b'&').count();
    if bytes.len() > MOST_PARAMETERS && separators() >= MOST_PARAMETERS {
        return Err(TargetMalformed::TooManyParameters);
    }
    Ok(())
}

/// The range of the parameter at `index`.
fn parameter(query: &str, index: usize) -> Option<std::ops::Range<usize>> {
    let mut start = 0;
    for (at, piece) in query.split('&').enumerate() {
        if at == index {
            return Some(start..start + piece.len());
        }
        start += piece.len() + 1;
    }
    None
}

/// Query parameters that make frameworks use another method.
const METHOD_PARAMETERS: [&str; 5] = [
    "_method",
    "$httpMethod",
    "$.httpMethod",
    "x-http-method-override",
    "x-http-method",
];
/// Query parameters that make Google's services use other fields (Cloud APIs, "System parameters";
/// Closure's `HttpCors`).
const FIELD_PARAMETERS: [&str; 4] = ["$httpHeaders", "$.httpHeaders", "$ct", "$.ct"];
/// The placeholder in a path for a credential that is lent there. No client can write it: braces
/// are always escaped in a canonical path.
pub const LENT: &str = "{}";
const ESCAPED_LENT: &str = "%7B%7D";
/// The bytes to escape within a segment (RFC 3986 §3.3). Some origins cut a segment at a `;`.
const IN_SEGMENT: &AsciiSet = &ESCAPED
    .remove(b':')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b'=');
/// RFC 9110 §4.1 requires at least 8,000.
const LONGEST: usize = 8192;
const MOST_PARAMETERS: usize = 1000;
#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
