//! How an origin reads the slashes of a path, and why bytes are not a request target.

use gateway_names::ReasonCode;

/// What an encoded slash in a path means for an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EncodedSlash {
    /// `%2f` is refused, and so is a dot, slash or backslash that is encoded twice: an origin that
    /// decodes once more than we do would see another path than the one judged.
    #[default]
    Refuse,
    /// `%2f` stays, as data within one segment. For origins known to read it that way (npm,
    /// GitLab).
    Keep,
    /// The path is an object key (S3). Nothing is resolved, because `.` and `..` are names there.
    /// `%2f` becomes a slash, because the origin reads both as one key.
    Key,
}

/// Why bytes are not a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetMalformed {
    /// Not origin-form: no leading slash, `*`, or a bare authority.
    #[error("the request target is not an absolute path")]
    Form,
    /// More than 8 KiB, before or after canonicalisation.
    #[error("the request target is longer than 8 KiB")]
    TooLong,
    /// More than 1,000 query parameters.
    #[error("the query has more than 1,000 parameters")]
    TooManyParameters,
    /// An unescaped control, space or `#`, or a control or backslash in the path, however written:
    /// some servers read a backslash there as a slash.
    #[error("the request target holds a control, a space, a `#`, or a backslash in its path")]
    Character,
    /// A `%` without two hexadecimal digits, or escapes that are not UTF-8 (including overlong
    /// forms).
    #[error("the request target holds a broken escape")]
    Escape,
    /// An encoded slash, or a dot, slash or backslash that is encoded twice.
    #[error("the path holds an encoded slash or a doubly encoded separator")]
    EncodedSlash,
    /// A letter, a digit, `-`, `.`, `_` or `~` that is still escaped once the path is decoded.
    #[error(
        "the path escapes a letter or digit twice, so that origins read two paths; escape it once"
    )]
    EscapedTwice,
    /// Dot segments that leave the root, or that have parameters (`..;x`).
    #[error("the path leaves its root or hides a dot segment")]
    DotSegment,
    /// No query parameter has this index.
    #[error("the query has no such parameter")]
    NoSuchParameter,
}

impl TargetMalformed {
    /// The short code for refusals and audit records.
    pub fn reason(&self) -> ReasonCode {
        match self {
            TargetMalformed::Form => ReasonCode::TargetForm,
            TargetMalformed::TooLong | TargetMalformed::TooManyParameters => {
                ReasonCode::TargetLength
            }
            TargetMalformed::Character
            | TargetMalformed::Escape
            | TargetMalformed::EncodedSlash
            | TargetMalformed::EscapedTwice
            | TargetMalformed::DotSegment
            | TargetMalformed::NoSuchParameter => ReasonCode::Path,
        }
    }
}
