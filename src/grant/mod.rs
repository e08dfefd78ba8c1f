//! Grants: what a person allows beside the policies of the configuration. A rule is made from a
//! refusal, a proposal, a host that is named, or a run that was watched; one file keeps it.

mod denials;
mod error;
mod file;
mod lookup;
mod observed;
pub mod request;
mod rule;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::gateway::SharedState;
use crate::policy::Source;

pub use denials::RecordedDenials;
pub use error::ControlRefusal;
pub use file::{GrantedFile, GrantedRule, leave_out_ended};
pub use observed::ObservedAccess;
pub use rule::{AllowAnswer, AllowRequest, NoRule, Parsed, rule_for};

/// The grants of a running gateway.
pub struct Grants {
    shared: Arc<SharedState>,
    /// Where granted rules are kept, if they are.
    file: Option<GrantedFile>,
    /// The file of the configuration, for what an operator is told.
    config: Option<PathBuf>,
    /// The granted rules in force, which stand whatever a person refuses afterwards.
    standing: Mutex<HashSet<String>>,
}

impl Grants {
    /// The grants of a gateway that begins with these rules.
    #[must_use]
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

fn rules(sources: &[Source]) -> HashSet<String> {
    let rules = sources.iter().flat_map(Source::rules);
    rules.map(|(_, rule)| rule).collect()
}
