//! The list of refusals: each form that is not one clear signature, beside the form that is.

use super::*;

const DATE: &str = "20150830T123600Z";
const SIGNATURE: &str = "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7";

fn authorization(scope: &str, signed: &str) -> String {
    format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={signed}, Signature={SIGNATURE}")
}

fn read(target: &str, fields: &[(&str, &str)]) -> Result<Option<ClientSignature>, Fault> {
    ClientSignature::read(&head("GET", "iam.amazonaws.com", target, fields))
}

fn fault_of(value: &str, fields: &[(&str, &str)]) -> Option<Fault> {
    let mut all = vec![("authorization", value)];
    if !fields.iter().any(|(name, _)| *name == "x-amz-date") {
        all.push(("x-amz-date", DATE));
    }
    all.extend_from_slice(fields);
    read("/", &all).err()
}

const SCOPE: &str = "AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request";
const NAMES: &str = "host;x-amz-date";

#[test]
fn a_head_without_a_signature_has_no_claim() {
    assert!(read("/", &[]).unwrap().is_none());
    assert!(
        read("/?a=b&X-Amz-Meta=1", &[("authorization", "Bearer abc")])
            .unwrap()
            .is_none()
    );
    assert!(
        read("/", &[("authorization", "Basic QVdTNA==")])
            .unwrap()
            .is_none()
    );
    assert_eq!(fault_of(&authorization(SCOPE, NAMES), &[]), None);
}

/// J05.
#[test]
fn two_signatures_are_none() {
    let value = authorization(SCOPE, NAMES);
    for part in [
        "X-Amz-Signature=0",
        "X-Amz-Credential=a",
        "X-Amz-Date=a",
        "X-Amz-Security-Token=a",
        "X%2DAmz-Expires=1",
    ] {
        let fields = [("authorization", &*value), ("x-amz-date", DATE)];
        assert_eq!(
            read(&format!("/?{part}"), &fields).err(),
            Some(Fault::Both),
            "{part}"
        );
    }
    let twice = [
        ("authorization", &*value),
        ("authorization", &*value),
        ("x-amz-date", DATE),
    ];
    assert_eq!(read("/", &twice).err(), Some(Fault::Twice("Authorization")));
    assert_eq!(
        fault_of(
            &value,
            &[("x-amz-security-token", "a"), ("x-amz-security-token", "b")]
        ),
        Some(Fault::Twice("X-Amz-Security-Token"))
    );
    assert_eq!(
        fault_of(
            &value,
            &[
                ("x-amz-security-token", "a"),
                ("x-amz-s3session-token", "b")
            ]
        ),
        Some(Fault::Twice("X-Amz-Security-Token"))
    );
    let doubled = format!("{value}, Signature={SIGNATURE}");
    assert_eq!(fault_of(&doubled, &[]), Some(Fault::Twice("Authorization")));
    let query = presigned(&[]);
    assert!(read(&query, &[]).unwrap().is_some());
    for fields in [
        ("authorization", "Bearer a"),
        ("x-amz-date", DATE),
        ("x-amz-security-token", "a"),
    ] {
        assert_eq!(
            read(&query, &[fields]).err(),
            Some(Fault::Both),
            "{fields:?}"
        );
    }
    assert_eq!(
        read(&format!("{query}&X-Amz-Signature={SIGNATURE}"), &[]).err(),
        Some(Fault::Twice("X-Amz-Signature"))
    );
    assert_eq!(
        read(&format!("{query}&x-amz-signature={SIGNATURE}"), &[]).err(),
        Some(Fault::Malformed("X-Amz-Signature"))
    );
}

/// J02.
#[test]
fn host_and_every_amz_field_must_be_signed() {
    assert_eq!(
        fault_of(&authorization(SCOPE, "x-amz-date"), &[]),
        Some(Fault::Unsigned(http::header::HOST))
    );
    assert_eq!(
        fault_of(&authorization(SCOPE, "host"), &[]),
        Some(Fault::Unsigned(HeaderName::from_static("x-amz-date")))
    );
    let fields = [("x-amz-target", "DynamoDB_20120810.PutItem")];
    assert_eq!(
        fault_of(&authorization(SCOPE, NAMES), &fields),
        Some(Fault::Unsigned(HeaderName::from_static("x-amz-target")))
    );
    assert_eq!(
        fault_of(
            &authorization(SCOPE, "host;x-amz-date;x-amz-target"),
            &fields
        ),
        None
    );
    assert_eq!(
        fault_of(
            &authorization(SCOPE, NAMES),
            &[("x-amz-security-token", "a")]
        ),
        None
    );
    for signed in [
        "host;host",
        "x-amz-date;host",
        "Host;x-amz-date",
        "host;;x-amz-date",
        "",
        "host x-amz-date",
    ] {
        assert_eq!(
            fault_of(&authorization(SCOPE, signed), &[]),
            Some(Fault::Malformed("SignedHeaders")),
            "{signed}"
        );
    }
}

