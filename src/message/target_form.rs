//! How an origin reads the slashes of a path, and why bytes are not a request target.

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

gateway_names::faults! {
    /// Why bytes are not a target.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    pub enum TargetMalformed {
        /// Not origin-form: no leading slash, `*`, or a bare authority.
        Form = TargetForm "the request target is not an absolute path",
        /// More than 8 KiB, before or after canonicalisation.
        TooLong = TargetLength "the request target is longer than 8 KiB",
        /// More than 1,000 query parameters.
        TooManyParameters = TargetLength "the query has more than 1,000 parameters",
        /// An unescaped control, space or `#`, or a control or backslash in the path, however
        /// written: some servers read a backslash there as a slash.
        Character = Path
            "the request target holds a control, a space, a `#`, or a backslash in its path",
        /// A `%` without two hexadecimal digits, or escapes that are not UTF-8 (including overlong
        /// forms).
        Escape = Path "the request target holds a broken escape",
        /// An encoded slash, or a dot, slash or backslash that is encoded twice.
        EncodedSlash = Path "the path holds an encoded slash or a doubly encoded separator",
        /// A letter, a digit, `-`, `.`, `_` or `~` that is still escaped once the path is decoded.
        EscapedTwice = Path
            "the path escapes a letter or digit twice, so that origins read two paths; escape it \
             once",
        /// Dot segments that leave the root, or that have parameters (`..;x`).
        DotSegment = Path "the path leaves its root or hides a dot segment",
        /// No query parameter has this index.
        NoSuchParameter = Path "the query has no such parameter",
    }
}
