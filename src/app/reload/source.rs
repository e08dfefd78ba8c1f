//! The source of a reload, and its outcome.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tokio::sync::Mutex;

use crate::reload::watch_list::{FileStates, WatchList};
use crate::settings::profile::Profile;
use crate::settings::project_file;
use crate::settings::resolve::ResolvedConfig;
use crate::settings::shell_secrets::ShellLoans;
use crate::{Failure, RunFlags, safe};
use gateway_config::{Config, SandboxFlags};
use gateway_names::{CredentialName, join};
use gateway_policy::Source;

/// The state that a reload starts from.
pub struct ReloadState {
    pub(crate) source: OnceLock<ConfigSource>,
    /// Locked during a reload, so that one follows the other.
    pub latest: Mutex<CurrentConfig>,
}

/// The source that the configuration is read from again.
pub struct ConfigSource {
    /// The flags, which stay.
    pub run: RunFlags,
    /// The flags of the sandbox.
    pub sandbox: SandboxFlags,
    /// The known secrets of the shell that may be lent.
    pub shell: ShellLoans,
    /// The project's file that it started with.
    pub project: Option<PathBuf>,
    /// Whether any host may be reached, to learn the command's needs.
    pub open: bool,
    /// The fingerprint of the key that signs commits.
    pub commit_key: Option<String>,
    /// The profile of the agent that runs, if it is a known one.
    pub profile: Option<Profile>,
    /// The rules that operators granted.
    pub granted: Option<PathBuf>,
    /// The command that runs.
    pub runs_as: RunMode,
}

/// The command that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    /// `gateway serve`.
    Serve,
    /// `gateway exec`.
    Exec,
}

/// A configuration that was read, with its resolved credentials and hosts.
pub struct LoadedConfig {
    pub(crate) config: Arc<Config>,
    pub(crate) resolved: ResolvedConfig,
    /// The policies of files, flags, presets and grants.
    pub sources: Vec<Source>,
}

/// The configuration in force, and its files as they were when it was last read or refused.
pub struct CurrentConfig {
    pub(crate) read: LoadedConfig,
    pub(crate) watched: Arc<WatchList>,
    pub(crate) files: FileStates,
}

impl CurrentConfig {
    /// Also watches the files of a configuration that was read and may be refused.
    pub fn also_watch(&mut self, read: Option<&Config>, named: BTreeSet<PathBuf>) {
        let read = read.map(|config| Arc::new(config.clone()));
        let configs = std::iter::once(self.read.config.clone()).chain(read);
        let (watched, known) = (WatchList::new(configs.collect(), named), self.files.clone());
        let mut files = watched.look();
        // Files that were looked at before they were read keep that state.
        files.keep(known);
        (self.watched, self.files) = (Arc::new(watched), files);
    }

    /// Takes over a configuration that is in force.
    pub fn follow(&mut self, read: LoadedConfig) {
        let configs = vec![read.config.clone()];
        self.read = read;
        self.watched = Arc::new(WatchList::new(configs, BTreeSet::new()));
        self.files.only(&self.watched);
    }
}

/// The outcome of a reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadOutcome {
    /// The number of the generation.
    pub generation: u64,
    /// The credentials that sessions gained.
    pub gained: Vec<CredentialName>,
    /// The credentials that sessions lost.
    pub lost: Vec<CredentialName>,
    /// The addresses of added listeners.
    pub added: Vec<String>,
    /// The addresses of removed listeners.
    pub removed: Vec<String>,
    /// The servers of exports that begin, or that changed.
    pub exports_begun: Vec<String>,
    /// The servers whose exports end.
    pub exports_ended: Vec<String>,
    /// What policies permit that they did not before.
    pub widened: Vec<String>,
}

impl ReloadOutcome {
    /// Describes the changes, of policies those that permit more.
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
            .chain(self.widened.iter().map(|line| safe(line)))
            .collect()
    }
}

impl fmt::Display for ReloadOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configuration reloaded, generation {}", self.generation)?;
        self.changes()
            .iter()
            .try_for_each(|change| write!(f, "; {change}"))
    }
}

impl ReloadState {
    /// Starts from this configuration.
    pub fn of(read: LoadedConfig) -> Self {
        let watched = WatchList::new(vec![read.config.clone()], BTreeSet::new());
        Self {
            source: OnceLock::new(),
            latest: Mutex::new(CurrentConfig {
                files: watched.look(),
                watched: Arc::new(watched),
                read,
            }),
        }
    }
}

impl ConfigSource {
    /// Reads the configuration again.
    ///
    /// # Errors
    /// Returns a [`Failure`] with every mistake.
    pub fn read(&self) -> Result<(Config, ResolvedConfig), Failure> {
        let project = self.project.as_deref();
        let project = project.map(project_file::again).transpose()?;
        let mut config = self.run.config_in(project.as_ref(), &self.sandbox)?;
        config.granted = self.granted.clone();
        config.open = self.open;
        config.commit_key.clone_from(&self.commit_key);
        if let Some(profile) = &self.profile {
            profile.add_to(&mut config);
        }
        let resolved = ResolvedConfig::of(&config, &self.shell)?;
        Ok((config, resolved))
    }
}
