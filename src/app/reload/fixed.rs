//! Refuses changes that need a new start.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::project::{project, working_directory};
use crate::reload::source::{ConfigSource, RunMode};
use crate::settings::resolve::ResolvedConfig;
use crate::{App, Failure};
use gateway_config::{Config, FleetSettings, state};

impl App {
    /// Refuses changes that need a new start.
    pub fn refuse_fixed(
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
        if source.runs_as == RunMode::Serve {
            return Ok(());
        }
        let first = ResolvedConfig::of(&self.config, &source.shell)?;
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

    /// Returns the folders of policies that the sandbox of `exec` does not have, without those that
    /// hold the project or a home.
    fn hidden_folders(&self) -> BTreeSet<PathBuf> {
        let own = [project().ok(), working_directory().ok(), state::home()];
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

/// Returns the files and programs that a workload must not reach.
fn outside(config: &Config, resolved: &ResolvedConfig) -> BTreeSet<PathBuf> {
    let mut files: BTreeSet<PathBuf> = config.own_files().into_iter().collect();
    files.extend(config.secret_files());
    let programs = resolved.stored.iter();
    files.extend(programs.filter_map(|stored| Some(stored.from.program()?.to_owned())));
    files
}

/// Returns the changed keys that are fixed as long as the process runs.
fn fixed(runs_as: RunMode, old: &Config, new: &Config) -> Vec<&'static str> {
    let (control, other_control) = (&old.control, &new.control);
    let serves = runs_as == RunMode::Serve;
    let changed = [
        ("`[audit] path`", old.audit.path != new.audit.path),
        ("`[state] path`", old.state.path != new.state.path),
        ("`[state] key`", old.state.key != new.state.key),
        ("`[state] url`", is_other(old, new, |one| &one.url)),
        (
            "`[state] password`",
            is_other(old, new, |one| &one.password),
        ),
        ("`[state] roots`", is_other(old, new, |one| &one.roots)),
        ("`[state] replica`", is_other(old, new, |one| &one.replica)),
        (
            "`[state] stale_after`",
            is_other(old, new, |one| &one.stale_after),
        ),
        ("`[runtime] threads`", serves && old.runtime != new.runtime),
        ("`[sandbox]`", !serves && old.sandbox != new.sandbox),
        ("`[[notify]]`", old.notify != new.notify),
        ("`[control] path`", control.path != other_control.path),
        (
            "`[control] metrics_address`",
            control.metrics_address != other_control.metrics_address,
        ),
        (
            "`[control] address`",
            control.address() != other_control.address(),
        ),
    ];
    let changed = changed.into_iter().filter(|(_, changed)| *changed);
    changed.map(|(key, _)| key).collect()
}

/// Whether a part of a fleet's settings differs, or one configuration has no fleet.
fn is_other<T: PartialEq>(old: &Config, new: &Config, part: fn(&FleetSettings) -> &T) -> bool {
    let [old, new] = [old, new].map(|config| config.state.fleet.as_ref().map(part));
    old != new
}
