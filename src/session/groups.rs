//! The groups of a session, by the generation of the configuration that says so.

use std::sync::{Arc, OnceLock};

/// The groups of a session, which a reload may change.
///
/// A request is judged by the policies and the groups of one generation, also while the next one
/// comes into force. So earlier groups are kept: as many as there were changes while the session
/// lives.
pub(super) struct Groups {
    since: u64,
    names: Box<[Arc<str>]>,
    next: OnceLock<Box<Groups>>,
}

impl Groups {
    /// Groups in every generation.
    pub(super) fn new(names: Vec<Arc<str>>) -> Self {
        Self::since(0, names)
    }

    fn since(since: u64, names: Vec<Arc<str>>) -> Self {
        Self {
            since,
            names: names.into(),
            next: OnceLock::new(),
        }
    }

    /// The groups in a generation.
    pub(super) fn of(&self, generation: u64) -> &[Arc<str>] {
        let mut now = self;
        while let Some(next) = now.next.get().filter(|next| next.since <= generation) {
            now = next;
        }
        &now.names
    }

    /// Changes them from a generation on, unless they are the same.
    pub(super) fn change(&self, since: u64, names: Vec<Arc<str>>) {
        if self.of(u64::MAX) == names {
            return;
        }
        let mut last = self;
        while let Some(next) = last.next.get() {
            last = next;
        }
        // Reloads come one after the other, so nobody else sets it.
        let _ = last.next.set(Box::new(Self::since(since, names)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<Arc<str>> {
        text.split_terminator(' ').map(Arc::from).collect()
    }

    #[test]
    fn each_generation_has_the_groups_that_it_was_given() {
        let groups = Groups::new(names("one"));
        groups.change(3, names("one"));
        groups.change(4, names("two three"));
        groups.change(9, names(""));
        assert_eq!(groups.of(1), names("one"));
        assert_eq!(groups.of(3), names("one"));
        assert_eq!(groups.of(4), names("two three"));
        assert_eq!(groups.of(8), names("two three"));
        assert_eq!(groups.of(9), names(""));
        assert_eq!(groups.of(u64::MAX), names(""));
    }
}
