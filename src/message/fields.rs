//! Fields: which end at this hop, which a request may not claim, and how many there may be.

use std::borrow::Cow;

use gateway_names::ReasonCode;
use http::Version;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Why a field section is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FieldsMalformed {
    /// More than 100 fields or more than 32 KiB.
    #[error("the fields are more than 100 or longer than 32 KiB")]
    TooLarge,
    /// A framing field that appears twice, or that this version of HTTP does not have.
    #[error("the fields that frame the message are not as this version of HTTP has them")]
    Framing,
    /// Two `Host` fields.
    #[error("there is not exactly one host")]
    HostCount,
    /// A single-valued field appears twice, so two readers could choose differently.
    #[error("a field that has one value stands twice")]
    Duplicate,
    /// A name that becomes a security-relevant one, or that of another present field, when an
    /// origin reads `_` as `-`.
    #[error("a field name is another's with underscores")]
    Alias,
    /// A name that origins read in more than one way, at an origin that does not allow such names.
    #[error(
        "a field name holds something else than letters, digits and `-`, which origins read in several ways"
    )]
    Name,
    /// A value that starts or ends with white space, which the other version of HTTP would trim.
    #[error("a field value begins or ends with white space")]
    Value,
}

impl FieldsMalformed {
    /// The short code for refusals and audit records.
    pub fn reason(&self) -> ReasonCode {
        match self {
            FieldsMalformed::TooLarge => ReasonCode::FieldsTooLarge,
            FieldsMalformed::Framing => ReasonCode::Framing,
            FieldsMalformed::HostCount => ReasonCode::HostCount,
            FieldsMalformed::Duplicate => ReasonCode::FieldDuplicate,
            FieldsMalformed::Alias => ReasonCode::FieldAlias,
            FieldsMalformed::Name => ReasonCode::FieldName,
            FieldsMalformed::Value => ReasonCode::FieldValue,
        }
    }
}

/// What the removed hop-by-hop fields said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HopByHop {
    /// There was a `TE: trailers`, without which a gRPC origin refuses; the gateway sets it anew
    /// for gRPC.
    pub te_trailers: bool,
    /// The protocol that `Upgrade` asked for, if `Connection` named it (RFC 9110 §7.8). Never
    /// `h2c`, which RFC 9113 §3.1 withdrew and after which requests would go unjudged.
    pub upgrade: Option<HeaderValue>,
}

/// Checks that a request's fields have one meaning, in either version of HTTP.
///
/// Checks bounds first (100 fields, 32 KiB as HTTP/1.1 counts), then names that occur once,
/// underscore aliases, white space at the edges of values, and the fields that HTTP/2 does not have
/// (RFC 9113 §8.2.2).
///
/// # Errors
/// By cause, see [`FieldsMalformed`].
pub fn check(fields: &HeaderMap, version: Version) -> Result<(), FieldsMalformed> {
    let (mut size, mut hops) = (0, false);
    for (name, value) in fields {
        let name = name.as_str();
        size += name.len() + value.len() + 4;
        hops |= is_hop_by_hop(name);
    }
    if fields.len() > MOST_FIELDS || size > LONGEST_SECTION {
        return Err(FieldsMalformed::TooLarge);
    }
    // The fields that HTTP/2 does not have are all hop-by-hop.
    if version >= Version::HTTP_2 && hops && !is_http2(fields) {
        return Err(FieldsMalformed::Framing);
    }
    if fields.len() != fields.keys_len() {
        check_duplicates(fields)?;
    }
    for (name, value) in fields {
        if !is_plain_name(name.as_str()) && (is_alias(name) || has_twin(name, fields)) {
            return Err(FieldsMalformed::Alias);
        }
        let edge = |byte: Option<&u8>| byte.is_some_and(|b| matches!(b, b' ' | b'\t'));
        if edge(value.as_bytes().first()) || edge(value.as_bytes().last()) {
            return Err(FieldsMalformed::Value);
        }
    }
    Ok(())
}

/// Checks that all origins read every name alike: letters, digits and `-`.
///
/// CGI and WSGI origins read `x_role` as `x-role`, some read every other character as `-`, and
/// others drop such a field (nginx). So other characters are refused, except in the metadata that
/// users give to objects, and, with `underscores`, at origins for which the operator allows `_` and
/// `.`.
///
/// # Errors
/// [`FieldsMalformed::Name`].
pub fn check_names(fields: &HeaderMap, underscores: bool) -> Result<(), FieldsMalformed> {
    let mild = |name: &str| {
        name.bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    let is_one =
        |name: &str| is_plain_name(name) || (mild(name) && (underscores || is_metadata(name)));
    if fields.keys().all(|name| is_one(name.as_str())) {
        Ok(())
    } else {
        Err(FieldsMalformed::Name)
    }
}

/// Whether an origin that turns `_` and the like into `-`, as CGI and WSGI do, reads `name` as
/// `other`.
pub fn reads_as(name: &HeaderName, other: &HeaderName) -> bool {
    let (name, other) = (name.as_str(), other.as_str());
    name.len() == other.len() && folded_name(name) == folded_name(other)
}

/// A field's name as read by an origin that turns everything except letters and digits into `-`.
pub fn folded_name(name: &str) -> Cow<'_, str> {
    if is_plain_name(name) {
        return Cow::Borrowed(name);
    }
    let fold = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    Cow::Owned(name.chars().map(fold).collect())
}

