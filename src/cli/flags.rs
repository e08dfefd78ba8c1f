//! The flags that several commands take.

use std::path::PathBuf;

use clap::Args;

use crate::config::{Config, Flags};

use super::failure::Failure;
use super::screen::Screen;

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

/// The flags of `exec` and `serve`.
#[derive(Args, Clone)]
pub struct RunFlags {
    /// Lend a secret to a host: its phantom stands in NAME; REFERENCE is env:NAME, file:/PATH or
    /// keyring:SERVICE/NAME
    #[arg(long = "secret", value_name = "NAME[@HOST[:PORT]][=REFERENCE]")]
    secrets: Vec<String>,
    /// Allow a service's hosts and lend its known variables (see `gateway presets`)
    #[arg(long = "preset", value_name = "NAME")]
    presets: Vec<String>,
    /// Sign requests to AWS with your credentials: those of the environment, or of a profile of the
    /// AWS CLI
    #[arg(long, value_name = "PROFILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    aws: Option<String>,
    /// Let the credentials of --aws reach these buckets of S3 alone, or what has a prefix in one
    #[arg(long = "bucket", value_name = "NAME[/PREFIX]")]
    buckets: Vec<String>,
    /// Allow a host, or `*.DOMAIN`; port 443 unless named
    #[arg(long, value_name = "HOST[:PORT]")]
    allow: Vec<String>,
    /// Add a Cedar policy file, or a pattern such as `policies/*.cedar`
    #[arg(long = "policy", value_name = "FILE")]
    policies: Vec<String>,
    /// Read settings from a file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Put the session in a group that policies name
    #[arg(long = "group", value_name = "NAME")]
    groups: Vec<String>,
    /// Write the audit log to this file
    #[arg(long, value_name = "FILE")]
    audit: Option<String>,
    /// Show a path of the host to the workload, to be read
    #[arg(long, value_name = "PATH")]
    see: Vec<String>,
    /// Show more of the home to the workload, changes dropped: a set such as `claude`, or a path
    /// below the home
    #[arg(long, value_name = "NAME_OR_PATH")]
    see_home: Vec<String>,
    /// Hide a path from the workload
    #[arg(long, value_name = "PATH")]
    hide: Vec<String>,
    /// Let the workload change a path for good
    #[arg(long, value_name = "PATH")]
    write: Vec<String>,
    /// Pass a variable to the workload beside the harmless ones; `PREFIX*` passes several
    #[arg(long, value_name = "NAME")]
    pass_env: Vec<String>,
    /// Run the workload as this user, where the launcher is root
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Print no summary
    #[arg(long, short)]
    pub quiet: bool,
}

impl ConfigFile {
    /// Reads the named file; `None` where none is named.
    ///
    /// # Errors
    /// A [`Failure`] with every mistake of the file.
    pub fn find(&self) -> Result<Option<Config>, Failure> {
        Ok(self.config.as_deref().map(Config::load).transpose()?)
    }

    /// Reads the named file, and prints its warnings.
    ///
    /// # Errors
    /// A [`Failure`] with every mistake of the file, or that none is named.
    pub fn read(&self, screen: &Screen) -> Result<Config, Failure> {
        let config = self.find()?.ok_or_else(|| {
            Failure::usage("no configuration is named")
                .because("this command is about a `gateway serve`, which has one; none is read unasked, since a workload may write to the current folder")
                .next("name it: `--config FILE`")
        })?;
        screen.warn(&config.warnings);
        Ok(config)
    }
}

impl RunFlags {
    /// Whether no flag and no file says what is wanted.
    pub fn says_nothing(&self) -> bool {
        self.config.is_none()
            && self.aws.is_none()
            && [
                &self.secrets,
                &self.presets,
                &self.allow,
                &self.policies,
                &self.buckets,
            ]
            .iter()
            .all(|given| given.is_empty())
    }

    /// The configuration of the file and the flags together.
    ///
    /// # Errors
    /// A [`Failure`] with every mistake of both.
    pub fn config(&self, known: &dyn Fn(&str) -> Option<String>) -> Result<Config, Failure> {
        let flags = Flags {
            config: self.config.clone(),
            secrets: self.secrets.clone(),
            presets: self.presets.clone(),
            aws: self.aws.clone(),
            buckets: self.buckets.clone(),
            allow: self.allow.clone(),
            policies: self.policies.clone(),
            see: self.see.clone(),
            see_home: self.see_home.clone(),
            hide: self.hide.clone(),
            pass_env: self.pass_env.clone(),
            write: self.write.clone(),
            audit: self.audit.clone(),
            user: self.user.clone(),
            groups: self.groups.clone(),
        };
        Ok(flags.config(known)?)
    }
}
