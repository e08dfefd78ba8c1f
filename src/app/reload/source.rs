//! What a reload starts from, and what it puts in force.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tokio::sync::Mutex;

use crate::app::reload::watched::{Watched, WatchedFiles};
use crate::app::settings::profile::Profile;
use crate::app::settings::project_file;
use crate::app::settings::resolve::ResolvedConfig;
use crate::app::settings::shell_secrets::ShellLoans;
use crate::app::{Failure, RunFlags};
use crate::config::{Config, SandboxFlags};
use crate::names::{CredentialName, join};
use crate::policy::Source;

/// What a reload starts from.
pub struct Reloading {
    pub(crate) source: OnceLock<ConfigSource>,
    /// Locked during a reload, so that one follows the other.
    pub(crate) latest: Mutex<Latest>,
}

/// Where the configuration is read anew.
pub struct ConfigSource {
    /// The flags, which stay.
    pub run: RunFlags,
    /// Those of the sandbox.
    pub sandbox: SandboxFlags,
    /// Which of the shell's known secrets may be lent.
    pub shell: ShellLoans,
    /// The project's file that it started with.
    pub project: Option<PathBuf>,
    /// Whether any host may be reached, to learn what the command needs.
    pub open: bool,
    /// The agent that runs, if it is a known one.
    pub profile: Option<Profile>,
    /// The rules that operators granted.
    pub granted: Option<PathBuf>,
    /// What runs.
    pub runs_as: RunsAs,
}

/// The command that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunsAs {
    /// `gateway serve`.
    Serve,
    /// `gateway exec`.
    Exec,
}

/// A configuration that was read, with what it stands for.
pub(crate) struct ReadConfig {
    pub(crate) config: Arc<Config>,
    pub(crate) resolved: ResolvedConfig,
    /// The policies of files, flags, presets and grants.
    pub(crate) sources: Vec<Source>,
}

/// The configuration in force, and its files as they were when it was last read or refused.
pub(crate) struct Latest {
    pub(crate) read: ReadConfig,
    pub(crate) watched: Arc<Watched>,
    pub(crate) files: WatchedFiles,
}

impl Latest {
    /// Also watches the files of a configuration that was read and may be refused.
    pub(crate) fn also_watch(&mut self, read: Option<&Config>, named: BTreeSet<PathBuf>) {
        let read = read.map(|config| Arc::new(config.clone()));
        let configs = std::iter::once(self.read.config.clone()).chain(read);
        let (watched, known) = (Watched::new(configs.collect(), named), self.files.clone());
        let mut files = watched.look();
        // What was looked at before it was read stays as it was then.
        files.keep(known);
        (self.watched, self.files) = (Arc::new(watched), files);
    }

    /// Follows a configuration that is in force.
    pub(crate) fn follow(&mut self, read: ReadConfig) {
        let configs = vec![read.config.clone()];
        self.read = read;
        self.watched = Arc::new(Watched::new(configs, BTreeSet::new()));
        self.files.only(&self.watched);
    }
}

/// What a reload put in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The number of the generation.
    pub generation: u64,
    /// The credentials that sessions gained.
    pub gained: Vec<CredentialName>,
    /// The credentials that sessions lost.
    pub lost: Vec<CredentialName>,
    /// The addresses that are listened on from now on.
    pub added: Vec<String>,
    /// The addresses that are listened on no more.
    pub removed: Vec<String>,
    /// The servers that the log's records are exported to anew, or in another way.
    pub exports_begun: Vec<String>,
    /// The servers whose exports end.
    pub exports_ended: Vec<String>,
}

impl Applied {
    /// What changed beside the policies, in words.
    pub fn changes(&self) -> Vec<String> {
        let changes = [
            ("credentials gained", join(&self.gained, ", ")),
            ("credentials removed", join(&self.lost, ", ")),
            ("listeners added", join(&self.added, ", ")),
            ("listeners removed", join(&self.removed, ", ")),
            ("exports begun", join(&self.exports_begun, ", ")),
            ("exports ended", join(&self.exports_ended, ", ")),
        ];
        let changes = changes.iter().filter(|(_, names)| !names.is_empty());
        changes
            .map(|(what, names)| format!("{what}: {names}"))
            .collect()
    }
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configuration reloaded, generation {}", self.generation)?;
        self.changes()
            .iter()
            .try_for_each(|change| write!(f, "; {change}"))
    }
}

impl Reloading {
    /// Starts from this configuration.
    pub(crate) fn of(read: ReadConfig) -> Self {
        let watched = Watched::new(vec![read.config.clone()], BTreeSet::new());
        Self {
            source: OnceLock::new(),
            latest: Mutex::new(Latest {
                files: watched.look(),
                watched: Arc::new(watched),
                read,
            }),
        }
    }
}

impl ConfigSource {
    /// Reads the configuration anew.
    ///
    /// # Errors
    /// Returns a [`Failure`] with every mistake.
    pub fn read(&self) -> Result<(Config, ResolvedConfig), Failure> {
        let project = self.project.as_deref();
        let project = project.map(project_file::again).transpose()?;
        let mut config = self.run.config_in(project.as_ref(), &self.sandbox)?;
        config.granted = self.granted.clone();
        config.open = self.open;
        if let Some(profile) = &self.profile {
            profile.add_to(&mut config);
        }
        let resolved = ResolvedConfig::of(&config, &self.shell)?;
        Ok((config, resolved))
    }
}