fn is_plain_name(name: &str) -> bool {
    name.bytes().all(|byte| PLAIN[usize::from(byte)])
}

/// Letters, digits and `-`. A table: every byte of every name is looked at, in each request.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0_u8;
    while byte.is_ascii() {
        plain[byte as usize] = byte.is_ascii_alphanumeric() || byte == b'-';
        byte += 1;
    }
    plain
};

/// Whether it is a name that a user gives to metadata of an object.
fn is_metadata(name: &str) -> bool {
    METADATA.iter().any(|family| name.starts_with(family))
}

/// Whether another field reads as this one.
fn has_twin(name: &HeaderName, fields: &HeaderMap) -> bool {
    fields
        .keys()
        .any(|other| other != name && reads_as(name, other))
}

/// Removes the fields that end at this hop, and those that `Connection` names.
///
/// RFC 9110 §7.6.1. Runs before policy, so that policy judges what the origin will see. Ignores the
/// nomination of a field that is always end-to-end (credentials, content, `Host`, request signing):
/// RFC 9110 forbids it, and an attacker uses it to make a proxy drop what policy relied upon.
pub fn strip_hop_by_hop(fields: &mut HeaderMap) -> HopByHop {
    // Most requests have none, and then nothing is nominated either, because `Connection` is itself
    // one of them. Most responses have only `Connection: keep-alive`, which nominates what is
    // hop-by-hop anyway.
    let mut plain = true;
    let mut hops = 0;
    for (name, value) in fields.iter() {
        if is_hop_by_hop(name.as_str()) {
            hops += 1;
            plain &=
                *name == header::CONNECTION && value.as_bytes().eq_ignore_ascii_case(b"keep-alive");
        }
    }
    if plain {
        if hops > 0 {
            fields.remove(header::CONNECTION);
        }
        return HopByHop::default();
    }
    let nominated = nominations(fields);
    let removed = HopByHop {
        te_trailers: fields
            .get_all(header::TE)
            .iter()
            .any(|te| list(te).any(|t| t.eq_ignore_ascii_case("trailers"))),
        upgrade: fields
            .get(header::UPGRADE)
            .filter(|value| nominated.contains(&header::UPGRADE) && !is_h2c(value))
            .cloned(),
    };
    for name in nominated.iter().filter(|name| !is_end_to_end(name)) {
        fields.remove(name);
    }
    remove_where(fields, is_hop_by_hop);
    removed
}

/// Removes fields that would show an origin another method, path, host, scheme or peer than the one
/// judged.
pub fn strip_overrides(fields: &mut HeaderMap) {
    remove_where(fields, |name| {
        is_one_of(&OVERRIDES, &OVERRIDE_SHAPES, name)
            || name.starts_with("x-forwarded-")
            || name.starts_with("x-envoy-")
    });
}

