//! Counts how often a session received parts of secrets: a few are accidents, more are guesses.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gateway_names::SessionId;
use parking_lot::Mutex;

/// Counts the parts of secrets in the answers to one session.
///
/// An echoed part of a secret is replaced. A workload that makes an origin send guesses can see
/// which were replaced, and so which were right. Therefore at most two different parts are
/// replaced; at the third, the session is shown nothing more. By then it knows at most twelve
/// characters, and the rest cannot be guessed. Repeating a part reveals nothing new and is not
/// counted.
pub struct Guesses {
    session: Option<SessionId>,
    keys: RandomState,
    parts: Mutex<HashSet<u64>>,
    spent: AtomicBool,
    whole: AtomicU64,
}

impl Guesses {
    /// Returns a counter for a session that has received no parts yet.
    pub fn new(session: Option<SessionId>) -> Self {
        Self {
            session,
            keys: RandomState::new(),
            parts: Mutex::default(),
            spent: AtomicBool::new(false),
            whole: AtomicU64::new(0),
        }
    }

    /// Whether the session received more parts than accidents explain.
    ///
    /// Such a session is shown no response that could contain a secret.
    pub fn are_spent(&self) -> bool {
        self.spent.load(Ordering::Acquire)
    }

    /// Stops showing the session any response that could contain a secret.
    pub(super) fn spend(&self) {
        self.spent.store(true, Ordering::Release);
    }

    /// Counts a part of a secret. Must be called before its replacement is shown.
    pub(super) fn part(&self, text: &[u8]) {
        let mut parts = self.parts.lock();
        if self.are_spent() || !parts.insert(self.keys.hash_one(text)) {
            return;
        }
        let met = parts.len();
        self.spent.store(met > MOST_PARTS, Ordering::Release);
        drop(parts);
        if met > MOST_PARTS {
            tracing::warn!(
                session = self.name(),
                "answers held more than {MOST_PARTS} different parts of secrets: the session gets no answer any more in which \
                 one could be"
            )
        } else {
            tracing::warn!(
                session = self.name(),
                parts = met,
                "an answer held a part of a secret, which was replaced: an origin cuts what it repeats, or somebody guesses"
            )
        }
    }

    /// Counts an echo of a whole secret. One echo reveals nothing, but many deserve attention.
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

/// The number of different parts of secrets that a session may receive.
const MOST_PARTS: usize = 2;

/// The number of whole echoes at which the operator is warned.
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
