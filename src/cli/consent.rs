//! What a person decided about project files, kept by path and content where no workload reaches
//! it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::failure::Failure;
use super::write::write;
use crate::config::state;
use crate::files::{self, Unfit};
use crate::names::hex;

/// What a person decided about one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Consent {
    /// The file, with links resolved.
    pub path: PathBuf,
    /// What was decided.
    pub choice: Choice,
    /// The very text that was shown and allowed.
    #[serde(default)]
    pub text: String,
}

/// A person's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Choice {
    /// The text may be in force.
    Allowed,
    /// The file is ignored, whatever it says.
    Denied,
}

impl Consent {
    /// Returns what was decided about a file; `None` if nothing was.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be read, or if another user could have written it.
    pub(super) fn of(path: &Path) -> Result<Option<Self>, Failure> {
        let Some(kept) = kept_at(path) else {
            return Ok(None);
        };
        let unreadable = |why: &dyn std::fmt::Display| {
            let what = "what you decided about the project's file cannot be read";
            Failure::new(what)
                .because(format!("`{}`: {why}", kept.display()))
                .next("decide again: `gateway project allow`")
        };
        // What cannot be looked at may restrict something: it is not as if nothing was decided.
        if !kept.try_exists().map_err(|error| unreadable(&error))? {
            return Ok(None);
        }
        let consent = read(&kept).map_err(|why| unreadable(&why))?;
        // The name is a hash of the path. Another path is not this file's.
        Ok(Some(consent).filter(|consent| consent.path == path))
    }

    /// Keeps it, in place of what was decided before.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be written.
    pub(super) fn keep(&self) -> Result<(), Failure> {
        let kept = kept_at(&self.path).ok_or_else(nowhere)?;
        let folder = kept.parent().unwrap_or(&kept);
        files::private_folder(folder).map_err(|unfit| unkept(&unfit))?;
        let text = serde_json::to_vec(self).map_err(|error| unkept(&error))?;
        write(&kept, &text, 0o600)
    }

    /// Forgets what was decided about a file. Returns whether anything was.
    ///
    /// # Errors
    /// Returns a [`Failure`] if it cannot be removed.
    pub(super) fn forget(path: &Path) -> Result<bool, Failure> {
        let kept = kept_at(path).ok_or_else(nowhere)?;
        match std::fs::remove_file(&kept) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Failure::of("your decision cannot be forgotten", &error)),
        }
    }

    /// Whether exactly this text may be in force.
    pub(super) fn allows(&self, text: &str) -> bool {
        self.choice == Choice::Allowed && self.text == text
    }
}

/// Returns every project file that was allowed. What cannot be read is left out.
pub(super) fn allowed_files() -> Vec<PathBuf> {
    let folders = state::granted_directory().and_then(|all| std::fs::read_dir(all).ok());
    let entries = folders.into_iter().flatten().flatten();
    let kept = entries.filter_map(|entry| read(&entry.path().join(NAME)).ok());
    let allowed = kept.filter(|consent| consent.choice == Choice::Allowed);
    allowed.map(|consent| consent.path).collect()
}

/// Returns where the decision about a file is kept.
pub(super) fn kept_at(path: &Path) -> Option<PathBuf> {
    let digest = Sha256::new_with_prefix(b"gateway project file v1\0")
        .chain_update(path.as_os_str().as_encoded_bytes())
        .finalize();
    let words = hex(&digest[..16]);
    Some(state::granted_directory()?.join(words).join(NAME))
}

fn read(kept: &Path) -> Result<Consent, Unfit> {
    files::check_private(kept)?;
    let text = files::read(kept, LARGEST_MIB)?;
    serde_json::from_str(&text).map_err(|error| Unfit::Unreadable(error.into()))
}

fn nowhere() -> Failure {
    Failure::no_state_folder(UNKEPT)
}

fn unkept(error: &dyn std::error::Error) -> Failure {
    Failure::of(UNKEPT, error)
}

const UNKEPT: &str = "your decision cannot be kept";

const NAME: &str = "file.json";
/// A file of 1 MiB, with escapes.
const LARGEST_MIB: u64 = 8;
