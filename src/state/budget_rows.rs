//! Rows of budgets: what was taken of each in its present window.
//!
//! They are not sealed: without the sealing key, budgets must go on counting.

use std::ops::RangeInclusive;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::error::StateError;

/// Names the row of a budget.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BudgetId {
    /// The budget.
    pub name: Arc<str>,
    /// Its unit. A budget whose unit changes begins anew.
    pub unit: &'static str,
    /// Whose it is; empty if all share it.
    pub key: String,
}

/// The window that a caller is in by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetWindow {
    /// When it begins, in seconds since 1970.
    pub begins: u64,
    /// Whether it has no end: the row's first window then goes on.
    pub lasts: bool,
}

/// A row of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetRow {
    /// The budget.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Whose it is.
    pub key: String,
    /// The state of its latest window.
    pub counts: BudgetCounts,
}

/// What is known of the latest window of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetCounts {
    /// When the window begins, in seconds since 1970. It may be later than the caller's: a window
    /// does not come back when a clock is set back.
    pub window: u64,
    /// How much was taken in it, by all processes.
    pub taken: u64,
    /// How much an operator added to the budget in it.
    pub added: u64,
}

/// Takes of a budget: nothing if less than the start of the range is left, and never more than is
/// left. Returns how much.
pub(super) fn take(
    connection: &mut Connection,
    (id, window): (&BudgetId, BudgetWindow),
    most: u64,
    wanted: &RangeInclusive<u64>,
) -> Result<(u64, BudgetCounts), StateError> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut counts = latest(&change, id, window)?;
    let left = most
        .saturating_add(counts.added)
        .saturating_sub(counts.taken);
    let got = left.min(*wanted.end());
    if got == 0 || left < *wanted.start() {
        return Ok((0, counts));
    }
    counts.taken += got;
    put(change, (id, window), counts)?;
    Ok((got, counts))
}

/// Gives back what was taken in a window. After the window, this does nothing.
pub(super) fn settle(
    connection: &Connection,
    id: &BudgetId,
    window: u64,
    unused: u64,
) -> Result<(), StateError> {
    let row = params![&*id.name, id.unit, id.key, window, unused];
    connection.execute(GIVE_BACK, row)?;
    connection.execute(DROP_UNUSED, params![&*id.name, id.unit, id.key, window])?;
    Ok(())
}

/// Adds to what a budget has in its latest window.
pub(super) fn add(
    connection: &mut Connection,
    (id, window): (&BudgetId, BudgetWindow),
    amount: u64,
) -> Result<BudgetCounts, StateError> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut counts = latest(&change, id, window)?;
    let added = counts.added.checked_add(amount);
    let added = added.filter(|added| i64::try_from(*added).is_ok());
    counts.added = added.ok_or(StateError::Refused("more was added than can be counted"))?;
    put(change, (id, window), counts)?;
    Ok(counts)
}

