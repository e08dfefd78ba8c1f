//! Reloads: reads the configuration anew, and puts it in force as a whole or not at all.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::app::App;
use super::failure::Failure;
use super::generation;
use super::publishing;
use super::reloading::{Applied, ConfigSource, RunsAs};
use super::resolve::ResolvedConfig;
use super::watched::WatchedFiles;
use crate::config::{Config, state};
use crate::gateway::Snapshot;
use crate::names::CredentialName;
use crate::session::Session;
use crate::session::phantom::Phantoms;

impl App {
    /// Says where the configuration is read anew. Without it, nothing can be reloaded.
    #[must_use]
    pub fn reloading_from(self, source: ConfigSource) -> Self {
        // Set once, where the program is assembled.
        let _ = self.reloading.source.set(source);
        self
    }

    /// Reads the configuration anew and puts it in force as one generation. The flags stay.
    ///
    /// It is read and checked beside the data path, on a thread of its own. The next request is
    /// judged by it, and what is under way is judged again.
    ///
    /// # Errors
    /// Returns a [`Failure`] with the reasons, if anything of it is refused. Nothing has changed
    /// then.
    pub async fn reload(self: &Arc<Self>) -> Result<Applied, Failure> {
        let (app, runtime) = (self.clone(), Handle::current());
        // A store may take long. The end of the gateway does not wait for it.
        let run = async move {
            tokio::select! {
                reloaded = app.reload_here() => reloaded,
                () = app.shared.draining.cancelled() => Err(Failure::new("the gateway stops")),
            }
        };
        let reloaded = spawn_blocking(move || runtime.block_on(run)).await;
        let reloaded = reloaded.unwrap_or_else(|error| {
            Err(Failure::new("the reload broke off").because(error.to_string()))
        });
        self.shared.metrics.reload(reloaded.is_ok());
        reloaded
    }

    /// The addresses of the configuration in force, each with its session.
    pub async fn listeners(&self) -> Vec<(String, String)> {
        let latest = self.reloading.latest.lock().await;
        let listeners = latest.config.listeners.iter();
        listeners
            .map(|one| (one.address.to_string(), one.session.to_string()))
            .collect()
    }

    /// Reloads whenever a file of the configuration changes, for ever. `tell` gets each outcome.
    pub async fn watch(self: Arc<Self>, tell: impl Fn(Result<Applied, Failure>)) {
        let mut changed = None;
        loop {
            tokio::time::sleep(LOOKED_AT_EVERY).await;
            let app = self.clone();
            let look = spawn_blocking(move || {
                let latest = app.reloading.latest.blocking_lock();
                let now = WatchedFiles::of(&latest.config);
                (now != latest.files).then_some(now)
            });
            let now = look.await.unwrap_or_default();
            // A file that is still being written is left until it stays the same.
            if now.is_some() && now == changed {
                tell(self.reload().await);
            }
            changed = now;
        }
    }

    async fn reload_here(&self) -> Result<Applied, Failure> {
        let mut latest = self.reloading.latest.lock().await;
        // Looked at before they are read: a change in between is read again.
        latest.files = WatchedFiles::of(&latest.config);
        let source = self.reloading.source.get().ok_or_else(|| {
            Failure::new("this command has no configuration that could be reloaded")
        })?;
        let (config, resolved) = source.read()?;
        let files = WatchedFiles::of(&config);
        self.refuse_fixed(source, &latest.config, &config, &resolved)?;
        let before = self.shared.current();
        let next = generation::next(&before, &latest.config, &config, resolved)?;
        let renewed = self.phantoms(&before, &next).await?;
        let applied = Applied {
            generation: next.number(),
            gained: missing(&next, &before),
            lost: missing(&before, &next),
        };
        // From here on nothing fails.
        for (session, phantoms) in &renewed {
            session.hold(phantoms);
        }
        for session in self.shared.sessions.all() {
            session.limit_idle(config.ca.idle);
        }
        let holding = next.credentials.holding();
        holding.budget.resize(config.limits.max_buffered_total);
        holding.decoding.resize(config.limits.max_decoder_memory);
        self.shared.replace(next);
        if !files.names().eq(latest.files.names()) {
            latest.files = files;
        }
        latest.config = config;
        self.tell_workload(source, &latest.config);
        tokio::spawn(give_back(before, self.shared.current()));
        Ok(applied)
    }

    /// Returns the phantoms of every live session in the next generation.
    async fn phantoms(
        &self,
        before: &Snapshot,
        next: &Snapshot,
    ) -> Result<Vec<(Arc<Session>, Phantoms)>, Failure> {
        let mut renewed = Vec::new();
        for session in self.shared.sessions.all() {
            let issued = self.issue_next(before, next, &session).await?;
            renewed.extend(issued.map(|phantoms| (session, phantoms)));
        }
        Ok(renewed)
    }

