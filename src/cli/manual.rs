//! `gateway man`: the manual pages, made from what `--help` shows.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::app::{Advise as _, Code, Context as _, Failure, Terminal};

/// Write the manual pages into a folder, one for each command
#[derive(Args)]
#[command(
    after_help = "For yourself: gateway man ~/.local/share/man/man1, then `man gateway-exec`."
)]
pub(super) struct Manual {
    /// The folder, which is made if it does not exist
    #[arg(value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

impl Manual {
    pub(super) fn run(self, commands: clap::Command, terminal: &Terminal) -> Result<Code, Failure> {
        let folder = self.folder.display();
        std::fs::create_dir_all(&self.folder)
            .and_then(|()| clap_mangen::generate_to(commands, &self.folder))
            .context(format!("the manual pages cannot be written into {folder}"))
            .advise("name a folder that you can write to")?;
        terminal.note(format!(
            "the manual pages are in {folder}: man -l {folder}/gateway.1"
        ));
        Ok(Code::Ok)
    }
}
