//! Request targets: the one canonical path and query, judged and forwarded alike.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use http::uri::PathAndQuery;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What an encoded slash in a path means for an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EncodedSlash {
    /// `%2f` is refused, and so is a twice encoded dot, slash or backslash: an origin that decodes once more than we do
    /// would see another path than was judged.
    #[default]
    Refuse,
    /// `%2f` stays, as data within one segment; for origins known to take it so (npm, GitLab).
    Keep,
    /// The path is the key of an object (S3): nothing is resolved, since `.` and `..` are names there, and `%2f` is the
    /// slash that it encodes, since the origin takes both for one key.
    Key,
}

/// A canonical origin-form target: an absolute path and an optional query.
///
/// The canonical form: dot segments resolved (RFC 3986 §5.2.4), unreserved characters decoded once, other escapes in upper
/// case, and characters that no URI may hold escaped. Doubled slashes stay, because object keys may hold them: they are
/// judged and forwarded as they are, and [`RequestTarget::has_empty_segment`] tells of them. In a query a bare `;` becomes
/// `%3B`, so that an origin for which it separates parameters cannot see one that was not judged.
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
    /// A control, a space, a backslash, `#` or a non-ASCII byte stands bare, or an encoded control or backslash in the path.
    #[error("the request target holds a character that it may not hold")]
    Character,
    /// A `%` without two hexadecimal digits, or escapes that are not UTF-8 (which takes in overlong forms).
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
    pub fn reason(&self) -> &'static str {
        match self {
            TargetMalformed::Form => "target_form",
            TargetMalformed::TooLong | TargetMalformed::TooManyParameters => "target_length",
            TargetMalformed::Character
            | TargetMalformed::Escape
            | TargetMalformed::EncodedSlash
            | TargetMalformed::DotSegment
            | TargetMalformed::NoSuchPart => "path",
        }
    }

    /// Whether the answer is 414 and not 400.
    pub fn is_too_long(&self) -> bool {
        matches!(
            self,
            TargetMalformed::TooLong | TargetMalformed::TooManyParameters
        )
    }
}

impl RequestTarget {
    /// Reads an origin-form target (RFC 9112 §3.2.1) into its canonical form.
    ///
    /// Parsing the canonical form again changes nothing.
    ///
    /// # Errors
    /// By cause, see [`TargetMalformed`]; asterisk-form and authority-form are [`TargetMalformed::Form`].
    pub fn parse(bytes: &[u8], slashes: EncodedSlash) -> Result<RequestTarget, TargetMalformed> {
        check_shape(bytes)?;
        if is_plain(bytes) {
            return RequestTarget::from_canonical(bytes.to_vec());
        }
        let target = RequestTarget::from_canonical(canonical(bytes, slashes)?)?;
        // What the parser of the HTTP library does not take was not signed by a client that uses one.
        let sent = PathAndQuery::try_from(bytes).ok();
        Ok(target.sent_as(sent))
    }

    /// Reads what an HTTP library already split off, without copying it if it is canonical as it stands.
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

    /// The target as the client wrote it, where that is not the canonical form: for a look at what the client signed, and for
    /// nothing else. It is neither judged nor forwarded.
    pub(crate) fn as_sent(&self) -> Option<RequestTarget> {
        let canonical = PathAndQuery::clone(self.sent.as_ref()?);
        Some(RequestTarget {
            canonical,
            sent: None,
        })
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

    /// The parameters of the query in order, decoded as form data (`+` is a space); a name may repeat, a value be empty.
    pub fn query_pairs(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        self.raw_pairs()
            .map(|(name, value)| (decoded(name), decoded(value)))
    }

    /// The segments of the path in order, still escaped; a doubled or trailing slash yields an empty one.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.path()[1..].split('/')
    }

    /// Whether two slashes stand side by side, which some origins read as one.
    pub fn has_empty_segment(&self) -> bool {
        self.path().contains("//")
    }

