//! S3 fields, and parameters in their place, that ask for more than the operation says.
//!
//! S3 itself requires further permissions for them ("Required permissions for Amazon S3 API
//! operations"), and so do pins and policy. If anything is pinned, only known fields are accepted:
//! a store may have a vendor field that unpacks, copies or deletes beside the key that was judged.

use std::borrow::Cow;

use http::Method;

use super::s3::{CopySource, Level};
use gateway_message::RequestHead;

/// What a request asks for besides its operation, by the names of the AWS CLI or IAM; each once, in
/// order.
pub(super) fn implied<'a>(
    head: &'a RequestHead,
    query: impl Iterator<Item = &'a Cow<'a, str>>,
    (level, source): (Level, Option<&CopySource>),
) -> Vec<&'static str> {
    let mut found = Vec::new();
    let fields = head.fields.keys().map(|name| Cow::Borrowed(name.as_str()));
    let parameters = query.map(|name| Cow::Owned(name.to_ascii_lowercase()));
    for name in fields.chain(parameters) {
        found.extend(of_field(&name, level));
        // This deletes a version for good; a plain delete leaves a marker.
        found.extend(match (&*name, &head.method) {
            ("versionid", &Method::DELETE) => Some("s3:DeleteObjectVersion"),
            ("versionid", &Method::GET | &Method::HEAD) => Some("s3:GetObjectVersion"),
            _ => None,
        });
    }
    found.extend(source.map(|source| match source {
        CopySource::SameBucket(_) => "s3:DeleteObject",
        CopySource::Object { .. } | CopySource::Arn(_) => "s3:GetObject",
    }));
    found.sort_unstable();
    found.dedup();
    found
}

fn of_field(name: &str, level: Level) -> Option<&'static str> {
    let at_object = level == Level::Object;
    Some(match name.strip_prefix("x-amz-")? {
        "acl" if at_object => "s3:PutObjectAcl",
        "acl" => "s3:PutBucketAcl",
        grant if grant.starts_with("grant-") && at_object => "s3:PutObjectAcl",
        grant if grant.starts_with("grant-") => "s3:PutBucketAcl",
        "tagging" => "s3:PutObjectTagging",
        "object-lock-legal-hold" => "s3:PutObjectLegalHold",
        lock if lock.starts_with("object-lock-") => "s3:PutObjectRetention",
        "bypass-governance-retention" => "s3:BypassGovernanceRetention",
        "object-ownership" => "s3:PutBucketOwnershipControls",
        "bucket-object-lock-enabled" => "s3:PutObjectLockConfiguration",
        "website-redirect-location" => "s3:PutBucketWebsite",
        "server-side-encryption-aws-kms-key-id" => "kms:GenerateDataKey",
        _ => return None,
    })
}

/// Whether a field is one of S3's, or one that means nothing to another's store.
pub(in super::super) fn is_known(name: &str, own: bool) -> bool {
    if let Some(kept) = name.strip_prefix("x-amz-meta-") {
        // From AWS's Snowball, and MinIO's and RustFS's: an archive is unpacked under keys of its
        // own.
        return !kept.contains("snowball");
    }
    match name.starts_with("x-amz-") {
        true => FIELDS.binary_search(&name).is_ok() || name.starts_with("x-amz-fwd-"),
        false => !own || PLAIN.binary_search(&name).is_ok(),
    }
}

/// Whether a parameter, in lower case, is one that replaces a field of S3 in presigned requests,
/// one of the signature, or neither.
pub(in super::super) fn is_known_parameter(name: &str, own: bool) -> bool {
    match name.starts_with("x-") {
        true if SIGNATURE.contains(&name) || name == "x-id" => true,
        true if name.starts_with("x-amz-") => is_known(name, own),
        true => !own,
        false => true,
    }
}

/// Permissions that IAM requires and for which the AWS CLI has no operation.
pub(in super::super) const PERMISSIONS: [&str; 3] = [
    "s3:BypassGovernanceRetention",
    "s3:DeleteObjectVersion",
    "s3:GetObjectVersion",
];

/// The parameters of a signature.
const SIGNATURE: [&str; 5] = [
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-expires",
    "x-amz-signature",
    "x-amz-signedheaders",
];