/// Returns all rows, in the order of their names.
pub(super) fn all(connection: &Connection) -> Result<Vec<BudgetRow>, StateError> {
    let mut rows = connection.prepare(ALL)?;
    let rows = rows.query_map([], |row| {
        Ok(BudgetRow {
            name: row.get(0)?,
            unit: row.get(1)?,
            key: row.get(2)?,
            counts: BudgetCounts {
                window: row.get(3)?,
                taken: row.get(4)?,
                added: row.get(5)?,
            },
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The latest window of a row: that of the caller's clock, unless a later one was seen.
fn latest(
    change: &Connection,
    id: &BudgetId,
    window: BudgetWindow,
) -> Result<BudgetCounts, StateError> {
    let row = params![&*id.name, id.unit, id.key];
    let counts = |row: &rusqlite::Row<'_>| {
        Ok(BudgetCounts {
            window: row.get(0)?,
            taken: row.get(1)?,
            added: row.get(2)?,
        })
    };
    let known = change.query_row(ONE, row, counts).optional()?;
    let begins = if window.lasts {
        known.map_or(window.begins, |known| known.window)
    } else {
        let row = params![&*id.name, id.unit];
        let seen: Option<u64> = change.query_row(SEEN, row, |row| row.get(0))?;
        window.begins.max(seen.unwrap_or(0))
    };
    Ok(known
        .filter(|known| known.window == begins)
        .unwrap_or(BudgetCounts {
            window: begins,
            taken: 0,
            added: 0,
        }))
}

/// Writes a row, and removes those of earlier windows.
fn put(
    change: Transaction<'_>,
    (id, window): (&BudgetId, BudgetWindow),
    counts: BudgetCounts,
) -> Result<(), StateError> {
    let BudgetCounts {
        window: begins,
        taken,
        added,
    } = counts;
    let row = params![
        &*id.name,
        id.unit,
        id.key,
        begins,
        window.lasts,
        taken,
        added
    ];
    let put = change.execute(PUT, row)?;
    if window.lasts {
        let long_ago = window.begins.saturating_sub(LASTING_SECS);
        change.execute(DROP_LONG_AGO, params![&*id.name, id.unit, long_ago])?;
    } else {
        change.execute(DROP_EARLIER, params![&*id.name, id.unit, begins])?;
    }
    if put != 1 {
        return Err(StateError::Changed);
    }
    Ok(change.commit()?)
}

pub(super) const TABLE: &str = "
    CREATE TABLE budget (
        name TEXT NOT NULL, unit TEXT NOT NULL, key TEXT NOT NULL,
        window INTEGER NOT NULL CHECK (window >= 0), lasts INTEGER NOT NULL,
        taken INTEGER NOT NULL CHECK (taken >= 0), added INTEGER NOT NULL CHECK (added >= 0),
        PRIMARY KEY (name, unit, key)
    ) STRICT;
    CREATE INDEX budget_window ON budget (name, unit, lasts, window);";
/// Drops what a session of this id has used up, as another one begins.
pub(super) const DROP_OF_SESSION: &str = "DELETE FROM budget WHERE lasts AND key = ?1";
const ONE: &str = "
    SELECT window, taken, added FROM budget WHERE name = ?1 AND unit = ?2 AND key = ?3";
const SEEN: &str = "SELECT max(window) FROM budget WHERE name = ?1 AND unit = ?2 AND lasts = 0";
const ALL: &str = "
    SELECT name, unit, key, window, taken, added FROM budget ORDER BY name, unit, key";
const PUT: &str = "
    INSERT INTO budget (name, unit, key, window, lasts, taken, added)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (name, unit, key) DO UPDATE SET window = excluded.window, lasts = excluded.lasts,
        taken = excluded.taken, added = excluded.added";
const GIVE_BACK: &str = "
    UPDATE budget SET taken = max(taken - ?5, 0)
    WHERE name = ?1 AND unit = ?2 AND key = ?3 AND window = ?4";
/// Another row of the window still says that it has begun.
const DROP_UNUSED: &str = "
    DELETE FROM budget
    WHERE name = ?1 AND unit = ?2 AND key = ?3 AND window = ?4 AND taken = 0 AND added = 0
        AND EXISTS (
            SELECT 1 FROM budget AS other
            WHERE other.name = ?1 AND other.unit = ?2 AND other.lasts = budget.lasts
                AND other.window >= ?4 AND other.key <> ?3)";
const DROP_EARLIER: &str = "
    DELETE FROM budget WHERE name = ?1 AND unit = ?2 AND window < ?3 AND lasts = 0";
/// Commands that ended long ago left these. A session that has a record and lives keeps its own.
const DROP_LONG_AGO: &str = "
    DELETE FROM budget WHERE name = ?1 AND unit = ?2 AND lasts = 1 AND window < ?3 AND NOT EXISTS (
        SELECT 1 FROM session WHERE id = key AND record ->> '$.ended' IS NULL)";
const LASTING_SECS: u64 = 366 * 86_400;
