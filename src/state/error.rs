//! Why the state cannot be read or changed.

use std::path::Path;

use crate::files::Unfit;

/// Why the state cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The state is not what a decision needs, such as a session that has ended.
    #[error("{0}")]
    Refused(&'static str),
    /// A newer gateway wrote it.
    #[error("it has version {found}, and this gateway reads up to version {known}")]
    Newer {
        /// Its version.
        found: u32,
        /// The latest version that this gateway reads.
        known: u32,
    },
    /// An earlier gateway wrote it.
    #[error("it has version {found}, and this gateway reads version {known} alone")]
    Older {
        /// Its version.
        found: u32,
        /// The version that this gateway reads.
        known: u32,
    },
    /// Somebody changed a record or put it elsewhere, or its key is another one.
    #[error("a record was changed or moved")]
    Changed,
    /// The stored record cannot be understood.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The decisions asked for are no longer kept one by one.
    #[error("decisions so long ago are no longer kept one by one")]
    Forgotten,
    /// Its file or folder may not be used.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The database failed.
    #[error("the database failed: {0}")]
    Database(#[from] rusqlite::Error),
    /// The thread of the database ended.
    #[error("the thread of the database ended")]
    Gone,
}

impl StateError {
    /// Whether this process can keep nothing at this place. Another may have kept something there.
    pub fn is_no_place(&self) -> bool {
        matches!(self, Self::Unfit(Unfit::Unreadable(_) | Unfit::Owner(_)))
    }

    /// What to do about it.
    pub fn remedy(&self, path: &Path) -> String {
        match self {
            Self::Unfit(unfit) => unfit.remedy(path),
            Self::Newer { .. } => {
                String::from("run the newer gateway, or name another file: `[state] path = \"…\"`")
            }
            Self::Older { .. } => format!(
                "move {} away; sessions then get new phantoms and new CAs, and those that were \
                 ended or paused begin anew",
                path.display()
            ),
            _ => format!(
                "move {} away; sessions then get new phantoms and new CAs",
                path.display()
            ),
        }
    }
}

impl From<std::io::Error> for StateError {
    fn from(error: std::io::Error) -> Self {
        Self::Unfit(error.into())
    }
}
