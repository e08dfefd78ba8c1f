//! The last record that is known of each audit log. It is kept apart from the logs, so that a log
//! whose end was cut off does not pass for whole.

use std::time::Duration;

use crate::audit::{self, Head, Log};
use crate::files::{Unfit, UserKind, UserRow, UserTable};

/// Returns the last record that is known of a chain.
///
/// # Errors
/// [`Unfit`] if that cannot be read: an end that was cut off would pass unseen.
pub(crate) fn of(chain: &str) -> Result<Option<Head>, Unfit> {
    let row = table().get(chain)?;
    let text = row.and_then(|row| String::from_utf8(row.content).ok());
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Keeps the last record of a chain. Nothing depends on it but what a verification can tell.
pub(crate) fn keep(chain: &str, head: Head) {
    told(table().put(chain, head.to_string()));
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
    let table = table();
    let is_old = |row: &UserRow| row.written.elapsed().is_ok_and(|age| age > within);
    let rows = table.rows().unwrap_or_default();
    if rows.values().any(is_old) {
        told(table.change(|rows| rows.retain(|_, row| !is_old(row))));
    }
}

fn told(kept: Result<(), Unfit>) {
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