/// J01 and J12.
#[test]
fn a_scope_has_one_form() {
    for scope in [
        "",
        "AKIDEXAMPLE",
        "20150830/us-east-1/iam/aws4_request",
        "/20150830/us-east-1/iam/aws4_request",
        "AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request/",
        "AKIDEXAMPLE/20150830/us-east-1/iam/aws5_request",
        "AKID/EXAMPLE/20150830/us-east-1/iam/aws4_request",
        "AKID EXAMPLE/20150830/us-east-1/iam/aws4_request",
    ] {
        assert_eq!(
            fault_of(&authorization(scope, NAMES), &[]),
            Some(Fault::Malformed("Credential")),
            "{scope}"
        );
    }
    for part in [
        "us-east-1#.evil",
        "*",
        "us_east_1",
        "US-EAST-1",
        "",
        "us-east-1.evil.test",
        "us%2deast",
    ] {
        let region = format!("AKIDEXAMPLE/20150830/{part}/iam/aws4_request");
        let service = format!("AKIDEXAMPLE/20150830/us-east-1/{part}/aws4_request");
        assert_eq!(
            fault_of(&authorization(&region, NAMES), &[]),
            Some(Fault::Scope),
            "{part}"
        );
        assert_eq!(
            fault_of(&authorization(&service, NAMES), &[]),
            Some(Fault::Scope),
            "{part}"
        );
    }
}

/// J09.
#[test]
fn the_scope_is_of_the_signing_day() {
    let yesterday = "AKIDEXAMPLE/20150829/us-east-1/iam/aws4_request";
    assert_eq!(
        fault_of(&authorization(yesterday, NAMES), &[]),
        Some(Fault::Date)
    );
    let value = authorization(SCOPE, NAMES);
    assert_eq!(
        fault_of(&value, &[("x-amz-date", "Sun, 30 Aug 2015 12:36:00 GMT")]),
        Some(Fault::Malformed("X-Amz-Date"))
    );
    let without = [("authorization", &*value)];
    assert_eq!(
        read("/", &without).err(),
        Some(Fault::Missing("X-Amz-Date"))
    );
}

#[test]
fn other_algorithms_are_named_as_such() {
    for value in [
        "AWS AKIAIOSFODNN7EXAMPLE:frJIUN8DYpKDtOLCwo//yllqDzg=",
        "AWS3-HTTPS AWSAccessKeyId=a",
        "AWS4-HMAC-SHA1 Credential=a",
        "aws4-hmac-sha256 Credential=a",
        "AWS4-HMAC-SHA256\tCredential=a",
    ] {
        assert_eq!(fault_of(value, &[]), Some(Fault::Algorithm), "{value}");
    }
    assert_eq!(
        fault_of("AWS4-HMAC-SHA256 a", &[]),
        Some(Fault::Malformed("Authorization"))
    );
    assert_eq!(
        fault_of("AWS4-HMAC-SHA256 Credential=a", &[]),
        Some(Fault::Missing("SignedHeaders"))
    );
    for signature in [
        "",
        "00",
        &SIGNATURE.to_uppercase(),
        &SIGNATURE.replace('5', "g"),
        &format!("{SIGNATURE}00"),
    ] {
        let value = authorization(SCOPE, NAMES).replace(SIGNATURE, signature);
        assert_eq!(
            fault_of(&value, &[]),
            Some(Fault::Malformed("Signature")),
            "{signature}"
        );
    }
}

/// J04.
#[test]
fn a_presigned_life_has_bounds() {
    for (life, fault) in [
        ("1", None),
        ("604800", None),
        ("604801", Some(Fault::Expiry)),
        ("0", Some(Fault::Expiry)),
        ("-1", Some(Fault::Expiry)),
        ("+60", Some(Fault::Expiry)),
        ("60s", Some(Fault::Expiry)),
        ("", Some(Fault::Expiry)),
        ("99999999999999999999", Some(Fault::Expiry)),
    ] {
        assert_eq!(
            read(&presigned(&[("X-Amz-Expires", life)]), &[]).err(),
            fault,
            "{life}"
        );
    }
}

