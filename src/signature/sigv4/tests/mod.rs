//! Tests of SigV4 against AWS's published numbers, its own Rust signer as a client, and the list of
//! refusals.

mod differential;
mod events;
mod published;
mod refused;
mod stream;
mod vectors;

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use super::{ClientSignature, Fault, SignedChains, SigningParams, VerifiedHead, sign, sign_own};
use gateway_message::{Authority, EncodedSlash, Origin, RequestHead, RequestTarget, Scheme};

/// The secret key of AWS's S3 examples.
const S3_SECRET: &[u8] = b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
/// The secret key of AWS's signing test suite.
const SUITE_SECRET: &[u8] = b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

/// A head from its parts, with `Host` given separately.
fn head(method: &str, host: &str, target: &str, fields: &[(&str, &str)]) -> RequestHead {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    RequestHead {
        method: Method::from_bytes(method.as_bytes()).unwrap(),
        origin: Origin {
            scheme: Scheme::Https,
            authority: Authority::parse(host.as_bytes(), Some(443)).unwrap(),
        },
        target: RequestTarget::parse(target.as_bytes(), EncodedSlash::Keep).unwrap(),
        fields: map,
        version: Version::HTTP_11,
    }
}

/// Parses the signature that must be there and proves it.
fn proven(
    head: &RequestHead,
    secret: &[u8],
    content: Option<&[u8; 32]>,
) -> Result<(ClientSignature, VerifiedHead), Fault> {
    let claim = ClientSignature::read(head)?.expect("a claim");
    let verified = claim.verify(head, secret, content)?;
    Ok((claim, verified))
}

/// Signs again with the given parts.
fn again(
    head: &mut RequestHead,
    secret: &[u8],
    content: Option<&[u8; 32]>,
    with: &SigningParams<'_>,
) -> Result<(ClientSignature, SignedChains), Fault> {
    let (claim, verified) = proven(head, secret, content)?;
    let signed = sign(head, &claim, verified, with)?;
    Ok((claim, signed))
}

/// Real parts that differ from every example's.
fn real(now: SystemTime) -> SigningParams<'static> {
    SigningParams {
        access_key: "AKIAREALREALREALREAL",
        secret: b"realrealrealrealrealrealrealrealrealreal",
        session_token: Some("real/session+token=="),
        now,
        longest_life: Duration::from_secs(60),
        content: None,
    }
}

fn field<'a>(head: &'a RequestHead, name: &str) -> &'a str {
    head.fields
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

fn signature_of(head: &RequestHead) -> String {
    let text = format!(
        "{}&{}",
        field(head, "authorization"),
        head.target.query().unwrap_or_default()
    );
    let at = text.find("Signature=").expect("a signature") + "Signature=".len();
    text[at..].split('&').next().unwrap().to_owned()
}

#[test]
fn a_request_of_the_gateways_own_is_signed_as_a_client_signs_one() {
    let host = "secretsmanager.eu-west-1.amazonaws.com:8443";
    let mut request = http::Request::post("/")
        .header("content-type", "application/x-amz-json-1.1")
        .header("x-amz-target", "secretsmanager.GetSecretValue")
        .body(b"{}".to_vec())
        .unwrap();
    let with = SigningParams {
        access_key: "AKIDEXAMPLE",
        secret: SUITE_SECRET,
        session_token: Some("a token"),
        now: SystemTime::now(),
        longest_life: Duration::ZERO,
        content: None,
    };
    let mut head = head("POST", host, "/", &[]);
    let scope = (&head.origin, "eu-west-1", "secretsmanager");
    sign_own(&mut request, scope, &with).unwrap();
    head.fields = request.headers().clone();
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, request.body());
    let hash: [u8; 32] = hash.as_ref().try_into().unwrap();
    let (claim, _) = proven(&head, SUITE_SECRET, Some(&hash)).unwrap();
    assert_eq!(claim.service(), "secretsmanager");
    assert_eq!(claim.session_token(), Some("a token"));
    assert!(proven(&head, S3_SECRET, Some(&hash)).is_err());
    assert!(proven(&head, SUITE_SECRET, Some(&[0; 32])).is_err());
}
