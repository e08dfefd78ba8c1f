//! The log of the last run in a project.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::app::project::project;
use crate::app::{App, Failure};
use crate::config::state;
use crate::files::{self, UserKind, UserTable};
use crate::grant::ObservedAccess;

/// The last run of `gateway exec` in a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastRun {
    /// The process that the user started.
    pub launcher: Option<i32>,
    /// Its audit log.
    pub log: PathBuf,
    /// The number of its first record there.
    after: u64,
    /// The file of rules granted to it, unless the command could change that file.
    #[serde(default)]
    pub granted: Option<PathBuf>,
    /// Its configuration, if it had one.
    #[serde(default)]
    pub config: Option<PathBuf>,
}

impl LastRun {
    /// Records that a run begins, in place of the one before. If this fails, the run goes on, and
    /// cannot be learned from.
    pub(super) fn begin(folder: &Path, app: &App) {
        let Some(log) = app.shared.log.path() else {
            return;
        };
        let run = Self {
            launcher: rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get()),
            log: std::path::absolute(log).unwrap_or_else(|_| log.to_owned()),
            after: app.shared.log.head().map_or(0, |head| head.seq() + 1),
            granted: app.config.granted.clone(),
            config: app
                .config
                .file
                .clone()
                .or_else(|| app.config.project.clone()),
        };
        if let Err(failure) = runs().keep(folder, &run) {
            tracing::warn!(%failure, "nothing can be learned from this run");
        }
    }

    /// Returns the last run in a project.
    ///
    /// # Errors
    /// Returns a [`Failure`] if there was none, or if it cannot be read.
    pub(super) fn of(folder: &Path) -> Result<Self, Failure> {
        let none = || {
            Failure::new("no run in this project is known")
                .next("run the command: `gateway exec --learn -- CMD`")
        };
        runs().read(folder)?.ok_or_else(none)
    }

    /// Reads the access that the run asked for.
    ///
    /// # Errors
    /// Returns a [`Failure`] if its log cannot be read.
    pub(super) fn observed(&self) -> Result<ObservedAccess, Failure> {
        Ok(ObservedAccess::of(&self.log, self.after)?)
    }
}

/// Returns the file that lists what a run in the project left, if the folder can be used.
pub(super) fn list() -> Option<PathBuf> {
    let list = state::granted_for(&project().ok()?, None)?.with_file_name("left.txt");
    files::private_folder(list.parent()?).ok()?;
    Some(list)
}

fn runs() -> UserTable {
    UserTable::of_user(&UserKind {
        name: "last run",
        version: 1,
        what: "what is known of the last run",
        anew: "run the command: `gateway exec --learn -- CMD`",
    })
}
