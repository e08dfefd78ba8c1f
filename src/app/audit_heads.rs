//! The last record that is known of each audit log. It is kept in the state folder, apart from the
//! logs, so that a log whose end was cut off does not pass for whole.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::audit::{self, Head, Log};
use crate::config::state;
use crate::files::private_folder;

/// Returns the last record that is known of a chain.
pub(crate) fn of(chain: &str) -> Option<Head> {
    fs::read_to_string(file(chain)?).ok()?.trim().parse().ok()
}

/// Keeps the last record of a chain. Nothing depends on it but what a verification can tell.
pub(crate) fn keep(chain: &str, head: Head) {
    let Some(file) = file(chain) else { return };
    let folder = file.parent().map(private_folder);
    if !matches!(folder, Some(Ok(()))) {
        return;
    }
    let beside = file.with_extension(std::process::id().to_string());
    let written = fs::write(&beside, head.to_string()).and_then(|()| fs::rename(&beside, &file));
    if let Err(error) = written {
        tracing::warn!(%error, "the end of the audit log is not kept apart from it");
    }
}

/// Keeps the last record of a log that was closed.
pub(crate) fn keep_last(log: &Log) {
    let chain = log.path().and_then(|path| audit::chain_of(path).ok()?);
    if let (Some(chain), Some(head)) = (chain, log.head()) {
        keep(&chain, head);
    }
}

/// Forgets those that were kept longer ago.
pub(crate) fn forget_old(within: Duration) {
    let known = folder().and_then(|folder| fs::read_dir(folder).ok());
    for entry in known.into_iter().flatten().flatten() {
        let written = entry.metadata().and_then(|about| about.modified());
        let age = written.ok().and_then(|written| written.elapsed().ok());
        if age.is_some_and(|age| age > within) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn file(chain: &str) -> Option<PathBuf> {
    let is_id = !chain.is_empty() && chain.bytes().all(|byte| byte.is_ascii_hexdigit());
    folder().filter(|_| is_id).map(|folder| folder.join(chain))
}

fn folder() -> Option<PathBuf> {
    state::directory().map(|state| state.join("audit-heads"))
}
