//! Why a file may not configure the gateway.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// An entry that a command in a sandbox could have written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritableEntry {
    /// The entry: a file, a link, an interpreter.
    pub entry: PathBuf,
    /// The folder that the command could write to, at its present path.
    pub folder: PathBuf,
    /// When the last such command began, in seconds since 1970.
    pub last: u64,
}

impl fmt::Display for WritableEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = OffsetDateTime::from_unix_timestamp(self.last.cast_signed());
        let last = last.ok().and_then(|last| last.format(&Rfc3339).ok());
        write!(
            f,
            "a command in a sandbox could have written `{}`: it may write to `{}` (last run {})",
            self.entry.display(),
            self.folder.display(),
            last.unwrap_or_default()
        )
    }
}

/// Why another user can replace a file, whoever owns it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Replaceable {
    /// Everyone may write to a folder on its path.
    #[error("everyone on this machine can replace it, for they may write to the folder `{}`", .0.display())]
    Folder(PathBuf),
    /// An entry on its path, in a folder such as `/tmp`, belongs to another user.
    #[error("user {owner} can replace it, who owns `{}`", entry.display())]
    Entry {
        /// The folder, the link or the file.
        entry: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// A folder on its path cannot be inspected.
    #[error("a folder on its path cannot be looked at: {0}")]
    Unknown(io::ErrorKind),
    /// A command in a sandbox could have written it.
    #[error("{0}")]
    Command(Box<WritableEntry>),
    /// It has several hard links, of which one may be in a folder that a command could write to.
    #[error("`{}` has another name too (a hard link), by which a command in a sandbox may have written it", .0.display())]
    OtherName(PathBuf),
    /// The record of folders that commands could write to cannot be read.
    #[error("{why}")]
    Untold {
        /// Why.
        why: String,
        /// What to do about it.
        next: String,
    },
}

impl Replaceable {
    /// Returns how to correct it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Folder(folder) => format!("run `chmod o-w {}`", folder.display()),
            Self::Entry { .. } => String::from("move it to a folder of your own"),
            Self::Unknown(_) => String::from("correct the path"),
            Self::Command(written) => format!("move it out of `{}`", written.folder.display()),
            Self::OtherName(_) => String::from("copy it, and name the copy"),
            Self::Untold { next, .. } => next.clone(),
        }
    }
}

impl From<io::Error> for Replaceable {
    fn from(error: io::Error) -> Self {
        Self::Unknown(error.kind())
    }
}

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum BadFile {
    /// It is missing, may not be read, or is not UTF-8.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is a folder, a device or a pipe.
    #[error("it is no regular file")]
    Irregular,
    /// It belongs to another user.
    #[error("it belongs to user {0}, who can change it")]
    Owner(u32),
    /// Another user can replace it.
    #[error(transparent)]
    Replaceable(#[from] Replaceable),
    /// A command in a sandbox could have written it, and no person allowed its text.
    #[error("{why}, and {}", if *changed { "it is not the text that you allowed" } else { "nobody allowed its text" })]
    NotAllowed {
        /// How the command could have written it.
        why: Replaceable,
        /// Its path, with links resolved.
        real: PathBuf,
        /// Whether a person allowed another text.
        changed: bool,
    },
    /// Everyone may write to it.
    #[error("everyone on this machine can change the file, the workload too")]
    Writable,
    /// Other users have access to it. Its mode.
    #[error("other users may use it (mode {0:04o})")]
    Exposed(u32),
    /// It is larger than this limit, in MiB.
    #[error("the file is larger than {0}MiB")]
    Large(u64),
    /// A gateway of another version wrote it, or one of its rows.
    #[error("{what} has version {found}, and this gateway reads version {known}")]
    Version {
        /// The database or the row.
        what: &'static str,
        /// Its version.
        found: u32,
        /// The version that this gateway reads.
        known: u32,
    },
    /// It is a damaged database.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// The database failed.
    #[error("the database failed: {0}")]
    Database(#[from] rusqlite::Error),
    /// One of its rows cannot be decoded.
    #[error("a row of it cannot be understood: {why}")]
    Row {
        /// Why.
        why: serde_json::Error,
        /// What to do about it.
        anew: &'static str,
    },
    /// It was put aside, so its content is not read.
    #[error("it was put aside as `{}`, of which nothing is read", .0.display())]
    Unread(PathBuf),
    /// The folder that holds it may not be used.
    #[error("its folder `{}` may not be used: {why}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        why: Box<Self>,
    },
    /// A table of the user cannot be read or kept.
    #[error("{what} cannot be read or kept, in `{}`: {why}", at.display())]
    Kept {
        /// The meaning of the table's rows.
        what: &'static str,
        /// The database.
        at: PathBuf,
        /// Why.
        why: Box<Self>,
    },
}

impl BadFile {
    /// Returns how to correct it.
    pub fn remedy(&self, path: &Path) -> String {
        match self {
            Self::Unreadable(_) => String::from("create it, or correct the path"),
            Self::Irregular => String::from("name the file itself"),
            Self::Owner(_) => format!(
                "run the gateway as that user, or `chown` {} to your own",
                path.display()
            ),
            Self::Replaceable(why) => why.remedy(),
            Self::NotAllowed { why, real, .. } => {
                let named = if real == path {
                    ""
                } else {
                    ", then name it by that path"
                };
                let (allow, move_out) = (real.display(), why.remedy());
                format!("`gateway project allow {allow}` shows it and asks{named}; or {move_out}")
            }
            Self::Writable => format!("run `chmod o-w {}`", path.display()),
            Self::Exposed(_) => format!("run `chmod go= {}`", path.display()),
            Self::Large(_) => String::from("split it, or correct the path"),
            Self::Version { found, known, .. } if found > known => {
                String::from("run the newer gateway")
            }
            Self::Database(_) if !self.is_lost() => format!(
                "let this user write to {} and its folder, on a disk with room, and try again",
                path.display()
            ),
            Self::Version { .. } | Self::Damaged(_) | Self::Database(_) => {
                let path = path.display();
                format!("`rm {path}`: what it says is forgotten then, so trust what is there")
            }
            Self::Row { anew, .. } => String::from(*anew),
            Self::Unread(aside) => {
                let aside = aside.display();
                format!("`rm -r {aside}`: what it says is forgotten then, so trust what is there")
            }
            Self::Folder { folder, why } => why.kept_remedy(folder),
            Self::Kept { at, why, .. } => why.kept_remedy(at),
        }
    }

    /// Returns how to correct a file that the gateway made.
    fn kept_remedy(&self, path: &Path) -> String {
        match self {
            Self::Unreadable(_) => format!(
                "let this user read and write {}, on a disk with room",
                path.display()
            ),
            _ => self.remedy(path),
        }
    }

    /// Whether nothing can be read from the database, now or later.
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Version { found, known, .. } => found < known,
            Self::Database(error) => matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
            ),
            _ => false,
        }
    }

    /// Wraps this error as a fault of the folder.
    pub fn of_folder(self, folder: &Path) -> Self {
        let (folder, why) = (folder.to_owned(), Box::new(self));
        Self::Folder { folder, why }
    }
}
