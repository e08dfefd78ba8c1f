//! The groups of a session, by generation of the configuration.

use std::sync::Arc;

use parking_lot::RwLock;

/// The groups of a session, which a reload may change.
///
/// A request is judged by the policies and the groups of one generation, even while the next one
/// comes into force. So the groups before the last change are kept too.
pub(super) struct Groups(RwLock<TwoGenerations>);

struct TwoGenerations {
    before: Arc<[Arc<str>]>,
    since: u64,
    now: Arc<[Arc<str>]>,
}

impl Groups {
    /// Returns groups that are the same in every generation.
    pub(super) fn new(names: Vec<Arc<str>>) -> Self {
        let now: Arc<[Arc<str>]> = names.into();
        let before = now.clone();
        Self(RwLock::new(TwoGenerations {
            before,
            since: 0,
            now,
        }))
    }

    /// Returns the groups in a generation: the one in force, the one before or the next one.
    pub(super) fn of(&self, generation: u64) -> Arc<[Arc<str>]> {
        let known = self.0.read();
        if generation < known.since {
            known.before.clone()
        } else {
            known.now.clone()
        }
    }

    /// Changes the groups from a generation on, unless they are the same.
    pub(super) fn change(&self, since: u64, names: Vec<Arc<str>>) {
        let mut known = self.0.write();
        if *known.now == *names {
            return;
        }
        let before = std::mem::replace(&mut known.now, names.into());
        (known.before, known.since) = (before, since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<Arc<str>> {
        text.split_terminator(' ').map(Arc::from).collect()
    }

    #[test]
    fn the_last_two_generations_have_the_groups_that_they_were_given() {
        let groups = Groups::new(names("one"));
        groups.change(3, names("one"));
        groups.change(4, names("two three"));
        assert_eq!(*groups.of(1), names("one"));
        assert_eq!(*groups.of(3), names("one"));
        assert_eq!(*groups.of(4), names("two three"));
        groups.change(9, names(""));
        assert_eq!(*groups.of(8), names("two three"));
        assert_eq!(*groups.of(9), names(""));
        assert_eq!(*groups.of(u64::MAX), names(""));
    }
}
