//! `gateway generate`: shell completions for this program's commands and flags, and the manual
//! pages, made from the text of `--help`.

use std::io::{ErrorKind, Write as _, stdout};
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueHint};
use clap_complete::{Shell, generate};

use crate::app::{Advise as _, Code, Context as _, Failure, Terminal};

/// What is made from the commands and flags.
#[derive(Subcommand)]
pub(super) enum GenerateCommand {
    /// Print the completions for a shell
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages into a folder, one for each command
    #[command(
        after_help = "For yourself: gateway generate man ~/.local/share/man/man1, then `man gateway-exec`."
    )]
    Man {
        /// The folder, which is made if it does not exist
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

impl GenerateCommand {
    pub(super) fn run(self, commands: clap::Command, terminal: &Terminal) -> Result<Code, Failure> {
        match self {
            Self::Completions { shell } => completions(shell, commands),
            Self::Man { folder } => manual(&folder, commands, terminal),
        }
    }
}

fn completions(shell: Shell, mut commands: clap::Command) -> Result<Code, Failure> {
    let mut script = Vec::new();
    generate(shell, &mut commands, "gateway", &mut script);
    match stdout().lock().write_all(&script) {
        // A reader may have had enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::of("the completions cannot be printed", &error))
        }
        _ => Ok(Code::Ok),
    }
}

fn manual(folder: &Path, commands: clap::Command, terminal: &Terminal) -> Result<Code, Failure> {
    let shown = folder.display();
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(commands, folder))
        .context(format!("the manual pages cannot be written into {shown}"))
        .advise("name a folder that you can write to")?;
    terminal.note(format!(
        "the manual pages are in {shown}: man -l {shown}/gateway.1"
    ));
    Ok(Code::Ok)
}

const COMPLETIONS: &str =
    "bash: gateway generate completions bash > ~/.local/share/bash-completion/completions/gateway
zsh:  gateway generate completions zsh > ~/.zfunc/_gateway   (with `fpath+=~/.zfunc` before `compinit`)
fish: gateway generate completions fish > ~/.config/fish/completions/gateway.fish";
