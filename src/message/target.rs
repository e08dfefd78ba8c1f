//! Request targets: the one canonical path and query, judged and forwarded alike.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use http::uri::PathAndQuery;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::canonical::{canonical, is_plain, may_stand_in_query};
use gateway_names::ReasonCode;

/// What an encoded slash in a path means for an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EncodedSlash {
    /// `%2f` is refused, and so is a twice-encoded dot, slash or backslash: an origin that decodes
    /// once more than we do would see another path than the one judged.
    #[default]
    Refuse,
    /// `%2f` stays, as data within one segment; for origins known to read it that way (npm,
    /// GitLab).
    Keep,
    /// The path is an object key (S3). Nothing is resolved, because `.` and `..` are names there.
    /// `%2f` becomes a slash, because the origin reads both as one key.
    Key,
}

/// A canonical origin-form target: an absolute path and an optional query.
///
/// In canonical form, dot segments are resolved (RFC 3986 §5.2.4), unreserved characters decoded
/// once, other escapes in upper case, and characters that no URI may contain escaped. Doubled
/// slashes stay, because object keys may contain them: they are judged and forwarded as they are,
/// and [`RequestTarget::has_empty_segment`] reports them. In a query, a bare `;` becomes `%3B`, so
/// an origin that treats it as a separator cannot see a parameter that was not judged.
///
/// Two targets are equal if their canonical forms are.
#[derive(Clone)]
pub struct RequestTarget {
    canonical: PathAndQuery,
    /// What the client wrote, if different: the client may have signed that.
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
    /// More than 8 KiB, before or after canonicalisation.
    #[error("the request target is longer than 8 KiB")]
    TooLong,
    /// More than 1,000 query parameters.
    #[error("the query has more than 1,000 parameters")]
    TooManyParameters,
    /// An unescaped control, space, backslash, `#` or non-ASCII byte, or an encoded control or
    /// backslash in the path.
    #[error("the request target holds a character that it may not hold")]
    Character,
    /// A `%` without two hexadecimal digits, or escapes that are not UTF-8 (including overlong
    /// forms).
    #[error("the request target holds a broken escape")]
    Escape,
    /// An encoded slash, or a dot, slash or backslash that is encoded twice.
    #[error("the path holds an encoded slash or a doubly encoded separator")]
    EncodedSlash,
    /// Dot segments that leave the root, or that have parameters (`..;x`).
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
    /// Parses an origin-form target (RFC 9112 §3.2.1) into its canonical form.
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
        // A client that uses the HTTP library cannot have signed a target that its parser refuses.
        let sent = PathAndQuery::try_from(bytes).ok();
        Ok(target.sent_as(sent))
    }

    /// Parses what an HTTP library already split off; copies nothing if it is already canonical.
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

    /// The target as the client wrote it, if that is not the canonical form. Use it only to check
    /// what the client signed: it is neither judged nor forwarded.
    pub fn as_sent(&self) -> Option<RequestTarget> {
        let canonical = PathAndQuery::clone(self.sent.as_ref()?);
        Some(RequestTarget {
            canonical,
            sent: None,
        })
    }

    /// The canonical form in memory of its own: it keeps nothing alive of the buffer into which the
    /// request was read.
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

    /// Path and query, as they are forwarded.
    pub fn path_and_query(&self) -> &PathAndQuery {
        &self.canonical
    }

    /// Path and query, for the request line.
    #[must_use]
    pub fn into_path_and_query(self) -> PathAndQuery {
        self.canonical
    }

    /// The query parameters in order, decoded as form data (`+` is a space). A name may repeat, a
    /// value be empty.
    pub fn query_pairs(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        self.raw_pairs()
            .map(|(name, value)| (decoded(name), decoded(value)))
    }

    /// The path segments in order, still escaped; a doubled or trailing slash yields an empty one.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.path()[1..].split('/')
    }

    /// Whether it has two adjacent slashes, which some origins read as one.
    pub fn has_empty_segment(&self) -> bool {
        self.path().contains("//")
    }

    /// Whether the query asks the origin to treat the request as another method (`_method`,
    /// `$httpMethod` and the like).
    pub fn overrides_method(&self) -> bool {
        self.has_parameter(&METHOD_PARAMETERS)
    }

    /// Whether the query asks the origin to read other fields than those judged (`$httpHeaders`,
    /// `$ct`): they may include `Authorization`.
    pub fn overrides_fields(&self) -> bool {
        self.has_parameter(&FIELD_PARAMETERS)
    }

    fn has_parameter(&self, names: &[&str]) -> bool {
        self.query_pairs()
            .any(|(name, _)| names.iter().any(|known| name.eq_ignore_ascii_case(known)))
    }

    /// The same target with a new value for the parameter at `index` (as
    /// [`RequestTarget::query_pairs`] counts).
    ///
    /// The value is escaped so that it stays one value, whatever it contains, and the result is
    /// checked like a target from a client.
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

    /// The same target with a new path segment at `index` (as [`RequestTarget::segments`] counts).
    ///
    /// # Errors
    /// As [`RequestTarget::with_query_value`], and [`TargetMalformed::DotSegment`] or
    /// [`TargetMalformed::EncodedSlash`] if the value would change the structure of the path.
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

    /// Its encoded slashes were allowed when it was first parsed.
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

/// Every escape was checked to be UTF-8, so this loses nothing.
fn decoded(raw: &str) -> Cow<'_, str> {
    if !raw.contains(['+', '%']) {
        return Cow::Borrowed(raw);
    }
    let spaced = raw.replace('+', " ");
    Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}

/// Query parameters from which frameworks take another method.
const METHOD_PARAMETERS: [&str; 5] = [
    "_method",
    "$httpMethod",
    "$.httpMethod",
    "x-http-method-override",
    "x-http-method",
];
/// Query parameters from which Google's services take fields (Cloud APIs, "System parameters";
/// Closure's `HttpCors`).
const FIELD_PARAMETERS: [&str; 4] = ["$httpHeaders", "$.httpHeaders", "$ct", "$.ct"];
/// RFC 9110 §4.1 requires at least 8,000.
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