/// S3's own fields, from botocore's model, and those of signatures and SDKs. Sorted.
const FIELDS: &[&str] = &[
    "x-amz-acl",
    "x-amz-api-version",
    "x-amz-bucket-namespace",
    "x-amz-bucket-object-lock-enabled",
    "x-amz-bucket-object-lock-token",
    "x-amz-bypass-governance-retention",
    "x-amz-checksum-algorithm",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-md5",
    "x-amz-checksum-mode",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-checksum-sha512",
    "x-amz-checksum-type",
    "x-amz-checksum-xxhash128",
    "x-amz-checksum-xxhash3",
    "x-amz-checksum-xxhash64",
    "x-amz-client-token",
    "x-amz-confirm-remove-self-bucket-access",
    "x-amz-content-sha256",
    "x-amz-copy-source",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-modified-since",
    "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since",
    "x-amz-copy-source-range",
    "x-amz-copy-source-server-side-encryption-customer-algorithm",
    "x-amz-copy-source-server-side-encryption-customer-key",
    "x-amz-copy-source-server-side-encryption-customer-key-md5",
    "x-amz-create-session-mode",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-expected-bucket-owner",
    "x-amz-grant-full-control",
    "x-amz-grant-read",
    "x-amz-grant-read-acp",
    "x-amz-grant-write",
    "x-amz-grant-write-acp",
    "x-amz-if-match-initiated-time",
    "x-amz-if-match-last-modified-time",
    "x-amz-if-match-size",
    "x-amz-max-parts",
    "x-amz-metadata-directive",
    "x-amz-mfa",
    "x-amz-mp-object-size",
    "x-amz-object-annotation-directive",
    "x-amz-object-attributes",
    "x-amz-object-if-match",
    "x-amz-object-lock-event-hold",
    "x-amz-object-lock-event-hold-duration-days",
    "x-amz-object-lock-event-hold-duration-years",
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
    "x-amz-object-ownership",
    "x-amz-optional-object-attributes",
    "x-amz-part-number-marker",
    "x-amz-region-set",
    "x-amz-rename-source",
    "x-amz-rename-source-if-match",
    "x-amz-rename-source-if-modified-since",
    "x-amz-rename-source-if-none-match",
    "x-amz-rename-source-if-unmodified-since",
    "x-amz-request-payer",
    "x-amz-request-route",
    "x-amz-request-token",
    "x-amz-s3session-token",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-security-token",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-bucket-key-enabled",
    "x-amz-server-side-encryption-context",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-server-side-encryption-customer-key-md5",
    "x-amz-skip-destination-validation",
    "x-amz-source-expected-bucket-owner",
    "x-amz-storage-class",
    "x-amz-tagging",
    "x-amz-tagging-directive",
    "x-amz-te",
    "x-amz-trailer",
    "x-amz-transition-default-minimum-object-size",
    "x-amz-user-agent",
    "x-amz-website-redirect-location",
    "x-amz-write-offset-bytes",
];

/// Fields of HTTP and of clients, which stores accept or ignore. Sorted.
const PLAIN: &[&str] = &[
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "authorization",
    "baggage",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "dnt",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "origin",
    "pragma",
    "priority",
    "range",
    "referer",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-user",
    "te",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "user-agent",
    "via",
    "x-amzn-trace-id",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted() {
        assert!(FIELDS.is_sorted() && PLAIN.is_sorted());
    }

    #[test]
    fn only_known_fields_are_known() {
        for name in [
            "x-amz-acl",
            "x-amz-meta-note",
            "x-amz-checksum-crc64nvme",
            "range",
            "user-agent",
        ] {
            assert!(is_known(name, true) && is_known(name, false), "{name}");
        }
        for name in [
            "x-amz-newthing",
            "x-amz-meta-snowball-auto-extract",
            "x-amz-meta-minio-snowball-prefix",
        ] {
            assert!(!is_known(name, true) && !is_known(name, false), "{name}");
        }
        for name in [
            "x-minio-extract",
            "x-minio-force-delete",
            "x-minio-source-mtime",
            "x-rustfs-force-delete",
            "x-rgw-storage-class",
            "x-goog-acl",
            "x-copy-from",
            "x-object-manifest",
            "cf-create-bucket-if-missing",
            "x-oss-object-acl",
        ] {
            assert!(!is_known(name, true), "{name}");
        }
    }
}
