//! Flags that several commands accept.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;

use gateway_config::{Config, Flags, MORE, SandboxFlags};

use crate::settings::project_file::AllowedFile;
use crate::{Failure, Terminal};

/// Names the configuration file of a command that reads settings and no flags.
///
/// There is no default: a file of the current folder may be the workload's, and whoever wrote it
/// would answer the person.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigFile {
    /// The configuration file; none is read unless it is named
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    /// Names the file of a run.
    pub fn of(config: Option<PathBuf>) -> Self {
        Self { config }
    }
}

/// The flags of `exec` and `serve`.
#[derive(Args, Clone)]
pub struct RunFlags {
    #[command(flatten)]
    flags: Flags,
    /// Print no summary, and with `serve` no lines of listeners, refusals and cuts
    #[arg(long, short, help_heading = MORE)]
    pub quiet: bool,
}

impl ConfigFile {
    /// Returns the named file.
    pub fn path(&self) -> Option<&Path> {
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
    pub fn config(&self, sandbox: &SandboxFlags) -> Result<Config, Failure> {
        Ok(self.flags.config(sandbox, &known_variable)?)
    }

    /// Returns the configuration of a run of `exec`: the user's own file, above it the project's,
    /// and the flags. A file that is named stands in place of both.
    ///
    /// # Errors
    /// Returns a [`Failure`] with every mistake of the first that has any.
    pub fn config_in(
        &self,
        project: Option<&AllowedFile>,
        sandbox: &SandboxFlags,
    ) -> Result<Config, Failure> {
        if self.names_file() {
            return self.config(sandbox);
        }
        let project = project.map(AllowedFile::configuration).transpose()?;
        let read = match (Config::of_user()?, project) {
            (Some(user), Some(project)) => Some(project.above(user)),
            (user, project) => project.or(user),
        };
        Ok(self
            .flags
            .added_to(read.map(Ok), sandbox, &known_variable)?)
    }

    /// Adds a proxy to the listeners of the file.
    pub fn listen(&mut self, address: Option<SocketAddr>) {
        self.flags.listen = address;
    }

    /// Whether a configuration is named. If so, no other file is read.
    pub fn names_file(&self) -> bool {
        self.flags.config.is_some()
    }
}

/// Returns the preset of a variable that clients read a credential from, such as `github` for
/// `GITHUB_TOKEN`.
fn known_variable(variable: &str) -> Option<String> {
    gateway_credential::preset::of_variable(variable).map(|(preset, _)| preset.name.clone())
}