/// J07.
#[test]
fn the_announced_framing_is_the_signed_one() {
    let all = "content-encoding;host;x-amz-content-sha256;x-amz-date";
    let value = authorization(SCOPE, all);
    let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for (kind, coding, fault) in [
        (hash, "gzip", None),
        (hash, "aws-chunked", Some(Fault::Payload)),
        (
            "UNSIGNED-PAYLOAD",
            "gzip, AWS-Chunked",
            Some(Fault::Payload),
        ),
        (
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            "aws-chunked",
            Some(Fault::Missing("x-amz-decoded-content-length")),
        ),
        (
            "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD",
            "gzip",
            Some(Fault::Missing("x-amz-decoded-content-length")),
        ),
        (
            "STREAMING-AWS5",
            "gzip",
            Some(Fault::Malformed("x-amz-content-sha256")),
        ),
        (
            &hash.to_uppercase(),
            "gzip",
            Some(Fault::Malformed("x-amz-content-sha256")),
        ),
        ("", "gzip", Some(Fault::Malformed("x-amz-content-sha256"))),
    ] {
        let fields = [("x-amz-content-sha256", kind), ("content-encoding", coding)];
        assert_eq!(fault_of(&value, &fields), fault, "{kind} {coding}");
    }
    let value = authorization(
        SCOPE,
        "host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length",
    );
    let fields = |kind| {
        [
            ("x-amz-content-sha256", kind),
            ("x-amz-decoded-content-length", "1"),
        ]
    };
    assert_eq!(
        fault_of(&value, &fields("STREAMING-AWS4-HMAC-SHA256-PAYLOAD")),
        None
    );
    // The chunks use the head's algorithm.
    assert_eq!(
        fault_of(&value, &fields("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD")),
        Some(Fault::Payload)
    );
}

/// J13.
#[test]
fn a_region_set_has_one_form() {
    for (set, fault) in [
        ("*", None),
        ("us-east-1", None),
        ("us-east-1,eu-west-1", None),
        ("us-*", Some(Fault::Scope)),
        ("us-east-1,*", Some(Fault::Scope)),
        ("", Some(Fault::Scope)),
        ("us-east-1,", Some(Fault::Scope)),
    ] {
        let value = format!(
            "AWS4-ECDSA-P256-SHA256 Credential=AKIDEXAMPLE/20150830/s3/aws4_request, \
             SignedHeaders=host;x-amz-date;x-amz-region-set, Signature={SIGNATURE}"
        );
        assert_eq!(
            fault_of(&value, &[("x-amz-region-set", set)]),
            fault,
            "{set}"
        );
    }
    let value = authorization(SCOPE, "host;x-amz-date;x-amz-region-set");
    assert_eq!(
        fault_of(&value, &[("x-amz-region-set", "us-east-1")]),
        Some(Fault::Scope)
    );
}

#[test]
fn signatures_inside_of_other_things_are_refused() {
    let token = [("authorization", "Bearer k8s-aws-v1.aHR0cHM6Ly9zdHMu")];
    assert!(matches!(read("/", &token), Err(Fault::Nested(_))));
    let form = [("content-type", "Multipart/Form-Data; boundary=x")];
    let head = head("POST", "bucket.s3.amazonaws.com", "/", &form);
    assert_eq!(ClientSignature::read(&head).err(), Some(Fault::PostForm));
}

#[test]
fn nothing_shows_a_signature_a_token_or_a_key() {
    let mut head = super::published::chunked_head(false);
    let (claim, verified) = proven(&head, S3_SECRET, None).unwrap();
    let shown = format!("{claim:?} {verified:?}");
    let signed = sign(&mut head, &claim, verified, &real(SystemTime::now())).unwrap();
    let shown = format!("{shown} {signed:?}");
    let rechain = format!("{:?}", signed.rechain(&head, 1 << 20).unwrap().unwrap());
    for secret in ["4f232c43", "realreal", "wJalr", "real/session"] {
        assert!(
            !shown.contains(secret) && !rechain.contains(secret),
            "{shown} {rechain}"
        );
    }
    assert!(
        head.fields["authorization"].is_sensitive()
            && head.fields["x-amz-security-token"].is_sensitive()
    );
}

fn presigned(changed: &[(&str, &str)]) -> String {
    let mut text = String::from("/?a=b");
    for (name, value) in [
        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
        (
            "X-Amz-Credential",
            "AKIDEXAMPLE%2F20150830%2Fus-east-1%2Fiam%2Faws4_request",
        ),
        ("X-Amz-Date", DATE),
        ("X-Amz-Expires", "60"),
        ("X-Amz-SignedHeaders", "host"),
        ("X-Amz-Signature", SIGNATURE),
    ] {
        let value = changed
            .iter()
            .find(|(other, _)| *other == name)
            .map_or(value, |(_, value)| *value);
        text.push_str(&format!("&{name}={value}"));
    }
    text
}
