//! `gateway policy schema`: prints the Cedar schema that policies can use, for editors and other
//! tools.

use clap::Args;

use crate::app::{Code, ConfigFile, Failure, Terminal};
use crate::policy::schema_text;

/// Prints the schema.
#[derive(Args)]
pub(in crate::cli) struct PolicySchema {
    #[command(flatten)]
    config: ConfigFile,
}

impl PolicySchema {
    pub(in crate::cli) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let config = self.config.find()?;
        let declared = config.map(|config| config.facts).unwrap_or_default();
        schema_text(&declared)
            .lines()
            .for_each(|line| terminal.line(line));
        Ok(Code::Ok)
    }
}
