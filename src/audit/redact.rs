//! The log's view of a session.

use std::ops::Range;

use super::share::Usage;

/// The log's view of a session: the texts to redact, such as phantoms, and how much it has written.
///
/// `session` implements this. Every client text passes through it before it is written.
pub trait Redact: Send + Sync {
    /// The session's account of bytes written. Without one, it may write without limit.
    fn account(&self) -> Option<&Usage> {
        None
    }

    /// Appends the places in `text` that must be redacted, in any order.
    fn redact(&self, text: &[u8], places: &mut Vec<Range<usize>>);
}
