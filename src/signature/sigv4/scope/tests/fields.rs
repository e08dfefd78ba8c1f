//! Fields that ask for more.

use super::*;

/// M12: a pin requires what S3 itself requires a further permission for.
#[test]
fn a_field_that_asks_for_more_needs_its_own_action() {
    let put = |pins: &[&str], target: &str, fields: &[(&str, &str)]| {
        judge(actions(pins), "PUT", S3, target, fields, "")
    };
    assert_eq!(put(&["s3:PutObject"], "/bucket/key", &[]), "ok");
    for (field, value, asked) in [
        ("x-amz-acl", "public-read", "s3:PutObjectAcl"),
        ("x-amz-acl", "private", "s3:PutObjectAcl"),
        ("x-amz-grant-read", "id=x", "s3:PutObjectAcl"),
        ("x-amz-grant-full-control", "id=x", "s3:PutObjectAcl"),
        ("x-amz-grant-anything", "id=x", "s3:PutObjectAcl"),
        ("x-amz-tagging", "a=b", "s3:PutObjectTagging"),
        (
            "x-amz-object-lock-mode",
            "COMPLIANCE",
            "s3:PutObjectRetention",
        ),
        (
            "x-amz-object-lock-retain-until-date",
            "2099-01-01T00:00:00Z",
            "s3:PutObjectRetention",
        ),
        (
            "x-amz-object-lock-legal-hold",
            "ON",
            "s3:PutObjectLegalHold",
        ),
        (
            "x-amz-website-redirect-location",
            "https://evil.example",
            "s3:PutBucketWebsite",
        ),
        (
            "x-amz-server-side-encryption-aws-kms-key-id",
            "k",
            "kms:GenerateDataKey",
        ),
    ] {
        // A name in no table is refused in any case.
        let refused = if field.ends_with("anything") {
            "sigv4_resource"
        } else {
            "ok"
        };
        let target = format!("/bucket/key?{field}={}", value.replace('/', "%2F"));
        let folded = target.replace("x-amz", "X-Amz");
        for (target, fields) in [
            ("/bucket/key", &[(field, value)][..]),
            (&target, &[]),
            (&folded, &[]),
        ] {
            assert_eq!(
                put(&["s3:PutObject"], target, fields),
                "sigv4_action",
                "{target} {fields:?}"
            );
            assert_eq!(
                put(&["s3:PutObject", asked], target, fields),
                refused,
                "{target} {fields:?}"
            );
        }
    }
    let copy = [("x-amz-copy-source", "a-b/c")];
    assert_eq!(
        put(&["s3:CopyObject"], "/bucket/key", &copy),
        "sigv4_action"
    );
    assert_eq!(
        put(&["s3:CopyObject", "s3:GetObject"], "/bucket/key", &copy),
        "ok"
    );
    for (method, target, fields, pins, asked) in [
        (
            "DELETE",
            "/bucket/key?versionId=1",
            &[][..],
            "s3:DeleteObject",
            "s3:DeleteObjectVersion",
        ),
        (
            "GET",
            "/bucket/key?versionId=1",
            &[],
            "s3:GetObject",
            "s3:GetObjectVersion",
        ),
        (
            "DELETE",
            "/bucket/key",
            &[("x-amz-bypass-governance-retention", "true")],
            "s3:DeleteObject",
            "s3:BypassGovernanceRetention",
        ),
        (
            "POST",
            "/bucket?delete",
            &[("x-amz-bypass-governance-retention", "true")],
            "s3:DeleteObjects",
            "s3:BypassGovernanceRetention",
        ),
        (
            "POST",
            "/bucket/key?uploads",
            &[("x-amz-acl", "private")],
            "s3:CreateMultipartUpload",
            "s3:PutObjectAcl",
        ),
        (
            "PUT",
            "/bucket",
            &[("x-amz-acl", "private")],
            "s3:CreateBucket",
            "s3:PutBucketAcl",
        ),
        (
            "PUT",
            "/bucket",
            &[("x-amz-grant-write", "id=x")],
            "s3:CreateBucket",
            "s3:PutBucketAcl",
        ),
        (
            "PUT",
            "/bucket",
            &[("x-amz-object-ownership", "ObjectWriter")],
            "s3:CreateBucket",
            "s3:PutBucketOwnershipControls",
        ),
        (
            "PUT",
            "/bucket",
            &[("x-amz-bucket-object-lock-enabled", "true")],
            "s3:CreateBucket",
            "s3:PutObjectLockConfiguration",
        ),
    ] {
        assert_eq!(
            judge(actions(&[pins]), method, S3, target, fields, ""),
            "sigv4_action",
            "{method} {target}"
        );
        assert_eq!(
            judge(actions(&[pins, asked]), method, S3, target, fields, ""),
            "ok",
            "{method} {target}"
        );
    }
}

