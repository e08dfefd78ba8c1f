//! The part of an object store that a request is about.

/// The part of an object store that a request names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct S3Call {
    /// The bucket; `None` for the service itself, and at access points, whose bucket is unknown.
    pub bucket: Option<String>,
    /// The object's key, decoded once.
    pub key: Option<String>,
    /// Whether the key contains a bare `+`, which S3 has been seen to read as a space.
    pub key_has_plus: bool,
    /// The source, if this is a copy or a renaming.
    pub source: Option<CopySource>,
    /// The prefix to which a listing is restricted.
    pub prefix: Option<String>,
    /// The account to which the client says the bucket belongs.
    pub owner: Option<String>,
    /// The account to which the client says the source's bucket belongs.
    pub source_owner: Option<String>,
    /// Whether the operation takes `x-amz-expected-bucket-owner`.
    pub takes_owner: bool,
    /// Whether there is a parameter that S3 does not know.
    pub strange: bool,
}

/// The source of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopySource {
    /// `bucket/key`.
    Object {
        /// The bucket.
        bucket: String,
        /// The key, decoded once.
        key: String,
    },
    /// An access point's or outpost's ARN.
    Arn(String),
    /// Another key of the same bucket (`RenameObject`).
    SameBucket(String),
}

/// The level of the resource that a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Service,
    Bucket,
    Object,
}

impl Level {
    /// The path of the table's templates for it.
    pub(super) fn route(self) -> &'static [&'static str] {
        match self {
            Level::Service => &[""],
            Level::Bucket => &["{}"],
            Level::Object => &["{}", "{+}"],
        }
    }
}
