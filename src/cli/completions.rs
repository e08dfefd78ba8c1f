//! `gateway completions`: what a shell needs to complete this program's commands and flags.

use std::io::{ErrorKind, Write as _, stdout};

use clap::Args;
use clap_complete::{Shell, generate};

use crate::app::{Code, Failure};

/// Print the completions for a shell
#[derive(Args)]
#[command(after_help = AFTER)]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self, mut commands: clap::Command) -> Result<Code, Failure> {
        let mut script = Vec::new();
        generate(self.shell, &mut commands, "gateway", &mut script);
        match stdout().lock().write_all(&script) {
            // A reader may have had enough.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::of("the completions cannot be printed", &error))
            }
            _ => Ok(Code::Ok),
        }
    }
}

const AFTER: &str =
    "bash: gateway completions bash > ~/.local/share/bash-completion/completions/gateway
zsh:  gateway completions zsh > ~/.zfunc/_gateway   (with `fpath+=~/.zfunc` before `compinit`)
fish: gateway completions fish > ~/.config/fish/completions/gateway.fish";
