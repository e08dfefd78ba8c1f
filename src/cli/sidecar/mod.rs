//! `gateway sidecar`: captures the connections of a sandbox that another program made, or relays
//! them to the gateway.

mod attempts;
mod captured;
mod check;
mod lent;
mod nearby;
mod relay;
mod rules;
mod uplink;

use clap::{Args, Subcommand};

use crate::app::{Code, Failure, Terminal};

/// Capture or relay the connections of a sandbox that others made
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(crate) struct Sidecar {
    #[command(subcommand)]
    command: Option<SidecarCommand>,
    #[command(flatten)]
    relay: Option<relay::Relay>,
}

#[derive(Subcommand)]
enum SidecarCommand {
    Check(check::CheckCommand),
    Rules(rules::RulesCommand),
}

impl Sidecar {
    pub(super) fn run(self, terminal: &Terminal) -> Result<Code, Failure> {
        match (self.command, self.relay) {
            (Some(SidecarCommand::Check(command)), _) => command.run(terminal),
            (Some(SidecarCommand::Rules(command)), _) => command.run(terminal),
            (None, Some(relay)) => relay.run(*terminal),
            (None, None) => Err(Failure::usage("there is nothing to do")
                .next("write `gateway sidecar --to unix:PATH` or `--to https://HOST:PORT`, or one of its commands")),
        }
    }
}