/// Joins several `Cookie` fields into one, because HTTP/2 clients split it (RFC 9113 §8.2.3).
/// Nothing can then hide between two.
pub fn join_cookies(fields: &mut HeaderMap) {
    let none_twice = fields.len() == fields.keys_len();
    if none_twice || fields.get_all(header::COOKIE).iter().nth(1).is_none() {
        return;
    }
    let joined = fields
        .get_all(header::COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect::<Vec<_>>()
        .join(&b"; "[..]);
    // Values that are each valid stay valid when joined by a semicolon and a space.
    if let Ok(value) = HeaderValue::from_bytes(&joined) {
        fields.insert(header::COOKIE, value);
    }
}

/// Keeps only checksums and signatures of the content, and gRPC's own, in a request's trailers.
///
/// RFC 9110 §6.5.1: a trailer may not frame, route, authenticate or modify the request. An origin
/// that merges trailers into the fields would otherwise see what policy did not.
pub fn filter_request_trailers(trailers: &mut HeaderMap) {
    remove_where(trailers, |name| !is_request_trailer(name));
}

/// Whether a request trailer of this (lower-case) name passes, see [`filter_request_trailers`].
pub fn is_request_trailer(name: &str) -> bool {
    let family = || name.starts_with("grpc-") || name.starts_with("x-amz-checksum-");
    REQUEST_TRAILERS.contains(&name) || (family() && is_plain_name(name))
}

/// Whether a request with this (lower-case) trailer name is refused, rather than having the trailer
/// removed. Such a name frames, routes, authenticates or overrides, so no honest client sends it
/// there (RFC 9110 §6.5.1).
pub fn is_forbidden_trailer(name: &str) -> bool {
    let Ok(parsed) = HeaderName::from_bytes(name.as_bytes()) else {
        return true;
    };
    !is_request_trailer(name)
        && (frames_or_routes(&parsed)
            || is_end_to_end(&parsed)
            || SINGLE.contains(&name)
            || OVERRIDES.contains(&name)
            || FORBIDDEN_TRAILERS.contains(&name))
}

/// Removes from a response's trailers what a client must never accept there.
///
/// Unlike a request's, a response's trailers are an open set: gRPC puts an application's own
/// metadata there.
pub fn filter_response_trailers(trailers: &mut HeaderMap) {
    strip_response(trailers);
    remove_where(trailers, |name| FORBIDDEN_TRAILERS.contains(&name));
}

/// Removes from a response what ends at this hop, and what would steer the client around the
/// gateway or speak in its name.
///
/// Removes hop-by-hop fields, `Alt-Svc` (RFC 7838), and fields that proxies set. `Connection`
/// nominations count as in [`strip_hop_by_hop`].
pub fn strip_response(fields: &mut HeaderMap) {
    strip_hop_by_hop(fields);
    remove_where(fields, |name| {
        is_one_of(&STEERING, &STEERING_SHAPES, name) || name.starts_with("proxy-")
    });
}

/// Whether a field frames or routes the message, so that it cannot contain a credential.
pub fn frames_or_routes(name: &HeaderName) -> bool {
    is_hop_by_hop(name.as_str())
        || [
            header::HOST,
            header::CONTENT_LENGTH,
            header::EXPECT,
            header::TRAILER,
            header::CONTENT_ENCODING,
        ]
        .contains(name)
}

/// RFC 9113 §8.2.2: no connection-specific field, and `TE` only as `trailers`.
fn is_http2(fields: &HeaderMap) -> bool {
    let te = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"trailers");
    CONNECTION_SPECIFIC
        .iter()
        .all(|name| !fields.contains_key(name))
        && fields.get_all(header::TE).iter().all(te)
}

fn check_duplicates(fields: &HeaderMap) -> Result<(), FieldsMalformed> {
    let twice = |name: &str| fields.get_all(name).iter().nth(1).is_some();
    if twice("host") {
        return Err(FieldsMalformed::HostCount);
    }
    if twice("content-length") || twice("transfer-encoding") {
        return Err(FieldsMalformed::Framing);
    }
    if SINGLE.iter().any(|name| twice(name)) {
        return Err(FieldsMalformed::Duplicate);
    }
    Ok(())
}

fn is_alias(name: &HeaderName) -> bool {
    if is_metadata(name.as_str()) {
        return false;
    }
    let dashed = folded_name(name.as_str());
    let Ok(dashed) = HeaderName::from_bytes(dashed.as_bytes()) else {
        return true;
    };
    is_end_to_end(&dashed)
        || frames_or_routes(&dashed)
        || SINGLE.contains(&dashed.as_str())
        || OVERRIDES.contains(&dashed.as_str())
        || dashed.as_str().starts_with("x-forwarded-")
        || dashed.as_str().starts_with("x-envoy-")
}

fn is_h2c(upgrade: &HeaderValue) -> bool {
    upgrade.to_str().is_err() || list(upgrade).any(|protocol| protocol.eq_ignore_ascii_case("h2c"))
}

/// The names in all `Connection` fields; malformed names nominate nothing.
fn nominations(fields: &HeaderMap) -> Vec<HeaderName> {
    let values = fields.get_all(header::CONNECTION);
    values
        .iter()
        .flat_map(list)
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .collect()
}

/// The members of a comma-separated list; a value that is not ASCII has none.
fn list(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value
        .to_str()
        .unwrap_or_default()
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']))
        .filter(|m| !m.is_empty())
}

fn is_hop_by_hop(name: &str) -> bool {
    is_one_of(&HOP_BY_HOP, &HOP_BY_HOP_SHAPES, name)
}

/// By first letter, the lengths of names that start with it, each a bit: for nearly every other
/// name this is decisive.
type Shapes = [u64; 32];

const fn shapes(names: &[&str]) -> Shapes {
    let mut shapes = [0; 32];
    let mut at = 0;
    while at < names.len() {
        let name = names[at].as_bytes();
        assert!(name.len() < 64);
        shapes[(name[0] & 31) as usize] |= 1 << name.len();
        at += 1;
    }
    shapes
}

