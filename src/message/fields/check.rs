//! Checks that the fields of a request have one meaning.

use http::Version;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::names::{
    SINGLE, folded_name, frames_or_routes, is_end_to_end, is_hop_by_hop, is_metadata, is_override,
    is_plain_name, reads_as,
};

gateway_names::faults! {
    /// Why a field section is refused.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    pub enum FieldsMalformed {
        /// More than 100 fields or more than 32 KiB.
        TooLarge = FieldsTooLarge "the fields are more than 100 or longer than 32 KiB",
        /// A framing field that appears twice, or that this version of HTTP does not define.
        Framing = Framing
            "the fields that frame the message are not as this version of HTTP has them",
        /// Two `Host` fields.
        HostCount = HostCount "there is not exactly one host",
        /// A single-valued field appears twice, so two readers could choose differently.
        Duplicate = FieldDuplicate "a field that may occur once occurs twice",
        /// A name that would equal a security-relevant name, or that of another field present, if
        /// an origin reads `_` as `-`.
        Alias = FieldAlias "a field name is another's with underscores",
        /// A name that origins read in more than one way, at an origin that does not allow such
        /// names.
        Name = FieldName
            "a field name holds something else than letters, digits and `-`, which origins read \
             in several ways",
    }
}

/// Checks that a request's fields have one meaning, in either version of HTTP.
///
/// Checks bounds first (100 fields, 32 KiB as HTTP/1.1 counts), then repeated single-valued names,
/// underscore aliases, and fields that HTTP/2 does not allow (RFC 9113 §8.2.2).
///
/// # Errors
/// [`FieldsMalformed`] by cause.
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
    // All fields that HTTP/2 does not allow are hop-by-hop.
    if version >= Version::HTTP_2 && hops && !is_http2(fields) {
        return Err(FieldsMalformed::Framing);
    }
    if fields.len() != fields.keys_len() {
        check_duplicates(fields)?;
    }
    for name in fields.keys() {
        if !is_plain_name(name.as_str()) && (is_alias(name) || has_twin(name, fields)) {
            return Err(FieldsMalformed::Alias);
        }
    }
    Ok(())
}

/// Removes white space at the ends of values, as readers of HTTP/1.1 do (RFC 9110 §5.5), so that
/// both versions of HTTP carry one value. Some clients send such white space over HTTP/2 (gh 2.23).
pub fn trim(fields: &mut HeaderMap) {
    for value in fields.values_mut() {
        let edge = |byte: Option<&u8>| byte.is_some_and(|b| matches!(b, b' ' | b'\t'));
        let bytes = value.as_bytes();
        if edge(bytes.first()) || edge(bytes.last()) {
            let is_sensitive = value.is_sensitive();
            if let Ok(mut trimmed) = HeaderValue::from_bytes(bytes.trim_ascii()) {
                trimmed.set_sensitive(is_sensitive);
                *value = trimmed;
            }
        }
    }
}

/// Checks that all origins read every name alike: it has only letters, digits and `-`.
///
/// CGI and WSGI origins read `x_role` as `x-role`, some origins read every other character as `-`,
/// and others drop such a field (nginx). So other characters are refused, with two exceptions: the
/// metadata that users give to objects, and, with `underscores`, origins for which the operator
/// allows `_` and `.`.
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

/// Whether an origin may read another present field's name as this one.
fn has_twin(name: &HeaderName, fields: &HeaderMap) -> bool {
    fields
        .keys()
        .any(|other| other != name && reads_as(name, other))
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
        || is_override(dashed.as_str())
}

/// F17 of the threat catalogue. hyper's own limit is also 100.
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
