//! The grants of a running gateway: what they are made from, and the rules that are in force.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::file::GrantedFile;
use crate::gateway::SharedState;
use crate::policy::Source;

/// The grants of a running gateway.
pub struct Grants {
    pub(super) shared: Arc<SharedState>,
    /// Where granted rules are kept, if they are.
    pub(super) file: Option<GrantedFile>,
    /// The file of the configuration, for what an operator is told.
    pub(super) config: Option<PathBuf>,
    /// The granted rules in force, which stand whatever a person refuses afterwards.
    pub(super) standing: Mutex<HashSet<String>>,
}

impl Grants {
    /// The grants of a gateway that begins with these rules.
    pub fn new(
        shared: Arc<SharedState>,
        (file, config): (Option<PathBuf>, Option<PathBuf>),
        granted: &[Source],
    ) -> Self {
        Self {
            shared,
            file: file.map(GrantedFile::new),
            config,
            standing: Mutex::new(rules(granted)),
        }
    }

    /// Follows the granted rules of a generation that is in force.
    pub fn follow(&self, granted: &[Source]) {
        *self.standing.lock() = rules(granted);
    }
}

/// Each rule of some sources.
pub(super) fn rules(sources: &[Source]) -> HashSet<String> {
    let rules = sources.iter().flat_map(Source::rules);
    rules.map(|(_, rule)| rule).collect()
}
