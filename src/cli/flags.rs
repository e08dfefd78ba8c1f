//! Flags that several commands accept.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::config::{Config, Flags, SandboxFlags};

use super::failure::Failure;
use super::project_file::AllowedFile;
use super::terminal::Terminal;

/// Names the configuration file of a command that reads settings and no flags.
///
/// There is no default: a file of the current folder may be the workload's, and whoever wrote it
/// would answer the person.
#[derive(Args, Clone, Debug)]
pub struct ConfigFile {
    /// The configuration file; none is read unless it is named
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    /// Names none.
    pub(super) fn none() -> Self {
        Self { config: None }
    }

    /// Names the file of a run.
    pub(super) fn of(config: Option<PathBuf>) -> Self {
        Self { config }
    }
}

/// The flags of `exec` and `serve`.
#[derive(Args, Clone)]
pub struct RunFlags {
    #[command(flatten)]
    flags: Flags,
    /// Print no summary, and with `serve` no lines of listeners, refusals and cuts
    #[arg(long, short)]
    pub quiet: bool,
}

impl ConfigFile {
    /// Returns the named file.
    pub(super) fn path(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Reads the named file; `None` if no file is named.
    ///
    /// # Errors
    /// Returns a [`Failure`] with every mistake of the file.
    pub fn find(&self) -> Result<Option<Config>, Failure> {
        Ok(self.config.as_deref().map(Config::load).transpose()?)
    }

    /// Reads the named file, and prints its warnings.
    ///
    /// # Errors
    /// Returns a [`Failure`] if no file is named, or with every mistake of the file.
    pub fn read(&self, terminal: &Terminal) -> Result<Config, Failure> {
        let config = self.find()?.ok_or_else(|| {
            Failure::usage("no configuration is named")
                .because("this command is about a `gateway serve`, which has one; none is read unasked, since a workload may write to the current folder")
                .next("name it: `--config FILE`")
        })?;
        terminal.warn(&config.warnings);
        Ok(config)
    }
}

impl RunFlags {
    /// Returns the configuration of the file and the flags together.
    ///
    /// # Errors
    /// Returns a [`Failure`] with every mistake of both.
    pub fn config(
        &self,
        sandbox: &SandboxFlags,
        known: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Config, Failure> {
        Ok(self.flags.config(sandbox, known)?)
    }

    /// Returns the configuration of the project's file and the flags together.
    ///
    /// # Errors
    /// Returns a [`Failure`] with every mistake of both.
    pub(super) fn config_in(
        &self,
        project: Option<&AllowedFile>,
        sandbox: &SandboxFlags,
        known: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Config, Failure> {
        let Some(file) = project else {
            return self.config(sandbox, known);
        };
        let read = file.configuration();
        Ok(self.flags.added_to(Some(read), sandbox, known)?)
    }

    /// Whether a configuration is named, which then holds alone.
    pub(super) fn names_file(&self) -> bool {
        self.flags.config.is_some()
    }
}
