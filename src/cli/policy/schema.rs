//! `gateway policy schema`: what policies can read, as Cedar's schema, for editors and other tools.

use clap::Args;

use super::{Code, Failure, Screen};
use crate::cli::flags::ConfigFile;
use crate::policy::schema_text;

/// Prints the schema.
#[derive(Args)]
pub(in crate::cli) struct Schema {
    #[command(flatten)]
    config: ConfigFile,
}

impl Schema {
    pub(in crate::cli) fn run(self, screen: &mut Screen) -> Result<Code, Failure> {
        let config = self.config.find()?;
        let declared = config.map(|config| config.facts).unwrap_or_default();
        schema_text(&declared)
            .lines()
            .for_each(|line| screen.line(line));
        Ok(Code::Ok)
    }
}
