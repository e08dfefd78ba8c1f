//! Why the log could not be opened, written or read.

use std::io;
use std::path::PathBuf;

/// Says what the log could not do; it never repeats a record's text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file, its directory or its lock could not be opened, made or read.
    #[error("cannot open the audit log `{}`", path.display())]
    Open {
        /// What was to be opened.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another process holds the log: two writers would tear one chain in two.
    #[error("the audit log `{}` belongs to another running process", path.display())]
    Locked {
        /// The log that is in use.
        path: PathBuf,
    },
    /// Others than the owner can reach the file or its directory, or it is no regular file of ours.
    #[error("refusing the audit log at `{}`: {why}", path.display())]
    Exposed {
        /// The file or directory at fault.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: &'static str,
    },
    /// The file has content, but no line of it is a record: it is not an audit log.
    #[error("`{}` holds something, but no audit record", path.display())]
    Foreign {
        /// The file that is not a log.
        path: PathBuf,
    },
    /// The disk, the quota or the file size limit leaves no room for the record.
    #[error("no room for the audit record")]
    Full(#[source] io::Error),
    /// The record could not be written for another reason than room.
    #[error("cannot write the audit record")]
    Write(#[source] io::Error),
    /// The device did not take what was written; the log refuses until it does.
    #[error("the audit log did not reach the disk")]
    Unsynced,
    /// The session has written more than its rate allows; the exchange is counted, and has no
    /// record of its own.
    #[error(
        "the session writes more to the audit log than `session_burst` and `session_rate` allow"
    )]
    OverRate,
    /// The disk is nearly full, and the session has had its share of what is left; counted, too.
    #[error("the session has had its share of the room that is left for the audit log")]
    OverShare,
    /// A record would be longer than a verifier reads.
    #[error("the audit record has {bytes} bytes, over the limit")]
    Oversize {
        /// The length that the line would have.
        bytes: usize,
    },
    /// The system gave no random bytes for the chain's id, or no thread for the sync.
    #[error("cannot start the audit log")]
    Start(#[source] io::Error),
}

impl Error {
    /// Sorts a failed write by its cause.
    pub(super) fn from_write(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::Full(source),
            _ => Self::Write(source),
        }
    }
}