/// Whether the name is one of `names`, whose shapes these are.
fn is_one_of(names: &[&str], shapes: &Shapes, name: &str) -> bool {
    let lengths = name
        .as_bytes()
        .first()
        .map_or(0, |first| shapes[usize::from(first & 31)]);
    name.len() < 64 && lengths >> name.len() & 1 == 1 && names.contains(&name)
}

fn is_end_to_end(name: &HeaderName) -> bool {
    let name = name.as_str();
    END_TO_END.contains(&name)
        || END_TO_END_FAMILIES
            .iter()
            .any(|family| name.starts_with(family))
}

fn remove_where(fields: &mut HeaderMap, condition: impl Fn(&str) -> bool) {
    if fields.keys().any(|name| condition(name.as_str())) {
        let names: Vec<_> = fields
            .keys()
            .filter(|name| condition(name.as_str()))
            .cloned()
            .collect();
        for name in names {
            fields.remove(name);
        }
    }
}

/// F17 of the threat catalogue; hyper's own limit is the same 100.
const MOST_FIELDS: usize = 100;
const LONGEST_SECTION: usize = 32 * 1024;

static CONNECTION_SPECIFIC: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
];

const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-authentication-info",
];

static HOP_BY_HOP_SHAPES: Shapes = shapes(&HOP_BY_HOP);

/// Never hop-by-hop, whatever `Connection` says.
const END_TO_END: [&str; 22] = [
    "host",
    "authorization",
    "cookie",
    "cookie2",
    "set-cookie",
    "www-authenticate",
    "date",
    "expect",
    "origin",
    "referer",
    "user-agent",
    "accept",
    "cache-control",
    "max-forwards",
    "trailer",
    "x-api-key",
    "api-key",
    "private-token",
    "x-auth-token",
    "x-goog-api-key",
    "range",
    "prefer",
];

const END_TO_END_FAMILIES: [&str; 7] = [
    "content-", "x-amz-", "x-goog-", "x-ms-", "if-", "sec-", "grpc-",
];

/// Fields with a single value (RFC 9110 and related), or that name one identity.
const SINGLE: [&str; 28] = [
    "authorization",
    "proxy-authorization",
    "content-type",
    "content-encoding",
    "content-range",
    "content-location",
    "content-md5",
    "date",
    "expect",
    "from",
    "host",
    "max-forwards",
    "origin",
    "range",
    "referer",
    "te",
    "upgrade",
    "user-agent",
    "x-api-key",
    "api-key",
    "private-token",
    "x-auth-token",
    "x-goog-api-key",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-content-sha256",
    "x-amz-target",
    "sec-websocket-key",
];

/// Fields from which frameworks and proxies take another method, path, host, scheme or peer (F09
/// and F10 of the threat catalogue).
const OVERRIDES: [&str; 27] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-method",
    "x-original-url",
    "x-original-uri",
    "x-original-host",
    "x-rewrite-url",
    "x-rewrite-uri",
    "x-override-url",
    "x-host",
    "x-http-host-override",
    "x-forwarded",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-originating-ip",
    "x-remote-ip",
    "x-remote-addr",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
    "forwarded",
    "forwarded-for",
    "front-end-https",
    "x-scheme",
    // CGI origins see it as the variable `HTTP_PROXY`, which sends their own requests through a
    // proxy (httpoxy).
    "proxy",
];

/// Prefixes of users' own object metadata; the stores that accept them are not CGI programs.
const METADATA: [&str; 9] = [
    "x-amz-meta-",
    "x-ms-meta-",
    "x-goog-meta-",
    "x-oss-meta-",
    "x-cos-meta-",
    "x-obs-meta-",
    "x-tos-meta-",
    "x-object-meta-",
    "x-container-meta-",
];

static OVERRIDE_SHAPES: Shapes = shapes(&OVERRIDES);

/// Checksums and signatures of the content that follow it (aws-chunked, RFC 9530).
const REQUEST_TRAILERS: [&str; 7] = [
    "x-amz-trailer-signature",
    "content-md5",
    "content-digest",
    "repr-digest",
    "digest",
    "x-goog-hash",
    "x-ms-content-crc64",
];

/// RFC 9110 §6.5.1, and `Set-Cookie`.
const FORBIDDEN_TRAILERS: [&str; 22] = [
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "content-range",
    "content-location",
    "trailer",
    "authorization",
    "www-authenticate",
    "authentication-info",
    "set-cookie",
    "cookie",
    "location",
    "cache-control",
    "expires",
    "age",
    "vary",
    "date",
    "retry-after",
    "expect",
    "range",
    "max-forwards",
];

/// Other routes to the origin, and fields in which a proxy speaks for an origin.
const STEERING: [&str; 4] = ["alt-svc", "alt-used", "origin-agent-cluster", "via"];

static STEERING_SHAPES: Shapes = shapes(&STEERING);

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
