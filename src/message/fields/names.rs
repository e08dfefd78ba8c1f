//! Field names: how origins read them, and which end at this hop, frame, route or steer.

use std::borrow::Cow;

use gateway_names::word_list;
use http::header::{self, HeaderName};

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

pub(super) fn is_plain_name(name: &str) -> bool {
    name.bytes().all(|byte| PLAIN[usize::from(byte)])
}

/// Letters, digits and `-`. A table, because every byte of every name is checked for each request.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0_u8;
    while byte.is_ascii() {
        plain[byte as usize] = byte.is_ascii_alphanumeric() || byte == b'-';
        byte += 1;
    }
    plain
};

/// Whether it is a name that a user gave to an object's metadata.
pub(super) fn is_metadata(name: &str) -> bool {
    METADATA.iter().any(|family| name.starts_with(family))
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

pub(super) fn is_hop_by_hop(name: &str) -> bool {
    is_one_of(&HOP_BY_HOP, &HOP_BY_HOP_SHAPES, name)
}

/// Whether a field can make an origin see another method, path, host, scheme or peer.
pub(super) fn is_override(name: &str) -> bool {
    is_one_of(&OVERRIDES, &OVERRIDE_SHAPES, name)
        || name.starts_with("x-forwarded-")
        || name.starts_with("x-envoy-")
}

/// Whether a response field steers the client around the gateway, or speaks in the gateway's name.
pub(super) fn is_steering(name: &str) -> bool {
    is_one_of(&STEERING, &STEERING_SHAPES, name) || name.starts_with("proxy-")
}

/// For each first letter, a bit set of the lengths of the names that start with it. This rules out
/// nearly every other name.
pub(crate) type Shapes = [u64; 32];

pub(crate) const fn shapes(names: &[&str]) -> Shapes {
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

/// Whether the name is one of `names`. `shapes` are the shapes of `names`.
pub(crate) fn is_one_of(names: &[&str], shapes: &Shapes, name: &str) -> bool {
    let lengths = name.as_bytes().first();
    let lengths = lengths.map_or(0, |first| shapes[usize::from(first & 31)]);
    name.len() < 64 && lengths >> name.len() & 1 == 1 && names.contains(&name)
}

pub(super) fn is_end_to_end(name: &HeaderName) -> bool {
    let name = name.as_str();
    END_TO_END.contains(&name)
        || END_TO_END_FAMILIES
            .iter()
            .any(|family| name.starts_with(family))
}

const HOP_BY_HOP: [&str; 10] = word_list(
    "connection keep-alive proxy-connection te transfer-encoding upgrade http2-settings \
     proxy-authenticate proxy-authorization proxy-authentication-info",
);

static HOP_BY_HOP_SHAPES: Shapes = shapes(&HOP_BY_HOP);

/// Fields that are never hop-by-hop, whatever `Connection` says.
const END_TO_END: [&str; 22] = word_list(
    "host authorization cookie cookie2 set-cookie www-authenticate date expect origin referer \
     user-agent accept cache-control max-forwards trailer x-api-key api-key private-token \
     x-auth-token x-goog-api-key range prefer",
);

const END_TO_END_FAMILIES: [&str; 7] = [
    "content-", "x-amz-", "x-goog-", "x-ms-", "if-", "sec-", "grpc-",
];

/// Fields with a single value (RFC 9110 and related), or fields that name one identity.
pub(super) const SINGLE: [&str; 28] = word_list(
    "authorization proxy-authorization content-type content-encoding content-range \
     content-location content-md5 date expect from host max-forwards origin range referer te \
     upgrade user-agent x-api-key api-key private-token x-auth-token x-goog-api-key x-amz-date \
     x-amz-security-token x-amz-content-sha256 x-amz-target sec-websocket-key",
);

/// Fields that make frameworks and proxies use another method, path, host, scheme or peer (F09 and
/// F10 of the threat catalogue). CGI origins see `proxy` as the variable `HTTP_PROXY`, which sends
/// their own requests through a proxy (httpoxy).
pub(super) const OVERRIDES: [&str; 27] = word_list(
    "x-http-method-override x-http-method x-method-override x-original-method x-original-url \
     x-original-uri x-original-host x-rewrite-url x-rewrite-uri x-override-url x-host \
     x-http-host-override x-forwarded x-real-ip x-client-ip x-cluster-client-ip x-originating-ip \
     x-remote-ip x-remote-addr true-client-ip cf-connecting-ip fastly-client-ip forwarded \
     forwarded-for front-end-https x-scheme proxy",
);

/// Prefixes of users' own object metadata. The stores that accept them are not CGI programs.
const METADATA: [&str; 9] = word_list(
    "x-amz-meta- x-ms-meta- x-goog-meta- x-oss-meta- x-cos-meta- x-obs-meta- x-tos-meta- \
     x-object-meta- x-container-meta-",
);

static OVERRIDE_SHAPES: Shapes = shapes(&OVERRIDES);

/// Fields that name other routes to the origin, or in which a proxy speaks for an origin.
const STEERING: [&str; 4] = ["alt-svc", "alt-used", "origin-agent-cluster", "via"];

static STEERING_SHAPES: Shapes = shapes(&STEERING);
