//! What the log asks of a session.

use std::ops::Range;

use super::share::Account;

/// What the log must know of a session: what must not stand in a record, its phantoms, and what it
/// has written.
///
/// The session's room implements it; each text that comes from the client passes through it before
/// it is written.
pub trait Conceal: Send + Sync {
    /// What the session has written; without an account it may write without bound.
    fn account(&self) -> Option<&Account> {
        None
    }

    /// Appends the places in `text` that must be concealed, in ascending order.
    fn conceal(&self, text: &[u8], places: &mut Vec<Range<usize>>);
}
