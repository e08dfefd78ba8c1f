//! What the fuzz targets share.

use gateway_message::{Authority, EncodedSlash, Origin, RequestHead, RequestTarget, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

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
