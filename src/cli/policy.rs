//! `gateway policy`: checks policies, runs their decision files, and explains a recorded refusal.
//! It uses the same code that enforces policy.

mod check;
mod diff;
mod load;
mod schema;
mod test;
mod why;

use clap::Subcommand;

use crate::app::{Code, Failure, Terminal};
use crate::files;

/// The commands about policies.
#[derive(Subcommand)]
pub(super) enum PolicyCommand {
    /// Load policies under strict validation, and report what is doubtful
    Check(check::PolicyCheck),
    /// Name what a change of policies newly permits
    Diff(diff::PolicyDiff),
    /// Print what policies can read, with the facts that the configuration declares
    Schema(schema::PolicySchema),
    /// Judge the requests of decision files and compare with what they expect
    Test(test::PolicyTest),
    /// Say which policy decided a recorded request, and which one would allow it
    Why(why::PolicyWhy),
}

impl PolicyCommand {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        // None of them puts a policy in force.
        files::to_show(|| match self {
            Self::Check(command) => command.run(terminal),
            Self::Diff(command) => command.run(terminal),
            Self::Schema(command) => command.run(terminal),
            Self::Test(command) => command.run(terminal),
            Self::Why(command) => command.run(terminal),
        })
    }
}
