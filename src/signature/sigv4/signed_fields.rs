//! The fields of a signature: the fields that carry its parts, and the fields that it must cover.

use http::{HeaderMap, HeaderName};

use super::fault::Fault;

/// The names, with `host` for `:authority`, and whether that was there. Both together are refused.
pub(super) fn signed_names(text: &str) -> Result<(Vec<HeaderName>, bool), Fault> {
    const MALFORMED: Fault = Fault::Malformed("SignedHeaders");
    let mut names: Vec<HeaderName> = Vec::with_capacity(8);
    let rest = text.strip_prefix(":authority;");
    for name in rest.unwrap_or(text).split(';') {
        let is_token = name.bytes().all(|b| !b.is_ascii_uppercase());
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| MALFORMED)?;
        if !is_token
            || names
                .last()
                .is_some_and(|last| last.as_str() >= name.as_str())
        {
            return Err(MALFORMED);
        }
        names.push(name);
    }
    if rest.is_some() {
        match names.binary_search_by(|name| name.as_str().cmp("host")) {
            Ok(_) => return Err(MALFORMED),
            Err(at) => names.insert(at, http::header::HOST),
        }
    }
    Ok((names, rest.is_some()))
}

/// Checks that the host and every `x-amz-` field are signed (J02).
///
/// The session token may be outside the signature (IoT requires that). It is replaced in any case,
/// and stays outside. AWS's own clients leave two names unsigned in presigned requests.
pub(super) fn check_signed(
    signed: &[HeaderName],
    fields: &HeaderMap,
    presigned: bool,
) -> Result<(), Fault> {
    let is_signed = |name: &HeaderName| {
        signed
            .binary_search_by(|s| s.as_str().cmp(name.as_str()))
            .is_ok()
    };
    if !is_signed(&http::header::HOST) {
        return Err(Fault::Unsigned(http::header::HOST));
    }
    let may_miss = |name: &HeaderName| {
        name == TOKEN
            || name == EXPRESS_TOKEN
            || (presigned && matches!(name.as_str(), "x-amz-user-agent" | "x-amz-checksum-mode"))
    };
    match fields
        .keys()
        .find(|name| name.as_str().starts_with("x-amz-") && !is_signed(name) && !may_miss(name))
    {
        Some(name) => Err(Fault::Unsigned(name.clone())),
        None => Ok(()),
    }
}

pub(super) static DATE: HeaderName = HeaderName::from_static("x-amz-date");
pub(super) static TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
pub(super) static EXPRESS_TOKEN: HeaderName = HeaderName::from_static("x-amz-s3session-token");
pub(super) static REGION_SET: HeaderName = HeaderName::from_static("x-amz-region-set");
