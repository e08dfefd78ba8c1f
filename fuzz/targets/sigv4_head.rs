//! Heads: reading a claim never panics; and what AWS's own signer signs is verified, and signed
//! again as AWS would.
#![no_main]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
    SigningParams, SigningSettings, UriPathNormalizationMode, sign as aws_sign,
};
use aws_sigv4::sign::v4;
use gateway_fuzz::{SECRET, head};
use gateway_message::RequestHead;
use gateway_sigv4::{ClientSignature, sign};
use http::{HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";

type Input<'a> = (
    bool,
    bool,
    bool,
    Vec<&'a str>,
    Vec<(&'a str, &'a str)>,
    Vec<&'a str>,
    &'a str,
    &'a str,
);

fuzz_target!(|input: Input<'_>| {
    let (known, s3, presigned, segments, pairs, values, target, authorization) = input;
    if known {
        signed_by_aws(s3, presigned, &segments, &pairs, &values);
        return;
    }
    // Anything at all.
    let fields = [
        ("authorization", authorization),
        ("x-amz-date", "20130524T000000Z"),
    ];
    let mut heads = vec![head("GET", "s3.amazonaws.com", target, &[])];
    heads.push(head("GET", "s3.amazonaws.com", "/", &fields));
    let more: Vec<(&str, &str)> = pairs.iter().copied().chain(fields).collect();
    heads.push(head("POST", "s3.amazonaws.com", "/", &more));
    for head in heads.into_iter().flatten() {
        if let Ok(Some(claim)) = ClientSignature::read(&head) {
            assert!(
                claim
                    .verify(&head, SECRET.as_bytes(), Some(&[0; 32]))
                    .is_err()
            );
        }
    }
});

fn signed_by_aws(
    s3: bool,
    presigned: bool,
    segments: &[&str],
    pairs: &[(&str, &str)],
    values: &[&str],
) {
    let encode = |text: &str| utf8_percent_encode(text, SEGMENT).to_string();
    // Dot and empty segments have readings of their own, which the gateway settles before; a NUL or
    // a break it refuses.
    let odd = |text: &&&str| {
        !matches!(**text, "" | "." | "..")
            && !text.contains(|c: char| c.is_ascii_control() || c == '\\' || c == '/' || c == '%')
    };
    let path: String = segments
        .iter()
        .filter(odd)
        .map(|segment| format!("/{}", encode(segment)))
        .collect();
    let path = if path.is_empty() {
        "/".to_owned()
    } else {
        path
    };
    let pairs: Vec<String> = pairs
        .iter()
        .filter(|(name, value)| {
            !name.is_empty()
                && !name.to_lowercase().contains("amz")
                && !name.contains('\0')
                && !value.contains('\0')
        })
        .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
        .collect();
    let mark = if pairs.is_empty() { "" } else { "?" };
    let target = format!("{path}{mark}{}", pairs.join("&"));
    let names = ["x-amz-meta-a", "my-field", "range", "content-type"];
    let is_value = |value: &&str| {
        value.is_ascii()
            && !value.contains(|c: char| c.is_ascii_control())
            && value.trim() == *value
    };
    let fields: Vec<(&str, &str)> = names
        .into_iter()
        .zip(values.iter().copied().filter(is_value))
        .collect();
    let Some(unsigned) = head("GET", "example.amazonaws.com", &target, &fields) else {
        return;
    };
    if unsigned.target.path_and_query().as_str() != target {
        return;
    }
    let Some(mut head) = client(unsigned, s3, presigned, &target, &fields) else {
        return;
    };
    let hash: [u8; 32] = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"")
        .as_ref()
        .try_into()
        .unwrap();
    let before = head.clone();
    let claim = ClientSignature::read(&head).unwrap().unwrap();
    let verified = claim
        .verify(&head, SECRET.as_bytes(), Some(&hash))
        .expect("what AWS signs verifies");
    let with = gateway_sigv4::SigningParams {
        access_key: ACCESS_KEY,
        secret: SECRET.as_bytes(),
        session_token: None,
        now: at(),
        longest_life: Duration::from_secs(300),
        content: Some(&hash),
    };
    sign(&mut head, &claim, verified, &with).unwrap();
    assert_eq!(signature(&head), signature(&before));
}

/// Signs a head as AWS's Rust client does.
fn client(
    mut head: RequestHead,
    s3: bool,
    presigned: bool,
    target: &str,
    fields: &[(&str, &str)],
) -> Option<RequestHead> {
    let identity = Credentials::new(ACCESS_KEY, SECRET, None, None, "fuzz").into();
    let mut settings = SigningSettings::default();
    let mut body = SignableBody::Bytes(b"");
    if s3 {
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    }
    if presigned {
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(Duration::from_secs(300));
        settings.payload_checksum_kind = PayloadChecksumKind::NoHeader;
        if s3 {
            body = SignableBody::UnsignedPayload;
        }
    }
    let service = if s3 { "s3" } else { "sts" };
    let builder = v4::SigningParams::builder()
        .identity(&identity)
        .region("us-east-1")
        .name(service);
    let params: SigningParams<'_> = builder.time(at()).settings(settings).build().ok()?.into();
    let uri = format!("https://example.amazonaws.com{target}");
    let request = SignableRequest::new("GET", &uri, fields.iter().copied(), body).ok()?;
    let (instructions, _) = aws_sign(request, &params).ok()?.into_parts();
    for (name, value) in instructions.headers() {
        head.fields.insert(
            HeaderName::from_bytes(name.as_bytes()).ok()?,
            HeaderValue::from_str(value).ok()?,
        );
    }
    let more: Vec<String> = instructions
        .params()
        .iter()
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, SEGMENT)))
        .collect();
    if !more.is_empty() {
        let query = head
            .target
            .query()
            .map(|query| format!("{query}&"))
            .unwrap_or_default();
        head.target = head
            .target
            .with_query(&format!("{query}{}", more.join("&")))
            .ok()?;
    }
    Some(head)
}

fn signature(head: &RequestHead) -> String {
    let field = head
        .fields
        .get("authorization")
        .map_or("", |value| value.to_str().unwrap());
    let text = format!("{field}&{}", head.target.query().unwrap_or_default());
    let at = text.rfind("Signature=").unwrap() + "Signature=".len();
    text[at..].split('&').next().unwrap().to_owned()
}

fn at() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_369_353_600)
}
