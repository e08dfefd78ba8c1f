//! Request targets: the one canonical path and query, judged and forwarded alike.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use http::uri::PathAndQuery;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::canonical::{canonical, is_plain, may_stand_in_query};
use crate::names::ReasonCode;

/// What an encoded slash in a path means for an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EncodedSlash {
    /// `%2f` is refused, and so is a twice encoded dot, slash or backslash: an origin that decodes
    /// once more than we do would see another path than was judged.
    #[default]
    Refuse,
    /// `%2f` stays, as data within one segment; for origins known to take it so (npm, GitLab).
    Keep,
    /// The path is the key of an object (S3): nothing is resolved, since `.` and `..` are names
    /// there, and `%2f` is the slash that it encodes, since the origin takes both for one key.
    Key,
}

/// A canonical origin-form target: an absolute path and an optional query.
///
/// The canonical form: dot segments resolved (RFC 3986 §5.2.4), unreserved characters decoded once,
/// other escapes in upper case, and characters that no URI may hold escaped. Doubled slashes stay,
/// because object keys may hold them: they are judged and forwarded as they are, and
/// [`RequestTarget::has_empty_segment`] tells of them. In a query a bare `;` becomes `%3B`, so that
/// an origin for which it separates parameters cannot see one that was not judged.
///
/// Two are equal whose canonical forms are.
#[derive(Clone)]
pub struct RequestTarget {
    canonical: PathAndQuery,
    /// What the client wrote, where that is something else: it may have signed that.
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

/// Why bytes are not a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetMalformed {
    /// Not origin-form: no leading slash, `*`, or a bare authority.
    #[error("the request target is not an absolute path")]
    Form,
    /// More than 8 KiB, before or after it was made canonical.
    #[error("the request target is longer than 8 KiB")]
    TooLong,
    /// More than 1,000 query parameters.
    #[error("the query has more than 1,000 parameters")]
    TooManyParameters,
    /// A control, a space, a backslash, `#` or a non-ASCII byte stands bare, or an encoded control
    /// or backslash in the path.
    #[error("the request target holds a character that it may not hold")]
    Character,
    /// A `%` without two hexadecimal digits, or escapes that are not UTF-8 (which takes in overlong
    /// forms).
    #[error("the request target holds a broken escape")]
    Escape,
    /// An encoded slash, or a dot, slash or backslash that is encoded twice.
    #[error("the path holds an encoded slash or a doubly encoded separator")]
    EncodedSlash,
    /// Dot segments that leave the root, or that wear parameters (`..;x`).
    #[error("the path leaves its root or hides a dot segment")]
    DotSegment,
    /// No query parameter or segment has this index.
    #[error("the request target has no such part")]
    NoSuchPart,
}

impl TargetMalformed {
    /// The short code for refusals and audit records.
    pub fn reason(&self) -> ReasonCode {
        match self {
            TargetMalformed::Form => ReasonCode::TargetForm,
            TargetMalformed::TooLong | TargetMalformed::TooManyParameters => {
                ReasonCode::TargetLength
            }
            TargetMalformed::Character
            | TargetMalformed::Escape
            | TargetMalformed::EncodedSlash
            | TargetMalformed::DotSegment
            | TargetMalformed::NoSuchPart => ReasonCode::Path,
        }
    }
}

impl RequestTarget {
    /// Reads an origin-form target (RFC 9112 §3.2.1) into its canonical form.
    ///
    /// Parsing the canonical form again changes nothing.
    ///
    /// # Errors
    /// By cause, see [`TargetMalformed`]; asterisk-form and authority-form are
    /// [`TargetMalformed::Form`].
    pub fn parse(bytes: &[u8], slashes: EncodedSlash) -> Result<RequestTarget, TargetMalformed> {
        check_shape(bytes)?;
        if is_plain(bytes) {
            return RequestTarget::from_canonical(bytes.to_vec());
        }
        let target = RequestTarget::from_canonical(canonical(bytes, slashes)?)?;
        // What the parser of the HTTP library does not take was not signed by a client that uses
        // one.
        let sent = PathAndQuery::try_from(bytes).ok();
        Ok(target.sent_as(sent))
    }

    /// Reads what an HTTP library already split off, without copying it if it is canonical as it
    /// stands.
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

    /// The target as the client wrote it, where that is not the canonical form: for a look at what
    /// the client signed, and for nothing else. It is neither judged nor forwarded.
    pub(crate) fn as_sent(&self) -> Option<RequestTarget> {
        let canonical = PathAndQuery::clone(self.sent.as_ref()?);
        Some(RequestTarget {
            canonical,
            sent: None,
        })
    }

