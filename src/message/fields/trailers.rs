//! Trailers: which ones of a request reach the origin, and which ones of a response the client.

use gateway_names::word_list;
use http::header::{HeaderMap, HeaderName};

use super::names::{OVERRIDES, SINGLE, frames_or_routes, is_end_to_end, is_plain_name};
use super::strip::{remove_where, strip_response};

/// Keeps only checksums and signatures of the content, and gRPC's own trailers, of a request.
///
/// RFC 9110 §6.5.1: a trailer must not frame, route, authenticate or modify the request. An origin
/// that merges trailers into the fields would otherwise see fields that policy did not.
pub fn filter_request_trailers(trailers: &mut HeaderMap) {
    remove_where(trailers, |name| !is_request_trailer(name));
}

/// Whether a request trailer with this (lower-case) name passes. See [`filter_request_trailers`].
pub fn is_request_trailer(name: &str) -> bool {
    let family = || name.starts_with("grpc-") || name.starts_with("x-amz-checksum-");
    REQUEST_TRAILERS.contains(&name) || (family() && is_plain_name(name))
}

/// Whether a request with this (lower-case) trailer name is refused, instead of the trailer
/// removed. Such a name frames, routes, authenticates or overrides, so no honest client sends it as
/// a trailer (RFC 9110 §6.5.1).
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

/// Removes the trailers of a response that a client must never accept.
///
/// Other trailers pass: gRPC sends an application's own metadata as response trailers, so their
/// names are not known in advance.
pub fn filter_response_trailers(trailers: &mut HeaderMap) {
    strip_response(trailers);
    remove_where(trailers, |name| FORBIDDEN_TRAILERS.contains(&name));
}

/// Checksums and signatures of the content that follow it (aws-chunked, RFC 9530).
const REQUEST_TRAILERS: [&str; 7] = word_list(
    "x-amz-trailer-signature content-md5 content-digest repr-digest digest x-goog-hash \
     x-ms-content-crc64",
);

/// RFC 9110 §6.5.1, and `Set-Cookie`.
const FORBIDDEN_TRAILERS: [&str; 22] = word_list(
    "host content-length content-type content-encoding content-range content-location trailer \
     authorization www-authenticate authentication-info set-cookie cookie location cache-control \
     expires age vary date retry-after expect range max-forwards",
);
