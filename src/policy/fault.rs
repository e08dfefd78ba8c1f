//! Why a request cannot be judged.

/// Why a request cannot be judged, and is therefore denied.
///
/// A fault arises only if a policy reads the attribute concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FactFault {
    /// The verdict depends on the content, which has not been read.
    #[error("policy depends on its content, which was not read")]
    ContentUnread,
    /// A fact of a protocol is missing. Only the policies that read it fail.
    #[error("its content does not say it in exactly one way")]
    LeftOut,
    /// Affects `prefixes`, `segments`, `anySegments` and `depth`.
    #[error("the path has more than {} segments", FactFault::MAX_SEGMENTS)]
    TooManySegments,
    /// Policy reads the path, and would not permit another reading of it.
    #[error(
        "origins may read the path without its doubled slashes or parameters (`;`), and policy does not permit that; send it without them"
    )]
    PathReadings,
    /// Policy reads the path, and does not permit a path that a field names, or cannot judge that.
    #[error(
        "a field names a second path (`Destination`, `X-Amz-Copy-Source` and the like), which policy does not permit, or which is no canonical path of this host"
    )]
    NamedPath,
    /// Affects `query`.
    #[error("the query has more than {} pairs", FactFault::MAX_PAIRS)]
    TooManyPairs,
    /// Affects `fields`.
    #[error("the fields have more than {} values", FactFault::MAX_VALUES)]
    TooManyValues,
    /// Affects `contentType`.
    #[error("the request has more than one content type")]
    ContentTypeRepeated,
    /// Affects `now`.
    #[error("the clock is outside the years 1970 to 9999")]
    Clock,
    /// Policy reads the method, path, query or fields, and a batch has several of each.
    #[error(
        "it holds many requests in one, and policy allows only some of those to this host; allow the host as a whole, or send them one by one"
    )]
    Batch,
    /// Cedar rejected the context.
    #[error("the policy engine refused the context")]
    Context,
}

impl FactFault {
    /// The most path segments that can be judged.
    pub const MAX_SEGMENTS: usize = 64;
    /// The most query pairs that can be judged.
    pub const MAX_PAIRS: usize = 256;
    /// The most field values that can be judged, counting members of lists.
    pub const MAX_VALUES: usize = 1024;
}