/// M13: a store may have a vendor field that unpacks, copies or deletes beside the key that was
/// judged.
#[test]
fn beside_pins_only_known_fields_are_taken() {
    let own = Endpoint::own("s3", "us-east-1", OwnStyle::Path);
    let aws = Endpoint::of(&Host::parse(S3.as_bytes()).unwrap()).unwrap();
    let sent = |endpoint: &Endpoint, pins: Pins, target: &str, fields: &[(&str, &str)]| {
        judge_at(
            endpoint,
            pins,
            &head("store.test", "PUT", target, fields),
            "",
        )
        .map_err(|why| why.reason().as_str())
    };
    let pinned = || [buckets(&["shared/in/"]), actions(&["s3:PutObject"])];
    let key = "/shared/in/x.tar";
    for name in [
        "x-amz-meta-snowball-auto-extract",
        "x-amz-meta-minio-snowball-prefix",
        "x-amz-meta-minio-snowball-ignore-dirs",
        "x-amz-newthing",
    ] {
        for endpoint in [&own, &aws] {
            for pins in pinned() {
                assert_eq!(
                    sent(endpoint, pins, key, &[(name, "true")]),
                    Err("sigv4_resource"),
                    "{name}"
                );
            }
            assert_eq!(
                sent(endpoint, Pins::default(), key, &[(name, "true")]),
                Ok(()),
                "{name}"
            );
        }
        let target = format!("{key}?{name}=true");
        for pins in pinned() {
            assert!(sent(&own, pins, &target, &[]).is_err(), "{name}");
        }
    }
    for name in [
        "x-minio-extract",
        "x-minio-force-delete",
        "x-minio-source-mtime",
        "x-minio-replication-actual-object-size",
        "x-rustfs-force-delete",
        "x-rgw-object-count",
        "x-goog-acl",
        "x-goog-copy-source",
        "x-oss-copy-source",
        "x-cos-acl",
        "x-obs-acl",
        "x-copy-from",
        "x-object-manifest",
        "x-delete-at",
        "cf-create-bucket-if-missing",
    ] {
        for pins in pinned() {
            assert_eq!(
                sent(&own, pins, key, &[(name, "true")]),
                Err("sigv4_resource"),
                "{name}"
            );
        }
        assert_eq!(
            sent(&own, Pins::default(), key, &[(name, "true")]),
            Ok(()),
            "{name}"
        );
    }
    for target in [
        "/shared/in/a?x-minio-extract=true",
        "/shared/in/a?extract=true",
        "/shared/in/a?x-new",
    ] {
        for pins in pinned() {
            assert!(sent(&own, pins, target, &[]).is_err(), "{target}");
        }
    }
    for (target, fields) in [
        (
            key,
            &[
                ("x-amz-meta-note", "a"),
                ("user-agent", "x"),
                ("x-amz-storage-class", "STANDARD"),
            ][..],
        ),
        (
            "/shared/in/a?x-id=PutObject",
            &[("amz-sdk-request", "attempt=1"), ("content-md5", "x")],
        ),
    ] {
        for pins in pinned() {
            assert_eq!(sent(&own, pins, target, fields), Ok(()), "{target}");
        }
    }
}
