//! The last known record of each audit log, stored apart from the logs, so that a log with a cut
//! end does not pass for whole.

use std::time::Duration;

use gateway_audit::{self as audit, ChainHead, Log};
use gateway_files::{BadFile, UserKind, UserRow, UserTable};

/// Returns the last known record of a chain.
///
/// # Errors
/// [`BadFile`] if it cannot be read: a cut end would pass unseen.
pub fn of(chain: &str) -> Result<Option<ChainHead>, BadFile> {
    let row = table().get(chain)?;
    let text = row.and_then(|row| String::from_utf8(row.content).ok());
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Stores the last record of a chain. Only a later verification depends on it.
pub fn keep(chain: &str, head: ChainHead) {
    told(table().put(chain, head.to_string()));
}

/// Stores the last record of a closed log.
pub fn keep_last(log: &Log) {
    let chain = log.path().and_then(|path| audit::chain_of(path).ok()?);
    if let (Some(chain), Some(head)) = (chain, log.head()) {
        keep(&chain, head);
    }
}

/// Forgets the records that were stored longer ago.
pub fn forget_old(within: Duration) {
    let table = table();
    let is_old = |row: &UserRow| row.written.elapsed().is_ok_and(|age| age > within);
    let rows = table.rows().unwrap_or_default();
    if rows.values().any(is_old) {
        told(table.change(|rows| rows.retain(|_, row| !is_old(row))));
    }
}

fn told(kept: Result<(), BadFile>) {
    if let Err(error) = kept {
        tracing::warn!(%error, "the end of the audit log is not kept apart from it");
    }
}

fn table() -> UserTable {
    UserTable::of_user(&UserKind {
        name: "audit head",
        version: 1,
        what: "the last record that is known of a log",
        anew: "",
    })
}
