//! What the fuzz targets share.

use gateway_message::{Authority, EncodedSlash, Origin, RequestHead, RequestTarget, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

/// Where to cut bytes, by what they are: each end of a piece, in order, and last the end of all.
pub fn ends(bytes: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let length = bytes.len();
    let step = 1 + bytes
        .iter()
        .fold(0, |sum, byte| (sum + usize::from(*byte)) % 97);
    (step..length).step_by(step).chain([length])
}

/// The secret key of AWS's examples.
pub const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

/// A head from its texts, `None` where a part of it is none.
#[must_use]
pub fn head(
    method: &str,
    host: &str,
    target: &str,
    fields: &[(&str, &str)],
) -> Option<RequestHead> {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).ok()?,
            HeaderValue::from_bytes(value.as_bytes()).ok()?,
        );
    }
    Some(RequestHead {
        method: Method::from_bytes(method.as_bytes()).ok()?,
        origin: Origin {
            scheme: Scheme::Https,
            authority: Authority::parse(host.as_bytes(), Some(443)).ok()?,
        },
        target: RequestTarget::parse(target.as_bytes(), EncodedSlash::Keep).ok()?,
        fields: map,
        version: Version::HTTP_11,
    })
}
