//! Trailers: which of a request reach the origin, and which of a response the client.

use http::header::{HeaderMap, HeaderName};

use super::names::{OVERRIDES, SINGLE, frames_or_routes, is_end_to_end, is_plain_name};
use super::strip::{remove_where, strip_response};

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
