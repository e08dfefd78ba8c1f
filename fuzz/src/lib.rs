//! What the fuzz targets share.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// A head that AWS's own code signs for content that is signed in parts, and its signature, with
/// which the first part is signed.
#[must_use]
pub fn streaming_head(
    host: &str,
    service: &str,
    fields: &[(&str, &str)],
) -> Option<(RequestHead, String)> {
    let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let names = format!("host;{}", names.join(";"));
    let mut canonical = format!("PUT\n/bucket/key\n\nhost:{host}\n");
    for (name, value) in fields {
        canonical.push_str(&format!("{name}:{value}\n"));
    }
    let (_, kind) = fields
        .iter()
        .find(|(name, _)| *name == "x-amz-content-sha256")?;
    canonical.push_str(&format!("\n{names}\n{kind}"));
    let scope = format!("20130524/us-east-1/{service}/aws4_request");
    let text = format!(
        "AWS4-HMAC-SHA256\n20130524T000000Z\n{scope}\n{}",
        hex(canonical.as_bytes())
    );
    let key = aws_sigv4::sign::v4::generate_signing_key(SECRET, at(), "us-east-1", service);
    let seed = aws_sigv4::sign::v4::calculate_signature(key, text.as_bytes());
    let value = format!(
        "AWS4-HMAC-SHA256 Credential=AKIA/{scope}, SignedHeaders={names}, Signature={seed}"
    );
    let fields = [fields, &[("authorization", &value)]].concat();
    Some((head("PUT", host, "/bucket/key", &fields)?, seed))
}

/// The SHA-256 of bytes, in digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

/// 24 May 2013, the day of AWS's examples.
#[must_use]
pub fn at() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_369_353_600)
}
