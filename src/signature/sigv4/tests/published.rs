//! The examples of the Amazon S3 API Reference, with their published numbers.

use super::super::key::sha256;
use super::super::payload::unhex;
use super::super::{AmzDate, Location, Payload, Streaming};
use super::*;

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const HOST: &str = "examplebucket.s3.amazonaws.com";

fn authorization(signed: &str, signature: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
         SignedHeaders={signed},Signature={signature}"
    )
}

/// "Authenticating Requests: Using the Authorization Header", examples: object GET and PUT,
/// lifecycle, listing.
#[test]
fn the_s3_header_examples_verify_and_sign_again() {
    let examples = [
        (
            head(
                "GET",
                HOST,
                "/test.txt",
                &[("range", "bytes=0-9"), ("x-amz-content-sha256", EMPTY)],
            ),
            "host;range;x-amz-content-sha256;x-amz-date",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            head(
                "PUT",
                HOST,
                "/test$file.text",
                &[
                    ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                    ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                    (
                        "x-amz-content-sha256",
                        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
                    ),
                ],
            ),
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            head(
                "GET",
                HOST,
                "/?lifecycle",
                &[("x-amz-content-sha256", EMPTY)],
            ),
            "host;x-amz-content-sha256;x-amz-date",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            head(
                "GET",
                HOST,
                "/?max-keys=2&prefix=J",
                &[("x-amz-content-sha256", EMPTY)],
            ),
            "host;x-amz-content-sha256;x-amz-date",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ];
    for (mut head, signed, signature) in examples {
        head.fields
            .insert("x-amz-date", HeaderValue::from_static("20130524T000000Z"));
        let value = authorization(signed, signature);
        head.fields
            .insert("authorization", HeaderValue::from_str(&value).unwrap());
        let now = SystemTime::now();
        assert_eq!(proven(&head, b"another", None).err(), Some(Fault::Mismatch));
        let (claim, _) = again(&mut head, S3_SECRET, None, &real(now)).unwrap();
        assert_eq!(claim.access_key(), "AKIAIOSFODNN7EXAMPLE");
        assert!(matches!(claim.payload(), Payload::Hash(_)));
        // Every trace of the client's signature is gone, and the new one verifies.
        assert!(!head.fields.contains_key("date"));
        assert_eq!(field(&head, "x-amz-security-token"), "real/session+token==");
        assert!(!field(&head, "authorization").contains("AKIAIOSFODNN7EXAMPLE"));
        assert!(field(&head, "authorization").contains(";x-amz-security-token"));
        let (claim, _) = proven(&head, real(now).secret, None).unwrap();
        assert_eq!(claim.access_key(), real(now).access_key);
    }
}

/// "Authenticating Requests: Using Query Parameters", the example.
#[test]
fn the_s3_presigned_example_verifies_and_its_life_is_clamped() {
    let signature = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    let target = format!(
        "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
         &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
         &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature={signature}"
    );
    let mut head = head("GET", HOST, &target, &[]);
    let now = SystemTime::now();
    let (claim, _) = again(&mut head, S3_SECRET, None, &real(now)).unwrap();
    assert_eq!(claim.payload(), Payload::Unsigned);
    assert_eq!(
        claim.location(),
        Location::Query {
            expires: Duration::from_secs(86400)
        }
    );
    let query = head.target.query().unwrap();
    assert!(query.contains("X-Amz-Expires=60&"), "{query}");
    assert!(
        query.contains("X-Amz-Security-Token=real%2Fsession%2Btoken%3D%3D&"),
        "{query}"
    );
    assert!(
        !query.contains("AKIAIOSFODNN7EXAMPLE") && !query.contains(signature),
        "{query}"
    );
    assert!(head.fields.is_empty());
    proven(&head, real(now).secret, None).unwrap();
}

/// "Signature Calculations: Transferring Payload in Multiple Chunks", the example's seed.
pub(super) fn chunked_head(trailer: bool) -> RequestHead {
    let mut fields = vec![
        ("content-encoding", "aws-chunked"),
        ("content-length", "66824"),
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-decoded-content-length", "66560"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
    ];
    let value = if trailer {
        fields.remove(1);
        fields.push((
            "x-amz-content-sha256",
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        ));
        fields.push(("x-amz-trailer", "x-amz-checksum-crc32c"));
        authorization(
            "content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class;\
             x-amz-trailer",
            "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
        )
    } else {
        fields.push(("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"));
        authorization(
            "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;\
             x-amz-storage-class",
            "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
        )
    };
    fields.push(("authorization", &value));
    head(
        "PUT",
        "s3.amazonaws.com",
        "/examplebucket/chunkObject.txt",
        &fields,
    )
}

/// The content of that example: 65 KiB of `a` in three chunks, with the published signatures.
pub(super) fn chunked_content(trailer: bool) -> Vec<u8> {
    let signatures = if trailer {
        [
            "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
            "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
            "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
        ]
    } else {
        [
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ]
    };
    let mut content = Vec::new();
    for (length, signature) in [0x10000, 0x400, 0].into_iter().zip(signatures) {
        content.extend_from_slice(format!("{length:x};chunk-signature={signature}\r\n").as_bytes());
        content.extend(std::iter::repeat_n(b'a', length));
        if length > 0 {
            content.extend_from_slice(b"\r\n");
        }
    }
    if trailer {
        content.extend_from_slice(
            b"x-amz-checksum-crc32c:sOO8/Q==\r\n\
              x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n",
        );
    }
    content.extend_from_slice(b"\r\n");
    content
}

#[test]
fn the_seeds_of_the_chunked_examples_verify() {
    for trailer in [false, true] {
        let (claim, _) = proven(&chunked_head(trailer), S3_SECRET, None).unwrap();
        let ecdsa = false;
        assert_eq!(
            claim.payload(),
            Payload::Streaming(Streaming::Signed { trailer, ecdsa })
        );
    }
}

/// S3 Express: the session token has its own field, before and after.
#[test]
fn a_session_of_s3_express_keeps_its_own_token_field() {
    let host = "bucket--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com";
    let canonical = format!(
        "GET\n/key\n\nhost:{host}\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:20130524T000000Z\n\
         x-amz-s3session-token:phantom\n\nhost;x-amz-content-sha256;x-amz-date;x-amz-s3session-token\nUNSIGNED-PAYLOAD"
    );
    let scope = "20130524/us-east-1/s3express/aws4_request";
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n20130524T000000Z\n{scope}\n{}",
        sha256(canonical.as_bytes())
    );
    let day = AmzDate::parse("20130524T000000Z").unwrap().time();
    let secret = std::str::from_utf8(S3_SECRET).unwrap();
    let key = aws_sigv4::sign::v4::generate_signing_key(secret, day, "us-east-1", "s3express");
    let signature = aws_sigv4::sign::v4::calculate_signature(key, to_sign.as_bytes());
    let names = "host;x-amz-content-sha256;x-amz-date;x-amz-s3session-token";
    let value = authorization(names, &signature).replace("/s3/", "/s3express/");
    let fields = [
        ("authorization", &*value),
        ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-s3session-token", "phantom"),
    ];
    let mut head = head("GET", host, "/key", &fields);
    let with = real(SystemTime::now());
    let (claim, _) = again(&mut head, S3_SECRET, None, &with).unwrap();
    assert_eq!(claim.session_token(), Some("phantom"));
    assert_eq!(
        field(&head, "x-amz-s3session-token"),
        with.session_token.unwrap()
    );
    assert!(!head.fields.contains_key("x-amz-security-token"));
    proven(&head, with.secret, None).unwrap();
}