    /// Whether the query asks the origin to treat the request as another method (`_method`, `$httpMethod` and kin).
    pub fn overrides_method(&self) -> bool {
        self.query_pairs().any(|(name, _)| {
            METHOD_PARAMETERS
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known))
        })
    }

    /// The same target with the value of the parameter at `index` (as [`RequestTarget::query_pairs`] counts) replaced.
    ///
    /// The value is escaped so that it stays one value whatever it holds, and the result is checked like a target from a client.
    ///
    /// # Errors
    /// [`TargetMalformed::NoSuchPart`] if there is no such parameter, [`TargetMalformed::TooLong`] if the result is too long.
    pub fn with_query_value(&self, index: usize, value: &str) -> Result<RequestTarget, TargetMalformed> {
        let query = self.query().ok_or(TargetMalformed::NoSuchPart)?;
        let start = part(query, b'&', index).ok_or(TargetMalformed::NoSuchPart)?;
        let pair = &query[start.clone()];
        let name = pair.split_once('=').map_or(pair, |(name, _)| name);
        let value = utf8_percent_encode(value, VALUE);
        let (before, after) = (&query[..start.start], &query[start.end..]);
        self.again(format!("{}?{before}{name}={value}{after}", self.path()))
    }

    /// The same target with the path segment at `index` (as [`RequestTarget::segments`] counts) replaced.
    ///
    /// # Errors
    /// As [`RequestTarget::with_query_value`], and [`TargetMalformed::DotSegment`] or [`TargetMalformed::EncodedSlash`] if
    /// the value would change the shape of the path.
    pub fn with_segment(&self, index: usize, value: &str) -> Result<RequestTarget, TargetMalformed> {
        if value.contains(['/', '\\']) {
            return Err(TargetMalformed::EncodedSlash);
        }
        if value.is_empty() || value.split(';').any(|piece| matches!(piece, "." | "..")) {
            return Err(TargetMalformed::DotSegment);
        }
        let path = &self.path()[1..];
        let range = part(path, b'/', index).ok_or(TargetMalformed::NoSuchPart)?;
        let query = self.query().map(|query| format!("?{query}")).unwrap_or_default();
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
    /// [`TargetMalformed::TooLong`], [`TargetMalformed::TooManyParameters`], or [`TargetMalformed::Character`] for a query
    /// that holds what no query may.
    pub fn with_query(&self, query: &str) -> Result<RequestTarget, TargetMalformed> {
        let text = format!("{}?{query}", self.path());
        check_shape(text.as_bytes())?;
        // Brackets stay bare in a canonical query; see `decode_once`.
        let may_stand = |byte: u8| {
            matches!(
                CLASS[usize::from(byte)],
                Class::Plain | Class::Percent | Class::Bracket
            )
        };
        if !query.bytes().all(may_stand) {
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
        write!(f, "RequestTarget({} segments{query})", self.segments().count())
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

/// Whether the bytes are canonical beyond doubt, so that the long way is not needed: no escape, no segment that begins with
/// a dot, nothing to escape and no `;`.
fn is_plain(bytes: &[u8]) -> bool {
    let mut previous = 0;
    for &byte in bytes {
        if CLASS[byte as usize] != Class::Plain || (byte == b'.' && previous == b'/') {
            return false;
        }
        previous = byte;
    }
    true
}

fn canonical(bytes: &[u8], slashes: EncodedSlash) -> Result<Vec<u8>, TargetMalformed> {
    let (path, query) = match memchr::memchr(b'?', bytes) {
        Some(mark) => (&bytes[..mark], Some(&bytes[mark + 1..])),
        None => (bytes, None),
    };
    let mut out = Vec::with_capacity(bytes.len() + 16);
    match slashes {
        EncodedSlash::Key => out.extend(decode_once(path, Part::Key)?),
        EncodedSlash::Refuse | EncodedSlash::Keep => {
            let decoded = decode_once(path, Part::Path)?;
            if slashes == EncodedSlash::Refuse && has_hidden_separator(&decoded) {
                return Err(TargetMalformed::EncodedSlash);
            }
            resolve(&decoded, &mut out)?;
        }
    }
    if let Some(query) = query {
        out.push(b'?');
        out.extend(decode_once(query, Part::Query)?);
    }
    Ok(out)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    /// A path whose every escape is data.
    Key,
    Query,
}

/// The one decoding pass: unreserved characters stand for themselves, everything else that is or must be escaped is escaped.
fn decode_once(raw: &[u8], part: Part) -> Result<Vec<u8>, TargetMalformed> {
    let mut out = Vec::with_capacity(raw.len() + 8);
    let mut beyond_ascii = false;
    let mut at = 0;
    while at < raw.len() {
        let byte = raw[at];
        at += 1;
        match CLASS[byte as usize] {
            Class::Plain => out.push(byte),
            Class::Percent => {
                let value = escape(raw.get(at..at + 2))?;
                at += 2;
                beyond_ascii |= value >= 0x80;
                push_escaped(value, part, &mut out)?;
            }
            Class::Semicolon if part != Part::Query => out.push(byte),
            Class::Bracket if part == Part::Query => out.push(byte),
            Class::Backslash if part != Part::Path => push_hex(byte, &mut out),
            Class::Semicolon | Class::Bracket | Class::Escape => push_hex(byte, &mut out),
            Class::Backslash | Class::Refuse => return Err(TargetMalformed::Character),
        }
    }
    // Invalid UTF-8 behind escapes (`%c0%ae`) is read as a dot by some decoders and as garbage by others.
    if beyond_ascii && percent_encoding::percent_decode(&out).decode_utf8().is_err() {
        return Err(TargetMalformed::Escape);
    }
    Ok(out)
}

fn escape(digits: Option<&[u8]>) -> Result<u8, TargetMalformed> {
    let [high, low] = digits
        .and_then(|d| <[u8; 2]>::try_from(d).ok())
        .ok_or(TargetMalformed::Escape)?;
    let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(TargetMalformed::Escape);
    // Two hexadecimal digits are at most 255.
    Ok((digit(high)? * 16 + digit(low)?) as u8)
}

fn push_escaped(value: u8, part: Part, out: &mut Vec<u8>) -> Result<(), TargetMalformed> {
    match value {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(value),
        // A value may hold a line break or a backslash, a path never does; NUL ends a string in too many origins.
        0 => return Err(TargetMalformed::Character),
        b'/' if part == Part::Key => out.push(value),
        0x01..=0x1f | 0x7f | b'\\' if part == Part::Path => return Err(TargetMalformed::Character),
        _ => push_hex(value, out),
    }
    Ok(())
}

fn push_hex(value: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend([
        b'%',
        DIGITS[usize::from(value >> 4)],
        DIGITS[usize::from(value & 15)],
    ]);
}

/// `%2F`, or `%25` in front of the digits of a dot, slash or backslash, however often the percent itself is escaped.
fn has_hidden_separator(path: &[u8]) -> bool {
    memchr::memmem::find_iter(path, b"%2").any(|at| match &path[at..] {
        [_, _, b'F', ..] => true,
        [_, _, b'5', rest @ ..] => {
            let mut rest = rest;
            while let Some(deeper) = rest.strip_prefix(b"25") {
                rest = deeper;
            }
            matches!(
                rest,
                [b'2', b'e' | b'E' | b'f' | b'F', ..] | [b'5', b'c' | b'C', ..]
            )
        }
        _ => false,
    })
}

/// RFC 3986 §5.2.4, but a path that climbs above its root is refused instead of clipped.
fn resolve(path: &[u8], out: &mut Vec<u8>) -> Result<(), TargetMalformed> {
    let mut starts = Vec::new();
    let mut segments = path[1..].split(|b| *b == b'/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"." => {}
            b".." => out.truncate(starts.pop().ok_or(TargetMalformed::DotSegment)?),
            segment if hides_dots(segment) => return Err(TargetMalformed::DotSegment),
            segment => {
                starts.push(out.len());
                out.push(b'/');
                out.extend_from_slice(segment);
                continue;
            }
        }
        // A dot segment at the end leaves its directory's slash.
        if last {
            out.push(b'/');
        }
    }
    Ok(())
}

/// `..;x`, `x;..`, `..%3Bx`: origins that cut parameters off see a dot segment; and `..%2Fx`, where `%2F` is kept.
fn hides_dots(segment: &[u8]) -> bool {
    if !segment.contains(&b'.') {
        return false;
    }
    let Ok(segment) = std::str::from_utf8(segment) else {
        return true;
    };
    let pieces = || {
        segment
            .split("%3B")
            .flat_map(|piece| piece.split("%2F"))
            .flat_map(|piece| piece.split(';'))
    };
    pieces().count() > 1 && pieces().any(|piece| matches!(piece, "." | ".."))
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Stands for itself in path and query.
    Plain,
    Percent,
    Semicolon,
    Bracket,
    Backslash,
    /// No URI may hold it bare, clients send it all the same, and its escape means the same.
    Escape,
    Refuse,
}

static CLASS: [Class; 256] = classes();

const fn classes() -> [Class; 256] {
    let mut table = [Class::Refuse; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        table[byte] = match byte as u8 {
            b'%' => Class::Percent,
            b';' => Class::Semicolon,
            b'[' | b']' => Class::Bracket,
            b'\\' => Class::Backslash,
            b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}' => Class::Escape,
            b'#' => Class::Refuse,
            _ => Class::Plain,
        };
        byte += 1;
    }
    table
}

/// Names by which frameworks take another method from a query.
const METHOD_PARAMETERS: [&str; 5] = [
    "_method",
    "$httpMethod",
    "$.httpMethod",
    "x-http-method-override",
    "x-http-method",
];
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed_with(text: &[u8], slashes: EncodedSlash) -> String {
        RequestTarget::parse(text, slashes)
            .map(|t| t.path_and_query().to_string())
            .unwrap_or_else(|e| format!("!{e:?}"))
    }

    fn parsed(text: &str) -> String {
        parsed_with(text.as_bytes(), EncodedSlash::Refuse)
    }

    #[test]
    fn dot_segments_are_resolved_and_never_climb_above_the_root() {
        for (text, canonical) in [
            ("/", "/"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/public/%2e%2e/secret", "/secret"),
            ("/public/%2E./secret", "/secret"),
            ("/public/.%2e/secret", "/secret"),
            ("/a/b/..", "/a/"),
            ("/a/b/.", "/a/b/"),
            ("/a/..", "/"),
            ("/a/../", "/"),
            ("/.", "/"),
            ("/a/", "/a/"),
            ("/...", "/..."),
            ("/.hidden/..x", "/.hidden/..x"),
            ("/a//../b", "/a/b"),
            ("/a/b?x=/../y", "/a/b?x=/../y"),
            ("/..", "!DotSegment"),
            ("/a/../../b", "!DotSegment"),
            ("/%2e%2e/b", "!DotSegment"),
            ("/public/..;/secret", "!DotSegment"),
            ("/public/..%3bx/", "!DotSegment"),
            ("/public/%2e%2e%3Bx/", "!DotSegment"),
            ("/public/.;x", "!DotSegment"),
            ("/public/;../x", "!DotSegment"),
            ("/a;v=1.2/b", "/a;v=1.2/b"),
        ] {
            assert_eq!(parsed(text), canonical, "{text}");
        }
    }

    #[test]
    fn escapes_have_one_spelling() {
        for (text, canonical) in [
            ("/%7euser/%61", "/~user/a"),
            ("/a%3ab%c3%bc", "/a%3Ab%C3%BC"),
            ("/a b", "!Character"),
            ("/{id}|^`\"<>", "/%7Bid%7D%7C%5E%60%22%3C%3E"),
            ("/a[0]?a[]=1", "/a%5B0%5D?a[]=1"),
            ("/?a=%5b%41", "/?a=%5BA"),
            ("/?a;b=1", "/?a%3Bb=1"),
            ("/?a\\b", "/?a%5Cb"),
            ("/a//b///", "/a//b///"),
            ("//evil/x", "//evil/x"),
            ("/a?", "/a?"),
            ("/a?b?c", "/a?b?c"),
            ("/a%252g", "/a%252g"),
        ] {
            assert_eq!(parsed(text), canonical, "{text}");
        }
    }

    #[test]
    fn what_origins_read_differently_is_refused() {
        for text in [
            "/r\\..\\x",
            "/a%5cb",
            "/a%5Cb",
            "/%00",
            "/a%0d%0ab",
            "/a%7f",
            "/a#b",
            "/a?b#c",
            "/ü",
            "/a?ü",
            "/a?b=%00",
            "/a\tb",
            "/a?\x7f",
        ] {
            assert_eq!(parsed(text), "!Character", "{text:?}");
        }
        for text in [
            "/%c0%ae",
            "/%zz",
            "/%u002e",
            "/%",
            "/%2",
            "/a%f",
            "/?a=%zz",
            "/?a=%",
            "/%ff",
            "/?a=%c0%ae",
            "/%+1",
            "/%-1",
        ] {
            assert_eq!(parsed(text), "!Escape", "{text}");
        }
        for byte in (0..=0x20_u8).chain(0x7f..=0xff) {
            assert_eq!(
                parsed_with(&[b'/', byte], EncodedSlash::Keep),
                "!Character",
                "{byte:#x}"
            );
        }
    }

    #[test]
    fn an_encoded_slash_passes_only_where_it_is_kept() {
        for text in [
            "/a%2fb",
            "/a%2Fb",
            "/%252e%252e/b",
            "/a%252fb",
            "/a%25252Fb",
            "/a%255cb",
            "/a%25%32%65",
            "/a%25%32%46",
        ] {
            assert_eq!(parsed(text), "!EncodedSlash", "{text}");
        }
        assert_eq!(parsed_with(b"/@a%2fb", EncodedSlash::Keep), "/@a%2Fb");
        assert_eq!(parsed_with(b"/a%252fb", EncodedSlash::Keep), "/a%252fb");
        assert_eq!(parsed_with(b"/..%2fb", EncodedSlash::Keep), "!DotSegment");
        assert_eq!(parsed_with(b"/a%2f%2e%2e%2fb", EncodedSlash::Keep), "!DotSegment");
        assert_eq!(parsed("/?a=%2f"), "/?a=%2F");
    }

    #[test]
    fn only_origin_form_is_a_target() {
        for text in ["", "*", "evil:443", "http://evil/", "a/b", "?a"] {
            assert_eq!(parsed(text), "!Form", "{text}");
        }
    }

    #[test]
    fn length_and_parameters_are_bounded() {
        let path = format!("/{}", "a".repeat(8191));
        assert_eq!(parsed(&path), path);
        assert_eq!(parsed(&format!("{path}a")), "!TooLong");
        assert_eq!(parsed(&format!("/{}", "{".repeat(4000))), "!TooLong");
        let query = format!("/?{}", vec!["a"; 1000].join("&"));
        assert_eq!(parsed(&query), query);
        assert_eq!(parsed(&format!("{query}&a")), "!TooManyParameters");
        assert!(TargetMalformed::TooManyParameters.is_too_long());
    }

    #[test]
    fn a_query_is_an_ordered_multimap() {
        let target =
            RequestTarget::parse(b"/?repo=ok&repo=b%61d+x&=v&empty&%72epo=3", EncodedSlash::Refuse).unwrap();
        let pairs: Vec<_> = target
            .query_pairs()
            .map(|(n, v)| (n.into_owned(), v.into_owned()))
            .collect();
        let expected = [
            ("repo", "ok"),
            ("repo", "bad x"),
            ("", "v"),
            ("empty", ""),
            ("repo", "3"),
        ];
        assert_eq!(pairs, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
        assert_eq!(
            RequestTarget::parse(b"/a?", EncodedSlash::Refuse)
                .unwrap()
                .query_pairs()
                .count(),
            0
        );
    }

    #[test]
    fn a_method_in_the_query_is_seen() {
        let overrides = |text: &str| {
            RequestTarget::parse(text.as_bytes(), EncodedSlash::Refuse)
                .unwrap()
                .overrides_method()
        };
        assert!(overrides("/?_method=DELETE"));
        assert!(overrides("/?a=1&%5FMethod=DELETE"));
        assert!(overrides("/?$httpMethod=PUT"));
        assert!(!overrides("/_method?method=DELETE"));
    }

    #[test]
    fn a_replaced_value_stays_one_value() {
        let target = RequestTarget::parse(b"/p/x?a=1&key=PH&b=2", EncodedSlash::Refuse).unwrap();
        let replaced = target.with_query_value(1, "s&c=r#t/../").unwrap();
        assert_eq!(
            replaced.path_and_query().as_str(),
            "/p/x?a=1&key=s%26c%3Dr%23t%2F..%2F&b=2"
        );
        assert_eq!(replaced.query_pairs().nth(1).unwrap().1, "s&c=r#t/../");
        assert_eq!(target.with_query_value(3, "x"), Err(TargetMalformed::NoSuchPart));
        assert_eq!(
            target.with_segment(1, "s:é").unwrap().path_and_query().as_str(),
            "/p/s:%C3%A9?a=1&key=PH&b=2"
        );
        assert_eq!(target.with_segment(0, ".."), Err(TargetMalformed::DotSegment));
        assert_eq!(target.with_segment(0, "a/b"), Err(TargetMalformed::EncodedSlash));
        assert_eq!(target.with_segment(2, "x"), Err(TargetMalformed::NoSuchPart));
        assert!(!format!("{replaced:?}").contains("s%26c"));
    }

    #[test]
    fn an_objects_key_is_resolved_in_nothing_and_has_one_form() {
        for (text, form) in [
            ("/b/../c/./d", "/b/../c/./d"),
            ("/b/%2e%2E/c", "/b/../c"),
            ("/b//c///", "/b//c///"),
            ("/b/a%2Fb%2fc", "/b/a/b/c"),
            ("/b/a%252Fb", "/b/a%252Fb"),
            ("/b/%7ea+b%2B%20%c3%a9", "/b/~a+b%2B%20%C3%A9"),
            ("/b/a;b%5Cc%0A?x=%2f", "/b/a;b%5Cc%0A?x=%2F"),
            ("/b/[x]{y}", "/b/%5Bx%5D%7By%7D"),
        ] {
            assert_eq!(parsed_with(text.as_bytes(), EncodedSlash::Key), form, "{text}");
        }
        for text in ["/b/%00", "/b/%c0%ae", "/b/%zz", "/b/a b"] {
            assert!(
                RequestTarget::parse(text.as_bytes(), EncodedSlash::Key).is_err(),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn canonicalising_twice_changes_nothing(text in "/[a-c./%25EeFf;?&=\\[{~0-9]{0,24}", mode in 0..3) {
            let slashes = [EncodedSlash::Keep, EncodedSlash::Refuse, EncodedSlash::Key][mode as usize];
            if let Ok(once) = RequestTarget::parse(text.as_bytes(), slashes) {
                prop_assert_eq!(&RequestTarget::parse(once.path_and_query().as_str().as_bytes(), slashes).unwrap(), &once);
                prop_assert_eq!(&RequestTarget::from_parsed(once.path_and_query(), slashes).unwrap(), &once);
            }
        }

        #[test]
        fn a_canonical_path_has_no_dot_segment(text in "/[a./%2e;]{0,24}") {
            if let Ok(target) = RequestTarget::parse(text.as_bytes(), EncodedSlash::Refuse) {
                prop_assert!(target.segments().all(|s| s != "." && s != ".."));
                prop_assert!(!target.path().contains("%2F"));
            }
        }

        #[test]
        fn a_substituted_value_reads_back(value in "[\\x01-\\x7fé]{0,20}") {
            let target = RequestTarget::parse(b"/?a=1&key=PH", EncodedSlash::Refuse).unwrap();
            let replaced = target.with_query_value(1, &value).unwrap();
            prop_assert_eq!(replaced.query_pairs().count(), 2);
            prop_assert_eq!(replaced.query_pairs().nth(1).unwrap().1, value);
        }
    }
}
