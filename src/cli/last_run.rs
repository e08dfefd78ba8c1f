//! Which log holds what the last run in a project asked for.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::app::project::project;
use crate::app::write::write;
use crate::app::{App, Failure};
use crate::config::state;
use crate::files;
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
    /// Where what a person grants to it is kept, unless the command could change that.
    #[serde(default)]
    pub granted: Option<PathBuf>,
    /// Its configuration, if it had one.
    #[serde(default)]
    pub config: Option<PathBuf>,
}

impl LastRun {
    /// Notes that a run begins, in the place of the one before. If that fails, nothing can be
    /// learned from the run, and it goes on.
    pub(super) fn begin(folder: &Path, app: &App) {
        let (Some(file), Some(log)) = (file_of(folder), app.shared.log.path()) else {
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
        let kept = file.parent().map(files::private_folder);
        if kept.is_some_and(|kept| kept.is_ok())
            && let Ok(text) = serde_json::to_vec(&run)
            && let Err(failure) = write(&file, &text, 0o600)
        {
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
        let file = file_of(folder)
            .filter(|file| file.exists())
            .ok_or_else(none)?;
        let unreadable = |error: &dyn std::error::Error| {
            Failure::of("what is known of the last run cannot be read", error)
        };
        files::check_private(&file).map_err(|unfit| unreadable(&unfit))?;
        let text = files::read(&file, 1).map_err(|unfit| unreadable(&unfit))?;
        serde_json::from_str(&text).map_err(|error| unreadable(&error))
    }

    /// Reads what it asked for.
    ///
    /// # Errors
    /// Returns a [`Failure`] if its log cannot be read.
    pub(super) fn observed(&self) -> Result<ObservedAccess, Failure> {
        Ok(ObservedAccess::of(&self.log, self.after)?)
    }
}

/// Returns where a run in the project lists what it left, if the folder can be used.
pub(super) fn list() -> Option<PathBuf> {
    let list = file_of(&project().ok()?)?.with_file_name("left.txt");
    files::private_folder(list.parent()?).ok()?;
    Some(list)
}

fn file_of(folder: &Path) -> Option<PathBuf> {
    let granted = state::granted_for(folder, None)?;
    Some(granted.with_file_name("last-run.json"))
}
