//! The grants of a running gateway, and the state that they depend on.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use gateway_policy::Source;
use gateway_server::SharedState;
use parking_lot::Mutex;

use super::file::GrantedFile;

/// The grants of a running gateway.
pub struct Grants {
    pub(super) shared: Arc<SharedState>,
    /// The file of granted rules, if there is one.
    pub(super) file: Option<GrantedFile>,
    /// The configuration file, which messages to an operator name.
    pub(super) config: Option<PathBuf>,
    /// The granted rules in force. A later refusal by a person does not end them.
    pub(super) standing: Mutex<HashSet<String>>,
}

impl Grants {
    /// Starts with these rules in force.
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

    /// Takes over the granted rules of the generation now in force.
    pub fn follow(&self, granted: &[Source]) {
        *self.standing.lock() = rules(granted);
    }
}

/// Each rule of some sources.
pub(super) fn rules(sources: &[Source]) -> HashSet<String> {
    let rules = sources.iter().flat_map(Source::rules);
    rules.map(|(_, rule)| rule).collect()
}
