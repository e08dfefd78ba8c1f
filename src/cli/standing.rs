//! The granted rules that are in force in this gateway.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::policy::Source;

/// The granted rules that are in force here, and so stand whatever a person refuses afterwards.
#[derive(Default)]
pub(crate) struct StandingRules(Mutex<HashSet<String>>);

impl StandingRules {
    /// Those that are about to be in force.
    pub(crate) fn of(granted: &[Source]) -> Self {
        let standing = Self::default();
        standing.follow(granted);
        standing
    }

    /// Follows the granted rules of a generation that is in force.
    pub(crate) fn follow(&self, granted: &[Source]) {
        *self.0.lock() = rules(granted);
    }

    /// Whether a rule is among them.
    pub(crate) fn has(&self, rule: &str) -> bool {
        self.0.lock().contains(rule)
    }
}

/// Each rule of some sources.
pub(super) fn rules(sources: &[Source]) -> HashSet<String> {
    let rules = sources.iter().flat_map(Source::rules);
    rules.map(|(_, rule)| rule).collect()
}
