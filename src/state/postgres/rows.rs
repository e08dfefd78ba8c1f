//! Rows of the server's answers.

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::link::away;
use crate::error::StateError;
use crate::row::Row;

/// A value of a statement, and its type.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

pub(super) async fn query(
    client: &Client,
    sql: &str,
    with: &[Parameter<'_>],
) -> Result<Vec<tokio_postgres::Row>, StateError> {
    client.query_typed(sql, with).await.map_err(away)
}

/// Reads a row of a query whose last column is the proof that the latest decision wrote.
pub(super) fn latest(row: &tokio_postgres::Row) -> Result<Option<Row>, StateError> {
    let is_there = row.get::<_, Option<&str>>(0).is_some();
    let decided: Option<Vec<u8>> = row.get(6);
    match (is_there, decided) {
        (false, None) => Ok(None),
        (true, Some(decided)) if row.get::<_, &[u8]>(5) == decided => Ok(Some(row_of(row)?)),
        // It was put back, or one of the two was removed.
        _ => Err(StateError::Changed),
    }
}

pub(super) fn row_of(row: &tokio_postgres::Row) -> Result<Row, StateError> {
    Ok(Row {
        kind: row.get(0),
        id: row.get(1),
        version: u32::try_from(row.get::<_, i32>(2)).map_err(|_| StateError::Changed)?,
        text: row.get(3),
        sealed: row.get(4),
        proof: row.get(5),
    })
}
