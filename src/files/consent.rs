//! What a person decided about files that a command in a sandbox may write to, kept by path and
//! content where no workload reaches it.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::private::{check_private, private_folder, replace_private};
use super::state_folder::{granted_directory, real};
use super::text::shown;
use super::unfit::Unfit;
use super::written::check_written;
use crate::names::hex;

/// What a person decided about one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// The file, with links resolved.
    pub path: PathBuf,
    /// The decision.
    pub choice: Choice,
    /// The very text that was shown and allowed.
    #[serde(default)]
    pub text: String,
}

/// A person's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// The text may be in force.
    Allowed,
    /// The file is ignored, whatever it says.
    Denied,
}

/// The decision about a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("what you decided about a file cannot be read, in `{}`: {why}", kept.display())]
pub struct ConsentUnread {
    /// Where it is kept.
    pub kept: PathBuf,
    /// Why it cannot be read.
    pub why: Box<Unfit>,
}

impl From<ConsentUnread> for Unfit {
    fn from(unread: ConsentUnread) -> Self {
        Self::Undecided(unread.to_string())
    }
}

impl Consent {
    /// The decision that exactly this text may be in force.
    pub fn to(path: &Path, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            choice: Choice::Allowed,
            text: text.to_owned(),
        }
    }

    /// Returns the decision about a file; `None` without one.
    ///
    /// # Errors
    /// Returns [`ConsentUnread`] also if another user or a command could have written it.
    pub fn of(path: &Path) -> Result<Option<Self>, ConsentUnread> {
        let Some(kept) = Self::kept_at(path) else {
            return Ok(None);
        };
        let unread = |why: Unfit| {
            let (kept, why) = (kept.clone(), Box::new(why));
            ConsentUnread { kept, why }
        };
        // What cannot be looked at may restrict something: it is not as if nothing was decided.
        if !kept.try_exists().map_err(|error| unread(error.into()))? {
            return Ok(None);
        }
        let consent = read(&kept).map_err(unread)?;
        // The name is a hash of the path. Another path is not this file's.
        Ok(Some(consent).filter(|consent| consent.path == path))
    }

    /// Keeps it, in place of an earlier decision.
    ///
    /// # Errors
    /// Returns [`Unfit`] if it cannot be written.
    pub fn keep(&self) -> Result<(), Unfit> {
        let kept = Self::kept_at(&self.path).ok_or_else(nowhere)?;
        private_folder(kept.parent().unwrap_or(&kept))?;
        let text = serde_json::to_vec(self).map_err(io::Error::from)?;
        Ok(replace_private(&kept, &text)?)
    }

    /// Forgets the decision about a file. Returns whether there was one.
    ///
    /// # Errors
    /// Returns the error of the file system.
    pub fn forget(path: &Path) -> io::Result<bool> {
        match std::fs::remove_file(Self::kept_at(path).ok_or_else(nowhere)?) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether exactly this text may be in force.
    pub fn allows(&self, text: &str) -> bool {
        self.choice == Choice::Allowed && self.text == text
    }

    /// Returns where the decision about a file is kept.
    pub fn kept_at(path: &Path) -> Option<PathBuf> {
        let digest = Sha256::new_with_prefix(b"gateway project file v1\0")
            .chain_update(path.as_os_str().as_encoded_bytes())
            .finalize();
        let words = hex(&digest[..16]);
        Some(granted_directory()?.join(words).join(NAME))
    }
}

/// Returns every file that was allowed. What cannot be read is left out.
pub fn allowed_files() -> Vec<PathBuf> {
    let folders = granted_directory().and_then(|all| std::fs::read_dir(all).ok());
    let entries = folders.into_iter().flatten().flatten();
    let kept = entries.filter_map(|entry| read(&entry.path().join(NAME)).ok());
    let allowed = kept.filter(|consent| consent.choice == Choice::Allowed);
    allowed.map(|consent| consent.path).collect()
}

/// Returns the files directly in a folder that were allowed.
pub fn allowed_in(folder: &Path) -> Vec<PathBuf> {
    let folder = real(folder);
    let mut files = allowed_files();
    files.retain(|path| path.parent() == Some(&folder));
    files
}

fn read(kept: &Path) -> Result<Consent, Unfit> {
    check_private(kept)?;
    check_written(kept)?;
    let text = shown(kept, LARGEST_MIB)?;
    serde_json::from_str(&text).map_err(|error| Unfit::Unreadable(error.into()))
}

fn nowhere() -> io::Error {
    io::Error::other("neither HOME nor XDG_STATE_HOME names a folder")
}

const NAME: &str = "file.json";
/// A policy file of 16 MiB, with escapes.
const LARGEST_MIB: u64 = 64;
