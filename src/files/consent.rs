//! A person's decisions about files that a command in a sandbox may write to, kept by path and text
//! where no workload reaches them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::bad_file::BadFile;
use super::kept::{UserKind, UserTable};
use super::state_folder::real;

/// A person's decision about one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// The file, with links resolved.
    pub path: PathBuf,
    /// The decision.
    pub choice: Choice,
    /// The exact text that was shown and allowed.
    #[serde(default)]
    pub text: String,
}

/// A person's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// The text may be in force.
    Allowed,
    /// The file is ignored, whatever its text.
    Denied,
}

impl Consent {
    /// Returns the decision that exactly this text may be in force.
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
    /// Returns [`BadFile`] if it cannot be read: an unread decision may restrict something.
    pub fn of(path: &Path) -> Result<Option<Self>, BadFile> {
        kept().read(path)
    }

    /// Returns every decision, by the path of its file.
    ///
    /// # Errors
    /// As [`Consent::of`].
    pub fn all() -> Result<BTreeMap<PathBuf, Self>, BadFile> {
        let kept = kept();
        let rows = kept.rows()?;
        let all = rows.values().map(|row| kept.understood(row));
        all.map(|read| read.map(|one: Self| (one.path.clone(), one)))
            .collect()
    }

    /// Keeps this decision, in place of an earlier one.
    ///
    /// # Errors
    /// Returns [`BadFile`] if it cannot be written.
    pub fn keep(&self) -> Result<(), BadFile> {
        kept().keep(&self.path, self)
    }

    /// Forgets the decision about a file. Returns whether there was one.
    ///
    /// # Errors
    /// Returns [`BadFile`] if it cannot be written.
    pub fn forget(path: &Path) -> Result<bool, BadFile> {
        kept().remove(path)
    }

    /// Whether exactly this text may be in force.
    pub fn allows(&self, text: &str) -> bool {
        self.choice == Choice::Allowed && self.text == text
    }
}

/// Returns every file that was allowed.
///
/// # Errors
/// As [`Consent::of`].
pub fn allowed_files() -> Result<Vec<PathBuf>, BadFile> {
    let mut all = Consent::all()?;
    all.retain(|_, consent| consent.choice == Choice::Allowed);
    Ok(all.into_keys().collect())
}

/// Returns the files directly in a folder that were allowed.
///
/// # Errors
/// As [`Consent::of`].
pub fn allowed_in(folder: &Path) -> Result<Vec<PathBuf>, BadFile> {
    let folder = real(folder);
    let mut files = allowed_files()?;
    files.retain(|path| path.parent() == Some(&folder));
    Ok(files)
}

fn kept() -> UserTable {
    UserTable::of_user(&UserKind {
        name: "consent",
        version: 1,
        what: "what you decided about a file",
        anew: "decide again: `gateway project allow FILE`",
    })
}