    /// The canonical form in memory of its own: it keeps nothing alive of the buffer into which the
    /// request was read.
    #[must_use]
    pub(crate) fn detached(&self) -> RequestTarget {
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

    /// The canonical path, always beginning with `/`.
    pub fn path(&self) -> &str {
        self.canonical.path()
    }

    /// The canonical query without its `?`.
    pub fn query(&self) -> Option<&str> {
        self.canonical.query()
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

    /// The parameters of the query in order, decoded as form data (`+` is a space); a name may
    /// repeat, a value be empty.
    pub fn query_pairs(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        self.raw_pairs()
            .map(|(name, value)| (decoded(name), decoded(value)))
    }

    /// The segments of the path in order, still escaped; a doubled or trailing slash yields an
    /// empty one.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.path()[1..].split('/')
    }

    /// Whether two slashes stand side by side, which some origins read as one.
    pub fn has_empty_segment(&self) -> bool {
        self.path().contains("//")
    }

    /// Whether the query asks the origin to treat the request as another method (`_method`,
    /// `$httpMethod` and kin).
    pub fn overrides_method(&self) -> bool {
        self.has_parameter(&METHOD_PARAMETERS)
    }

    /// Whether the query asks the origin to read other fields than those that were judged
    /// (`$httpHeaders`, `$ct`): among them may be `Authorization`.
    pub fn overrides_fields(&self) -> bool {
        self.has_parameter(&FIELD_PARAMETERS)
    }

    fn has_parameter(&self, names: &[&str]) -> bool {
        self.query_pairs()
            .any(|(name, _)| names.iter().any(|known| name.eq_ignore_ascii_case(known)))
    }

    /// The same target with the value of the parameter at `index` (as
    /// [`RequestTarget::query_pairs`] counts) replaced.
    ///
    /// The value is escaped so that it stays one value whatever it holds, and the result is checked
    /// like a target from a client.
    ///
    /// # Errors
    /// [`TargetMalformed::NoSuchPart`] if there is no such parameter, [`TargetMalformed::TooLong`]
    /// if the result is too long.
    pub fn with_query_value(
        &self,
        index: usize,
        value: &str,
    ) -> Result<RequestTarget, TargetMalformed> {
        let query = self.query().ok_or(TargetMalformed::NoSuchPart)?;
        let start = part(query, b'&', index).ok_or(TargetMalformed::NoSuchPart)?;
        let pair = &query[start.clone()];
        let name = pair.split_once('=').map_or(pair, |(name, _)| name);
        let value = utf8_percent_encode(value, VALUE);
        let (before, after) = (&query[..start.start], &query[start.end..]);
        self.again(format!("{}?{before}{name}={value}{after}", self.path()))
    }

    /// The same target with the path segment at `index` (as [`RequestTarget::segments`] counts)
    /// replaced.
    ///
    /// # Errors
    /// As [`RequestTarget::with_query_value`], and [`TargetMalformed::DotSegment`] or
    /// [`TargetMalformed::EncodedSlash`] if the value would change the shape of the path.
    pub fn with_segment(
        &self,
        index: usize,
        value: &str,
    ) -> Result<RequestTarget, TargetMalformed> {
        if value.contains(['/', '\\']) {
            return Err(TargetMalformed::EncodedSlash);
        }
        if value.is_empty() || value.split(';').any(|piece| matches!(piece, "." | "..")) {
            return Err(TargetMalformed::DotSegment);
        }
        let path = &self.path()[1..];
        let range = part(path, b'/', index).ok_or(TargetMalformed::NoSuchPart)?;
        let query = self
            .query()
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        let value = utf8_percent_encode(value, SEGMENT);
        self.again(format!(
            "/{}{value}{}{query}",
            &path[..range.start],
            &path[range.end..]
        ))
    }

    /// The same path, byte for byte, with another query, which must be escaped already.
    ///
    /// # Errors
    /// [`TargetMalformed::TooLong`], [`TargetMalformed::TooManyParameters`], or
    /// [`TargetMalformed::Character`] for a query that holds what no query may.
    pub fn with_query(&self, query: &str) -> Result<RequestTarget, TargetMalformed> {
        let text = format!("{}?{query}", self.path());
        check_shape(text.as_bytes())?;
        if !query.bytes().all(may_stand_in_query) {
            return Err(TargetMalformed::Character);
        }
        RequestTarget::from_canonical(text.into_bytes())
    }

    /// Encoded slashes that stand in it were allowed when it was first read.
    fn again(&self, text: String) -> Result<RequestTarget, TargetMalformed> {
        RequestTarget::parse(text.as_bytes(), EncodedSlash::Keep)
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

/// Shows the path and hides the query, which may hold a secret once credentials are in.
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

/// The range of the piece at `index` between separators.
fn part(text: &str, separator: u8, index: usize) -> Option<std::ops::Range<usize>> {
    let mut start = 0;
    for (at, piece) in text.split(char::from(separator)).enumerate() {
        if at == index {
            return Some(start..start + piece.len());
        }
        start += piece.len() + 1;
    }
    None
}

/// Every escape was checked to be UTF-8, so nothing is lost here.
fn decoded(raw: &str) -> Cow<'_, str> {
    if !raw.contains(['+', '%']) {
        return Cow::Borrowed(raw);
    }
    let spaced = raw.replace('+', " ");
    Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}

/// Names by which frameworks take another method from a query.
const METHOD_PARAMETERS: [&str; 5] = [
    "_method",
    "$httpMethod",
    "$.httpMethod",
    "x-http-method-override",
    "x-http-method",
];
/// Names by which Google's services take fields from a query (Cloud APIs, "System parameters";
/// Closure's `HttpCors`).
const FIELD_PARAMETERS: [&str; 4] = ["$httpHeaders", "$.httpHeaders", "$ct", "$.ct"];
/// RFC 9110 §4.1 asks for 8,000 at least.
const LONGEST: usize = 8192;
const MOST_PARAMETERS: usize = 1000;
/// Everything but the unreserved characters is escaped in a substituted value.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// As in a value, but `:` stands bare in a path (`/bot123:abc/`).
const SEGMENT: &AsciiSet = &VALUE.remove(b':').remove(b'@').remove(b'=');

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