/// A field that the caller adds is signed, and one that it removes is not missed (J02, J06).
#[test]
fn the_names_that_are_signed_follow_the_head() {
    let mut head = head(
        "GET",
        HOST,
        "/test.txt",
        &[("range", "bytes=0-9"), ("x-amz-content-sha256", EMPTY)],
    );
    let value = authorization(
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    );
    head.fields
        .insert("x-amz-date", HeaderValue::from_static("20130524T000000Z"));
    head.fields
        .insert("authorization", HeaderValue::from_str(&value).unwrap());
    let (claim, verified) = proven(&head, S3_SECRET, None).unwrap();
    head.fields.remove("range");
    head.fields.insert(
        "x-amz-expected-bucket-owner",
        HeaderValue::from_static("111122223333"),
    );
    let with = real(SystemTime::now());
    sign(&mut head, &claim, verified, &with).unwrap();
    let (claim, _) = proven(&head, with.secret, None).unwrap();
    let names: Vec<&str> = claim.signed().iter().map(HeaderName::as_str).collect();
    let expected = [
        "host",
        "x-amz-content-sha256",
        "x-amz-date",
        "x-amz-expected-bucket-owner",
        "x-amz-security-token",
    ];
    assert_eq!(names, expected);
}

/// IoT appends the token of a presigned request after its signature; so does the gateway.
#[test]
fn a_token_that_was_outside_of_the_signature_stays_there() {
    let query = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1\
                 %2Fiotdevicegateway%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400\
                 &X-Amz-SignedHeaders=host";
    let host = "abc-ats.iot.us-east-1.amazonaws.com";
    let canonical = format!("GET\n/mqtt\n{query}\nhost:{host}\n\nhost\n{EMPTY}");
    let scope = "20130524/us-east-1/iotdevicegateway/aws4_request";
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n20130524T000000Z\n{scope}\n{}",
        sha256(canonical.as_bytes())
    );
    let day = AmzDate::parse("20130524T000000Z").unwrap().time();
    let secret = std::str::from_utf8(S3_SECRET).unwrap();
    let key =
        aws_sigv4::sign::v4::generate_signing_key(secret, day, "us-east-1", "iotdevicegateway");
    let signature = aws_sigv4::sign::v4::calculate_signature(key, to_sign.as_bytes());
    let target =
        format!("/mqtt?{query}&X-Amz-Signature={signature}&X-Amz-Security-Token=phan%2Ftom");
    let mut head = head("GET", host, &target, &[]);
    let hash = unhex(EMPTY).unwrap();
    let with = SigningParams {
        content: Some(&hash),
        ..real(SystemTime::now())
    };
    let (claim, _) = again(&mut head, S3_SECRET, Some(&hash), &with).unwrap();
    assert_eq!(claim.session_token(), Some("phan/tom"));
    let (before, after) = head
        .target
        .query()
        .unwrap()
        .split_once("&X-Amz-Signature=")
        .unwrap();
    assert!(!before.contains("X-Amz-Security-Token"));
    assert!(
        after.ends_with("&X-Amz-Security-Token=real%2Fsession%2Btoken%3D%3D"),
        "{after}"
    );
    proven(&head, with.secret, Some(&hash)).unwrap();
}

