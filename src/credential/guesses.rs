//! How often a session met parts of secrets: few are accidents, more are guesses.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::names::SessionId;

/// Counts what answers to one session held of secrets.
///
/// A part that comes back is replaced, and whoever had an origin send guesses sees which of them
/// was right. So two different parts are replaced, and with the third the session is shown nothing
/// more: it knows twelve letters at the most, and nobody guesses the others. The same part once
/// more tells nothing and is not counted.
pub struct Guesses {
    session: Option<SessionId>,
    keys: RandomState,
    parts: Mutex<HashSet<u64>>,
    spent: AtomicBool,
    whole: AtomicU64,
}

impl Guesses {
    /// Of a session that met nothing yet.
    #[must_use]
    pub fn new(session: Option<SessionId>) -> Self {
        Self {
            session,
            keys: RandomState::new(),
            parts: Mutex::default(),
            spent: AtomicBool::new(false),
            whole: AtomicU64::new(0),
        }
    }

    /// Whether the session met more parts than accidents make: it is shown no answer in which a
    /// secret could be.
    #[must_use]
    pub fn are_spent(&self) -> bool {
        self.spent.load(Ordering::Acquire)
    }

    /// Shows the session no answer any more in which a secret could be.
    pub(super) fn spend(&self) {
        self.spent.store(true, Ordering::Release);
    }

    /// Counts a part of a secret, before anything of what stands in its place is shown.
    pub(super) fn part(&self, text: &[u8]) {
        let mut parts = self.parts.lock();
        if self.are_spent() || !parts.insert(self.keys.hash_one(text)) {
            return;
        }
        let met = parts.len();
        self.spent.store(met > MOST_PARTS, Ordering::Release);
        drop(parts);
        match met > MOST_PARTS {
            false => tracing::warn!(
                session = self.name(),
                parts = met,
                "an answer held a part of a secret, which was replaced: an origin cuts what it repeats, or somebody guesses"
            ),
            true => tracing::warn!(
                session = self.name(),
                "answers held more than {MOST_PARTS} different parts of secrets: the session gets no answer any more in which \
                 one could be"
            ),
        }
    }

    /// Counts an echo of a whole secret. To meet one tells nothing; a row of them is worth a look.
    pub(super) fn whole(&self) {
        if self.whole.fetch_add(1, Ordering::Relaxed) + 1 == MANY_ECHOES {
            tracing::warn!(
                session = self.name(),
                "answers repeated secrets {MANY_ECHOES} times; each was replaced by its phantom"
            );
        }
    }

    fn name(&self) -> &str {
        self.session.as_ref().map_or("", SessionId::as_str)
    }
}

/// Different parts of secrets that a session may meet.
const MOST_PARTS: usize = 2;

/// Echoes of whole secrets with which the operator is told.
const MANY_ECHOES: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_different_part_is_one_too_many_and_a_known_one_is_none() {
        let guesses = Guesses::new(None);
        for _ in 0..100 {
            guesses.part(b"A1b2C3");
            guesses.part(b"G7h8I9");
            guesses.whole();
        }
        assert!(!guesses.are_spent());
        guesses.part(b"A1b2C3d");
        assert!(guesses.are_spent());
    }
}
