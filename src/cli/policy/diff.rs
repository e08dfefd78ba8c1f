//! `gateway policy diff`: names what a change of policies newly permits, before it is in force.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::load::load;
use crate::app::{Code, ConfigFile, Failure, Terminal};

/// How long requests are tried.
const WITHIN: Duration = Duration::from_secs(30);

/// Compares policies.
#[derive(Args)]
pub(in crate::cli) struct PolicyDiff {
    /// A policy file, or a folder of them, as it is
    old: PathBuf,
    /// The same as it is to be
    new: PathBuf,
    #[command(flatten)]
    config: ConfigFile,
}

impl PolicyDiff {
    pub(in crate::cli) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let config = self.config.find()?;
        let read = |path| load(terminal, &[path], config.as_ref());
        let (Some(old), Some(new)) = (read(self.old)?, read(self.new)?) else {
            return Ok(Code::Failed);
        };
        let told = new.generation().widened(old.generation(), WITHIN);
        if terminal.json() {
            terminal.document(&json!({ "widened": told }));
        } else if told.is_empty() {
            terminal.line("nothing more is permitted");
        } else {
            told.iter().for_each(|line| terminal.line_of_peer(line));
        }
        Ok(Code::Ok)
    }
}