    /// Writes the phantoms of each session for its workload, if they changed.
    fn tell_workload(&self, source: &ConfigSource, config: &Config) {
        if source.runs_as != RunsAs::Serve {
            return;
        }
        let snapshot = self.shared.current();
        for session in self.shared.sessions.all() {
            let bindings = snapshot.credentials.bindings();
            if let Err(failure) = publishing::phantoms(config, bindings, &session) {
                tracing::error!(%failure, "the workload's phantoms were not written");
            }
        }
    }

    /// Refuses changes that only a new start can make.
    fn refuse_fixed(
        &self,
        source: &ConfigSource,
        old: &Config,
        new: &Config,
        resolved: &ResolvedConfig,
    ) -> Result<(), Failure> {
        let fixed = fixed(source.runs_as, old, new);
        if !fixed.is_empty() {
            return Err(Failure::usage("the new configuration is refused")
                .because(format!(
                    "{} cannot change while the gateway runs",
                    fixed.join(", ")
                ))
                .next("start the gateway anew, or take the change back"));
        }
        if source.runs_as == RunsAs::Serve {
            return Ok(());
        }
        let first = ResolvedConfig::of(&self.config, source.known_variables)?;
        let known = outside(&self.config, &first);
        let hidden = self.hidden_folders();
        let policies = new.policy.paths();
        let is_hidden = |file: &PathBuf| {
            let real = file.canonicalize();
            let folder = real.as_deref().ok().and_then(Path::parent);
            policies.contains(file) && folder.is_some_and(|folder| hidden.contains(folder))
        };
        let exposed = outside(new, resolved);
        let mut exposed = exposed.difference(&known).filter(|file| !is_hidden(file));
        match exposed.next() {
            Some(file) => Err(Failure::usage("the new configuration is refused")
                .because(format!(
                    "it names `{}`, which the sandbox was not told to hide when it was made",
                    file.display()
                ))
                .next("end the command and run it again")),
            None => Ok(()),
        }
    }
}

impl App {
    /// The folders of policies that the sandbox of `exec` does not have: not those that hold the
    /// project or a home.
    fn hidden_folders(&self) -> BTreeSet<PathBuf> {
        let own = [std::env::current_dir().ok(), state::home()];
        let inside: Vec<PathBuf> = own
            .into_iter()
            .flatten()
            .chain(self.config.sandbox.write.iter().cloned())
            .collect();
        let mut folders: BTreeSet<PathBuf> = self.config.policy.folders().into_iter().collect();
        folders.retain(|folder| {
            let is_user = self.config.sandbox.user.is_none();
            is_user && !inside.iter().any(|inside| inside.starts_with(folder))
        });
        folders
    }
}

/// Gives back what only the generation before was issued.
async fn give_back(before: Arc<Snapshot>, next: Arc<Snapshot>) {
    let stores = next.credentials.stores();
    before.credentials.stores().give_back(stores).await;
}

/// The files and programs that a workload must not reach.
fn outside(config: &Config, resolved: &ResolvedConfig) -> BTreeSet<PathBuf> {
    let mut files: BTreeSet<PathBuf> = config.own_files().into_iter().collect();
    files.extend(config.secret_files());
    let programs = resolved.stored.iter();
    files.extend(programs.filter_map(|stored| Some(stored.from.program()?.to_owned())));
    files
}

/// The credentials of one generation that another lacks.
fn missing(of: &Snapshot, other: &Snapshot) -> Vec<CredentialName> {
    let all = of.credentials.bindings().all();
    let gone = all.filter(|binding| !other.credentials.bindings().has(&binding.credential));
    gone.map(|binding| binding.credential.clone()).collect()
}

/// The keys that differ and hold as long as the process runs.
fn fixed(runs_as: RunsAs, old: &Config, new: &Config) -> Vec<&'static str> {
    let (audit, other) = (&old.audit, &new.audit);
    let serves = runs_as == RunsAs::Serve;
    let changed = [
        ("`[audit] path`", audit.path != other.path),
        ("`[audit] sync`", audit.sync != other.sync),
        ("`[audit] rotate`", audit.rotate_bytes != other.rotate_bytes),
        (
            "`[audit] session_burst` and `session_rate`",
            audit.allowance != other.allowance,
        ),
        ("`[[export]]`", old.exports != new.exports),
        (
            "`[ca] certificate`",
            old.ca.certificate != new.ca.certificate,
        ),
        ("`[ca] lifetime`", old.ca.lifetime != new.ca.lifetime),
        ("`[state] path`", old.state.path != new.state.path),
        ("`[state] key`", old.state.key != new.state.key),
        ("`[runtime] threads`", serves && old.runtime != new.runtime),
        ("`[[listener]]`", serves && old.listeners != new.listeners),
        ("`[sandbox]`", !serves && old.sandbox != new.sandbox),
        ("`[control]`", old.control != new.control),
        (
            "`[limits] cached_certificates`",
            old.limits.cached_certificates != new.limits.cached_certificates,
        ),
    ];
    let changed = changed.into_iter().filter(|(_, changed)| *changed);
    changed.map(|(key, _)| key).collect()
}

/// How often the files of the configuration are looked at. A change is applied after two looks.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(500);
