//! The server, its connections, and the key of what it keeps.

use std::sync::Arc;
use std::time::Duration;

use gateway_names::SessionId;
use tokio::sync::Notify;
use tokio_postgres::types::Type;

use super::budgets::BudgetQueue;
use super::history::{self, History};
use super::link::{Connector, Line, PostgresSettings, away};
use super::rows::{Parameter, latest, query, row_of};
use super::sql;
use crate::error::StateError;
use crate::record::SessionRecord;
use crate::row::{RowSeal, SESSION};
use crate::seal::{KeyMark, SealingKey};

/// A server whose sealing key is not known yet. No record can be read without the key.
pub struct PostgresServer {
    connector: Connector,
    line: Line,
    woken: Arc<Notify>,
    /// Whether the server has LISTEN.
    has_notices: bool,
}

/// Keeps the state of several gateways in a server.
pub struct PostgresState {
    pub(super) seal: RowSeal,
    pub(super) connector: Connector,
    /// For decisions, one at a time.
    pub(super) writer: Line,
    pub(super) deciding: tokio::sync::Mutex<()>,
    /// For reads, in any order.
    pub(super) rows: Line,
    /// For beats and news, which wait for nothing else.
    pub(super) pulse: Line,
    pub(super) budgets: BudgetQueue,
    pub(super) history: History,
    pub(super) woken: Arc<Notify>,
    /// Told when decisions were missed.
    pub(super) followed_anew: Notify,
    pub(super) has_notices: bool,
}

impl PostgresServer {
    /// Connects, checks the server, and makes the tables that it lacks. Returns what a person
    /// should know. Must be called on the runtime that serves.
    ///
    /// # Errors
    /// [`StateError`] if it does not answer, or cannot keep a state.
    pub async fn open(settings: PostgresSettings) -> Result<(Self, Vec<String>), StateError> {
        let woken = Arc::new(Notify::new());
        let connector = Connector::new(settings, woken.clone());
        let (has_notices, told) = connector.check().await?;
        let line = Line::new(&connector, "");
        // Two that begin at once may refuse each other.
        let mut made = Ok(());
        for _ in 0..MAKING_ROUNDS {
            let make = |client: Arc<tokio_postgres::Client>| async move {
                client.batch_execute(sql::TABLES).await.map_err(away)
            };
            made = line.run(make).await;
            if made.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        made?;
        let server = Self {
            connector,
            line,
            woken,
            has_notices,
        };
        Ok((server, told))
    }

    /// Returns the mark of the key that seals the rows; `None` in a new store.
    ///
    /// # Errors
    /// [`StateError`] if it cannot be read, or a newer gateway made the tables.
    pub async fn key_mark(&self) -> Result<Option<KeyMark>, StateError> {
        let read = |client: Arc<tokio_postgres::Client>| async move {
            client.query_typed(sql::MARK, &[]).await.map_err(away)
        };
        let rows = self.line.run(read).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        if row.get::<_, i32>(0) != VERSION {
            return Err(StateError::Unfitting("a newer gateway made its tables"));
        }
        let store =
            <[u8; 16]>::try_from(row.get::<_, &[u8]>(2)).map_err(|_| StateError::Changed)?;
        Ok(Some(KeyMark {
            source: row.get(1),
            store,
            sealed: row.get(3),
        }))
    }

    /// Sets the mark of a new store.
    ///
    /// # Errors
    /// [`StateError::Refused`] if there is one.
    pub async fn set_key_mark(&self, mark: &KeyMark, key: &SealingKey) -> Result<(), StateError> {
        let sum = history::first_sum(key, &mark.store)?;
        let set = |client: Arc<tokio_postgres::Client>| async move {
            let (store, sealed) = (&mark.store[..], &mark.sealed[..]);
            let all: [Parameter<'_>; 3] = [
                (&mark.source, Type::TEXT),
                (&store, Type::BYTEA),
                (&sealed, Type::BYTEA),
            ];
            let set = client
                .execute_typed(sql::SET_MARK, &all)
                .await
                .map_err(away)?;
            if set == 0 {
                return Err(StateError::Refused("the store has a key"));
            }
            let first = client
                .execute_typed(sql::BEGIN, &[(&sum, Type::BYTEA)])
                .await;
            first.map(drop).map_err(away)
        };
        self.line.run(set).await
    }

    /// Opens the store with the key that its mark was made with.
    #[must_use]
    pub fn unlock(self, key: Arc<SealingKey>, mark: &KeyMark) -> Arc<PostgresState> {
        let store = mark.store;
        let rows = Arc::new(Line::new(&self.connector, ""));
        Arc::new(PostgresState {
            seal: RowSeal { key, store },
            writer: Line::new(&self.connector, ""),
            deciding: tokio::sync::Mutex::new(()),
            rows: Line::new(&self.connector, ""),
            pulse: Line::new(
                &self.connector,
                if self.has_notices {
                    sql::LISTENING
                } else {
                    sql::PULSE
                },
            ),
            budgets: BudgetQueue::start(rows),
            history: History::default(),
            woken: self.woken,
            followed_anew: Notify::new(),
            has_notices: self.has_notices,
            connector: self.connector,
        })
    }
}

impl PostgresState {
    pub(super) async fn read(
        &self,
        sql: &'static str,
        with: &[Parameter<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, StateError> {
        let read = async |client: Arc<tokio_postgres::Client>| query(&client, sql, with).await;
        // A connection that broke while it was idle is made anew.
        match self.rows.run(read).await {
            Err(StateError::Away(_)) => self.rows.run(read).await,
            done => done,
        }
    }

    /// Returns the record of a session, if it is the one that was decided last.
    pub(super) async fn kept(&self, id: &SessionId) -> Result<Option<SessionRecord>, StateError> {
        let id = id.as_str();
        let with: [Parameter<'_>; 2] = [(&SESSION, Type::TEXT), (&id, Type::TEXT)];
        let rows = self.read(sql::ONE, &with).await?;
        let row = rows.first().ok_or(StateError::Changed)?;
        self.history.check((SESSION, id), row)?;
        let Some(row) = latest(row)? else {
            return Ok(None);
        };
        let record = self.seal.read(row)?;
        self.history.remember(&record);
        Ok(Some(record))
    }

    pub(super) async fn records(
        &self,
        sql: &'static str,
        with: &[Parameter<'_>],
    ) -> Result<Vec<Result<SessionRecord, StateError>>, StateError> {
        let rows = self.read(sql, with).await?;
        Ok(rows
            .iter()
            .map(|row| self.seal.read(row_of(row)?))
            .collect())
    }
}

/// The version of the tables.
const VERSION: i32 = 1;
const MAKING_ROUNDS: usize = 5;
