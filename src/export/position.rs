//! How far an export has come in the log, kept beside the log for the next start.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gateway_audit::ChainHead;
use gateway_files::replace_private;
use gateway_names::hex;
use sha2::{Digest as _, Sha256};

use super::settings::ExportSettings;

/// How far an export has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// No record is known to be sent.
    Nothing,
    /// Everything up to this record was sent, or refused for good.
    Record(ChainHead),
}

impl Progress {
    /// The number of the next record to send.
    pub(super) fn next(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Record(head) => head.seq() + 1,
        }
    }
}

/// The file that names the last record sent, by number and hash, so that a record of another log is
/// not mistaken for it. Each destination has its own file.
pub(super) struct ExportPosition {
    path: PathBuf,
    /// Whether the last write failed, which was logged.
    fails: bool,
}

impl ExportPosition {
    /// Returns the position of a destination in a log.
    pub(super) fn of(log: &Path, settings: &ExportSettings) -> Self {
        let authority = &settings.server.authority;
        let (scheme, port) = (settings.server.scheme, authority.port);
        let (host, path) = (authority.host.as_str(), &settings.path);
        let whole = format!("{scheme:?} {host} {port} {path} {:?}", settings.format);
        let digest: [u8; 32] = Sha256::digest(whole).into();
        let mut name = log.file_name().unwrap_or_default().to_owned();
        name.push(format!(".export-{}", hex(&digest[..8])));
        Self {
            path: log.with_file_name(name),
            fails: false,
        }
    }

    /// Returns how far the export came; `None` without a file. A file that cannot be read is
    /// logged, and everything is sent again: no record may be missed.
    pub(super) fn kept(&self) -> Option<Progress> {
        let read = fs::read_to_string(&self.path);
        if let Err(error) = &read
            && error.kind() == io::ErrorKind::NotFound
        {
            return None;
        }
        let known = read.ok().and_then(|text| text.trim().parse().ok());
        if known.is_none() {
            let path = self.path.display();
            tracing::warn!(%path, "how far the export came cannot be read, so all is sent again");
        }
        Some(known.map_or(Progress::Nothing, Progress::Record))
    }

    /// Writes the last record that was sent. Without it, records are sent twice or missed after a
    /// restart, so the first of several failures is logged.
    pub(super) fn keep(&mut self, last: ChainHead) {
        let error = match replace_private(&self.path, format!("{last}\n").as_bytes()) {
            Ok(()) => return self.fails = false,
            Err(error) => error,
        };
        if !std::mem::replace(&mut self.fails, true) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "how far the export has come cannot be kept");
        }
    }
}