/// As `@smithy/signature-v4` 5 signs an HTTP/2 request.
#[test]
fn a_host_that_is_signed_as_authority_is_signed_again_as_host() {
    let signed = ":authority;content-type;x-amz-content-sha256;x-amz-date";
    let claimed = |signed: &str| {
        format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/transcribe/aws4_request, SignedHeaders={signed}, \
             Signature=a5ea2b2b917137741ef3b0973a03ffc549bc8065f2c60ac8a341f73f1ce02145"
        )
    };
    let asked = |host: &str, signed: &str| {
        let fields = [
            ("content-type", "application/vnd.amazon.eventstream"),
            ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-EVENTS"),
            ("x-amz-date", "20150830T123600Z"),
            ("authorization", &claimed(signed)),
        ];
        head("POST", host, "/stream-transcription", &fields)
    };
    let mut right = asked("example.amazonaws.com", signed);
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160);
    again(&mut right, SUITE_SECRET, None, &real(now)).unwrap();
    let names =
        "SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token,";
    assert!(field(&right, "authorization").contains(names));
    let other = asked("other.amazonaws.com", signed);
    assert!(matches!(
        proven(&other, SUITE_SECRET, None),
        Err(Fault::Mismatch)
    ));
    let both = asked(
        "example.amazonaws.com",
        ":authority;content-type;host;x-amz-content-sha256;x-amz-date",
    );
    assert!(ClientSignature::read(&both).is_err());
}
