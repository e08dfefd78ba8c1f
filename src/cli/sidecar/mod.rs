//! `gateway sidecar`: captures the connections of a sandbox that somebody else made.

mod attempts;
mod check;
mod rules;

use clap::Subcommand;

use crate::app::{Code, Failure, Terminal};

/// The commands beside a sandbox.
#[derive(Subcommand)]
pub(crate) enum SidecarCommand {
    Check(check::CheckCommand),
    Rules(rules::RulesCommand),
}

impl SidecarCommand {
    pub(super) fn run(self, terminal: &Terminal) -> Result<Code, Failure> {
        match self {
            Self::Check(command) => command.run(terminal),
            Self::Rules(command) => command.run(terminal),
        }
    }
}
