//! Why the state cannot be read or changed.

use std::path::Path;

use gateway_files::BadFile::{self, Owner, Unreadable};

/// Why the state cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The state is not what a decision needs, such as a session that has ended.
    #[error("{0}")]
    Refused(&'static str),
    /// A record was changed or moved, or was sealed with another key.
    #[error("a record was changed or moved")]
    Changed,
    /// The stored record cannot be understood.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The requested decisions are no longer kept one by one.
    #[error("decisions so long ago are no longer kept one by one")]
    Forgotten,
    /// Its file or folder may not be used.
    #[error(transparent)]
    Unfit(#[from] BadFile),
    /// The server of the state does not answer.
    #[error("the server of the state does not answer: {0}")]
    Away(String),
    /// The server cannot keep a state.
    #[error("the server of the state cannot be used: {0}")]
    Unfitting(&'static str),
    /// The store lacks decisions that it answered.
    #[error("the store went back: it lacks decisions that it had answered")]
    WentBack,
    /// The thread of the database ended.
    #[error("the thread of the database ended")]
    Gone,
}

impl StateError {
    /// Whether this process can keep nothing at this path. Another process may have kept state.
    pub fn is_no_place(&self) -> bool {
        matches!(self, Self::Unfit(Unreadable(_) | Owner(_)))
    }

    /// Returns how to correct it.
    pub fn remedy(&self, path: &Path) -> String {
        match self {
            Self::Unfit(BadFile::Version { found, known, .. }) if found > known => {
                String::from("run the newer gateway, or name another file: `[state] path = \"…\"`")
            }
            Self::Unfit(BadFile::Version { .. }) => format!(
                "move {} away; sessions then get new phantoms and new CAs, and those that were \
                 ended or paused begin anew",
                path.display()
            ),
            Self::Unfit(unfit) if !unfit.is_lost() => unfit.remedy(path),
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

impl From<rusqlite::Error> for StateError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Unfit(error.into())
    }
}
