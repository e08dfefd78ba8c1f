//! S3 fields, and parameters in their place, that ask for more than the operation says.
//!
//! S3 itself requires further permissions for them ("Required permissions for Amazon S3 API
//! operations"), and so do pins and policy. If anything is pinned, only known fields are accepted:
//! a store may have a vendor field that unpacks, copies or deletes objects besides the judged key.

use std::borrow::Cow;

use http::Method;

use super::super::tables::is_listed;
use super::s3_call::{CopySource, Level};
use gateway_message::RequestHead;

/// The actions that a request asks for besides its operation, by the names of the AWS CLI or IAM;
/// each once, in order.
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

/// Whether a field is known: one of S3's, or one that means nothing to the store.
pub(crate) fn is_known(name: &str, own: bool) -> bool {
    if let Some(kept) = name.strip_prefix("x-amz-meta-") {
        // With such a field, AWS Snowball, MinIO and RustFS unpack an archive under keys of its
        // own.
        return !kept.contains("snowball");
    }
    if name.starts_with("x-amz-") {
        is_listed("fields", name) || name.starts_with("x-amz-fwd-")
    } else {
        !own || is_listed("plain-fields", name)
    }
}

/// Whether a parameter, in lower case, is one that replaces a field of S3 in presigned requests,
/// one of the signature, or neither.
pub(crate) fn is_known_parameter(name: &str, own: bool) -> bool {
    match name.starts_with("x-") {
        true if is_listed("signature-parameters", name) || name == "x-id" => true,
        true if name.starts_with("x-amz-") => is_known(name, own),
        true => !own,
        false => true,
    }
}

/// Permissions that IAM requires and for which the AWS CLI has no operation.
pub(crate) const PERMISSIONS: [&str; 3] = [
    "s3:BypassGovernanceRetention",
    "s3:DeleteObjectVersion",
    "s3:GetObjectVersion",
];

#[cfg(test)]
mod tests {
    use super::*;

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
