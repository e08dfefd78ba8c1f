//! Why a request cannot be judged.

/// Why a request cannot be judged, and is therefore denied.
///
/// Each arises only where a policy reads the attribute that is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// The verdict depends on the content, and that has not been read.
    #[error("policy depends on its content, which was not read")]
    ContentUnread,
    /// `prefixes`, `segments` and `depth` are read.
    #[error("the path has more than {} segments", Fault::MAX_SEGMENTS)]
    TooManySegments,
    /// `query` is read.
    #[error("the query has more than {} pairs", Fault::MAX_PAIRS)]
    TooManyPairs,
    /// `fields` is read.
    #[error("the fields have more than {} values", Fault::MAX_VALUES)]
    TooManyValues,
    /// `contentType` is read.
    #[error("the request has more than one content type")]
    ContentTypeRepeated,
    /// `now` is read.
    #[error("the clock is outside the years 1970 to 9999")]
    Clock,
    /// Policy looks at the method, path, query or fields, of which a batch has many.
    #[error(
        "it holds many requests in one, and policy allows only some of those to this host; allow the host as a whole, or send them one by one"
    )]
    Batch,
    /// Cedar takes no such context.
    #[error("the policy engine refused the context")]
    Context,
}

impl Fault {
    /// The most segments that a judged path has.
    pub const MAX_SEGMENTS: usize = 64;
    /// The most pairs that a judged query has.
    pub const MAX_PAIRS: usize = 256;
    /// The most values, counting members of lists, that judged fields have.
    pub const MAX_VALUES: usize = 1024;
}
