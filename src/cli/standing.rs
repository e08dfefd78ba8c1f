//! The granted rules that are in force in this gateway.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::policy::Source;

/// The granted rules that are in force here, and so stand whatever a person refuses afterwards.
#[derive(Default)]
pub(super) struct StandingRules(Mutex<HashSet<String>>);

impl StandingRules {
    /// Those that are about to be in force.
    pub(super) fn of(granted: &[Source]) -> Self {
        let standing = Self::default();
        granted.iter().for_each(|source| standing.add(source));
        standing
    }

    /// Adds the rules of a source.
    pub(super) fn add(&self, source: &Source) {
        let rules = source.rules().into_iter().map(|(_, rule)| rule);
        self.0.lock().extend(rules);
    }

    /// Whether a rule is among them.
    pub(super) fn has(&self, rule: &str) -> bool {
        self.0.lock().contains(rule)
    }
}
