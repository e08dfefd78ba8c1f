//! What the log asks of a session.

use std::ops::Range;

use super::share::Account;

/// What the log must know of a session: what must not stand in a record, its phantoms, and what it
/// has written.
///
/// `session` implements it. Each text that comes from the client passes through it before it is
/// written.
pub trait Redact: Send + Sync {
    /// What the session has written; without an account it may write without bound.
    fn account(&self) -> Option<&Account> {
        None
    }

    /// Appends the places in `text` that must be redacted, in ascending order.
    fn redact(&self, text: &[u8], places: &mut Vec<Range<usize>>);
}
