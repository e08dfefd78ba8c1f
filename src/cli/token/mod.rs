//! `gateway token`: asks a gateway to mint and revoke tokens; narrows and shows tokens without a
//! gateway and without its key.

mod minting;
pub(crate) mod narrowing;
mod offline;
mod reading;

use clap::Subcommand;

use crate::app::{Code, Failure, Terminal};

/// The commands about tokens.
#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Mint a token of a session, for clients of a listener that takes tokens
    Mint(minting::MintToken),
    /// Revoke a token in every gateway of yours, with all that was derived from it
    Revoke(minting::RevokeToken),
    /// Narrow a token: print one that allows only this of what it allowed
    Attenuate(offline::Attenuate),
    /// Show whose a token is and what narrows it; whether it is genuine only its gateway knows
    Inspect(reading::TokenSource),
}

impl TokenCommand {
    pub(crate) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        match self {
            Self::Mint(command) => command.run(terminal),
            Self::Revoke(command) => command.run(terminal),
            Self::Attenuate(command) => command.run(terminal),
            Self::Inspect(source) => offline::show(&source, terminal),
        }
    }
}
