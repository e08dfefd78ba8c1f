//! Why the log could not be opened, written or read.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A failure of the log. Never repeats a record's text.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The file, its directory or its lock could not be opened, created or read.
    #[error("cannot open the audit log `{}`", path.display())]
    Open {
        /// The path that could not be opened.
        path: PathBuf,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// Another process is using the log. Two writers would split the chain.
    #[error("the audit log `{}` belongs to another running process", path.display())]
    Locked {
        /// The log in use.
        path: PathBuf,
    },
    /// Other users can reach the file or its directory, or it is not a regular file of ours.
    #[error("refusing the audit log at `{}`: {why}", path.display())]
    Exposed {
        /// The file or directory at fault.
        path: PathBuf,
        /// What is wrong with it, and how to fix it.
        why: &'static str,
    },
    /// The file has content but no record: it is not an audit log.
    #[error("`{}` holds something, but no audit record", path.display())]
    Foreign {
        /// The file that is not a log.
        path: PathBuf,
    },
    /// The disk, the quota or the file size limit has no room for the record.
    #[error("no room for the audit record")]
    Full(#[source] Arc<io::Error>),
    /// The record could not be written, for a reason other than lack of room.
    #[error("cannot write the audit record")]
    Write(#[source] Arc<io::Error>),
    /// The device did not store what was written. The log refuses records until a sync succeeds.
    #[error("the audit log did not reach the disk")]
    Unsynced,
    /// The session exceeded its write rate. The exchange is counted but gets no record.
    #[error(
        "the session writes more to the audit log than `session_burst` and `session_rate` allow"
    )]
    OverRate,
    /// The disk is nearly full, and the session has used its share of the remaining room. The
    /// exchange is counted but gets no record.
    #[error("the session has had its share of the room that is left for the audit log")]
    OverShare,
    /// The record would be longer than a verifier reads.
    #[error("the audit record has {bytes} bytes, over the limit")]
    Oversize {
        /// The length that the line would have, in bytes.
        bytes: usize,
    },
    /// The system provided no random bytes for the chain's id, or no thread for the sync.
    #[error("cannot start the audit log")]
    Start(#[source] Arc<io::Error>),
}

impl Error {
    /// Classifies a failed write by its cause.
    pub(super) fn from_write(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::Full(source.into()),
            _ => Self::Write(source.into()),
        }
    }
}
