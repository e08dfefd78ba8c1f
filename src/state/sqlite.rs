//! State in a file, for one machine: SQLite on a thread of its own.
//!
//! Several processes may open the same file. Each decision is one transaction that is on the disk
//! when it is answered, so a killed process loses nothing that was answered.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use gateway_files::{BadFile, NewDatabase, Schema, reached};
use gateway_names::SessionId;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::budget_rows::{self, BudgetCounts, BudgetId, BudgetRow, BudgetWindow};
use super::decision::SessionDecision;
use super::error::StateError;
use super::record::SessionRecord;
use super::row::{NO_RANDOM_BYTES, Row, RowSeal, SESSION};
use super::seal::{KeyMark, SealingKey};
use super::store::{LOOKED_EVERY, REMEMBERED, Revision, StateFuture, StateStore, Subject};

/// A SQLite file whose key is not known yet. No record can be read without the key.
pub struct StateFile {
    jobs: mpsc::Sender<Job>,
}

/// Keeps records in a SQLite file.
pub struct SqliteState {
    file: StateFile,
    proof: RowSeal,
}

/// A closure that the thread runs with the connection, which only the thread has.
type Job = Box<dyn FnOnce(&mut Connection) + Send>;

impl StateFile {
    /// Opens the file, or creates it with mode 0600 in a folder of mode 0700.
    ///
    /// # Errors
    /// [`StateError`] if others may read or replace the file, if it is damaged, or if a newer
    /// gateway wrote it.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        Self::on(SESSIONS.open(path)?)
    }

    /// Moves a connection to a thread of its own.
    fn on(mut connection: Connection) -> Result<Self, StateError> {
        // Changing the journal's mode fails at once, whatever the timeout, while another process
        // does the same (sqlite.org/wal.html).
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("gateway-state".to_owned())
            .spawn(move || queue.iter().for_each(|job| job(&mut connection)))?;
        Ok(Self { jobs })
    }

    /// Opens the file as [`StateFile::open`] does. A file of an earlier version is put aside first,
    /// and its path returned, unless it records that sessions were ended or paused.
    ///
    /// # Errors
    /// As [`StateFile::open`].
    pub fn open_anew(path: &Path) -> Result<(Self, Option<PathBuf>), StateError> {
        let may_go = |bad: &BadFile| {
            let is_earlier = matches!(bad, BadFile::Version { found, known, .. } if found < known);
            is_earlier && !decides(path).unwrap_or(true)
        };
        let (connection, aside) = SESSIONS.open_anew(path, may_go)?;
        Ok((Self::on(connection)?, aside))
    }

    fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> Result<T, StateError> + Send + 'static,
    ) -> StateFuture<'_, T> {
        let (tell, told) = oneshot::channel();
        // The caller may have stopped waiting.
        let job: Job = Box::new(move |connection| drop(tell.send(job(connection))));
        let sent = self.jobs.send(job);
        Box::pin(async move {
            sent.map_err(|_| StateError::Gone)?;
            told.await.map_err(|_| StateError::Gone)?
        })
    }

    /// Returns the mark of the key that seals the file's records; `None` in a new file.
    ///
    /// # Errors
    /// [`StateError`] if it cannot be read.
    pub async fn key_mark(&self) -> Result<Option<KeyMark>, StateError> {
        let mark = |row: &rusqlite::Row<'_>| {
            Ok(KeyMark {
                source: row.get(0)?,
                store: row.get(1)?,
                sealed: row.get(2)?,
            })
        };
        let job = move |connection: &mut Connection| {
            let found = connection.query_row("SELECT source, store, sealed FROM seal", [], mark);
            Ok(found.optional()?)
        };
        self.ask(job).await
    }

    /// Sets the mark of a new file.
    ///
    /// # Errors
    /// [`StateError::Refused`] if there is one.
    pub async fn set_key_mark(&self, mark: KeyMark) -> Result<(), StateError> {
        let job = move |connection: &mut Connection| {
            let set = connection.execute(MARK, params![mark.source, mark.store, mark.sealed])?;
            match set {
                0 => Err(StateError::Refused("the store has a key")),
                _ => Ok(()),
            }
        };
        self.ask(job).await
    }

    /// Removes the mark and every record, after the key was lost. Budgets go on counting.
    ///
    /// # Errors
    /// [`StateError`] if that cannot be done.
    pub async fn forget(&self) -> Result<(), StateError> {
        let job = |connection: &mut Connection| {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            change.execute_batch("DELETE FROM session; DELETE FROM seal;")?;
            Ok(change.commit()?)
        };
        self.ask(job).await
    }

    /// Opens the file with the key that its mark was made with.
    #[must_use]
    pub fn unlock(self, key: Arc<SealingKey>, mark: &KeyMark) -> SqliteState {
        let store = mark.store;
        SqliteState {
            file: self,
            proof: RowSeal { key, store },
        }
    }
}

impl SqliteState {
    /// Returns state that ends with the process, for runs that keep nothing, and its key.
    ///
    /// # Errors
    /// [`StateError`] if it cannot be created.
    pub fn in_memory() -> Result<(Self, Arc<SealingKey>), StateError> {
        let drawn = SealingKey::draw().ok();
        let key = drawn.and_then(|text| SealingKey::from_text(text.as_bytes()));
        let key = Arc::new(key.ok_or(NO_RANDOM_BYTES)?);
        let (file, store) = (StateFile::on(SESSIONS.in_memory()?)?, [0; 16]);
        let proof = RowSeal {
            key: key.clone(),
            store,
        };
        Ok((Self { file, proof }, key))
    }
}

impl StateStore for SqliteState {
    fn session<'a>(&'a self, id: &'a SessionId) -> StateFuture<'a, Option<SessionRecord>> {
        let (proof, id) = (self.proof.clone(), id.clone());
        let job = move |connection: &mut Connection| proof.one(&mut connection.prepare(ONE)?, &id);
        self.file.ask(job)
    }

    fn sessions(&self, most: usize) -> StateFuture<'_, Vec<SessionRecord>> {
        let proof = self.proof.clone();
        self.file.ask(move |connection| {
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let mut rows = connection.prepare(LATEST)?;
            let rows = rows.query_map([most], columns)?;
            rows.map(|row| proof.read(row?)).collect()
        })
    }

    fn unended(&self) -> StateFuture<'_, Vec<SessionRecord>> {
        let proof = self.proof.clone();
        self.file.ask(move |connection| {
            let mut rows = connection.prepare(UNENDED)?;
            let rows: Vec<_> = rows.query_map([], columns)?.collect::<Result<_, _>>()?;
            let unread = |error: &StateError| tracing::warn!(%error, "a session cannot be read");
            let read = |row| proof.read(row).inspect_err(unread).ok();
            Ok(rows.into_iter().filter_map(read).collect())
        })
    }

    fn decide(&self, all: Vec<SessionDecision>) -> StateFuture<'_, Revision> {
        let proof = self.proof.clone();
        self.file
            .ask(move |connection| decide(connection, &proof, all))
    }

    fn since(&self, seen: Revision) -> StateFuture<'_, Vec<(Revision, Subject)>> {
        self.file.ask(move |connection| since(connection, seen))
    }

    fn woken(&self) -> StateFuture<'_, ()> {
        Box::pin(async {
            tokio::time::sleep(LOOKED_EVERY).await;
            Ok(())
        })
    }

    fn take(
        &self,
        id: &BudgetId,
        window: BudgetWindow,
        most: u64,
        wanted: RangeInclusive<u64>,
    ) -> StateFuture<'_, (u64, BudgetCounts)> {
        let id = id.clone();
        let take = move |connection: &mut Connection| {
            budget_rows::take(connection, (&id, window), most, &wanted)
        };
        self.file.ask(take)
    }

    fn settle(&self, id: &BudgetId, window: u64, unused: u64) -> StateFuture<'_, ()> {
        let id = id.clone();
        self.file
            .ask(move |connection| budget_rows::settle(connection, &id, window, unused))
    }

    fn add(
        &self,
        id: &BudgetId,
        window: BudgetWindow,
        amount: u64,
    ) -> StateFuture<'_, BudgetCounts> {
        let id = id.clone();
        self.file
            .ask(move |connection| budget_rows::add(connection, (&id, window), amount))
    }

    fn budgets(&self) -> StateFuture<'_, Vec<BudgetRow>> {
        self.file.ask(|connection| budget_rows::all(connection))
    }
}

/// Whether a file of an earlier version records that a session was ended or paused.
fn decides(path: &Path) -> Result<bool, StateError> {
    let connection = reached(path)?;
    Ok(connection.query_row(DECIDES, [], |row| row.get(0))?)
}

fn decide(
    connection: &mut Connection,
    proof: &RowSeal,
    all: Vec<SessionDecision>,
) -> Result<Revision, StateError> {
    // A write lock from the start: what a decision requires is still true at the commit.
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    proof.apply(&change, all)?;
    let revision = latest(&change)?;
    change
        .prepare("DELETE FROM decision WHERE revision <= ?1")?
        .execute([revision.saturating_sub(REMEMBERED)])?;
    change.commit()?;
    Ok(revision)
}

impl RowSeal {
    fn one(
        &self,
        row: &mut rusqlite::Statement<'_>,
        id: &SessionId,
    ) -> Result<Option<SessionRecord>, StateError> {
        let found = row.query_row([id.as_str()], columns).optional()?;
        found.map(|row| self.read(row)).transpose()
    }

    fn apply(&self, change: &Connection, all: Vec<SessionDecision>) -> Result<(), StateError> {
        let (mut row, mut put) = (change.prepare(ONE)?, change.prepare(PUT)?);
        let mut note = change.prepare(NOTE)?;
        for decision in all {
            let id = decision.session()?;
            if let SessionDecision::Create(_) | SessionDecision::Replace(_) = &decision {
                change.execute(budget_rows::DROP_OF_SESSION, [id.as_str()])?;
            }
            // A record that is replaced need not be readable.
            let before = match &decision {
                SessionDecision::Replace(_) => None,
                _ => self.one(&mut row, &id)?,
            };
            let row = Row::of(decision.apply(before)?)?;
            let proof = self.make(&row)?;
            let put = put.execute(params![row.id, row.version, row.text, row.sealed, proof])?;
            if put != 1 || note.execute([id.as_str()])? != 1 {
                return Err(StateError::Changed);
            }
        }
        Ok(())
    }
}

fn since(
    connection: &mut Connection,
    seen: Revision,
) -> Result<Vec<(Revision, Subject)>, StateError> {
    // Each gateway polls this every second, nearly always without news.
    if seen == latest(connection)? {
        return Ok(Vec::new());
    }
    let view = connection.transaction()?;
    let latest = latest(&view)?;
    let oldest: Option<Revision> =
        view.query_row("SELECT min(revision) FROM decision", [], |row| row.get(0))?;
    if seen > latest || oldest.is_none_or(|oldest| seen + 1 < oldest) {
        return Err(StateError::Forgotten);
    }
    let mut rows = view.prepare(SINCE)?;
    let rows = rows.query_map([seen], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    rows.map(|row| {
        let (revision, id) = row?;
        let id = SessionId::new(&id).map_err(|why| StateError::Damaged(why.to_string()))?;
        Ok((revision, Subject::Session(id)))
    })
    .collect()
}

/// The last revision. It remains known when its decision is no longer kept.
fn latest(connection: &Connection) -> Result<Revision, StateError> {
    let sequence = "SELECT seq FROM sqlite_sequence WHERE name = 'decision'";
    let found = connection.query_row(sequence, [], |row| row.get(0));
    Ok(found.optional()?.unwrap_or(0))
}

fn columns(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        kind: SESSION.to_owned(),
        id: row.get(0)?,
        version: row.get(1)?,
        text: row.get(2)?,
        sealed: row.get(3)?,
        proof: row.get(4)?,
    })
}

static SESSIONS: Schema = Schema {
    new: NewDatabase::unmade(),
    version: 3,
    added: budget_rows::TABLE,
    tables: "
    CREATE TABLE session (
        id TEXT PRIMARY KEY, version INTEGER NOT NULL,
        record TEXT NOT NULL, sealed BLOB NOT NULL, proof BLOB NOT NULL
    ) STRICT;
    CREATE TABLE decision (
        revision INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL
    ) STRICT;
    CREATE TABLE seal (
        one INTEGER PRIMARY KEY CHECK (one = 1), source TEXT NOT NULL, store BLOB NOT NULL,
        sealed BLOB NOT NULL
    ) STRICT;",
};
const DECIDES: &str = "
    SELECT count(*) > 0 FROM session
    WHERE record ->> '$.ended' IS NOT NULL OR coalesce(record ->> '$.paused', 0)";
const MARK: &str = "
    INSERT INTO seal (one, source, store, sealed) VALUES (1, ?1, ?2, ?3) ON CONFLICT DO NOTHING";
const ONE: &str = "SELECT id, version, record, sealed, proof FROM session WHERE id = ?1";
const LATEST: &str = "
    SELECT id, version, record, sealed, proof FROM session
    ORDER BY record ->> '$.made' DESC, id DESC LIMIT ?1";
const UNENDED: &str = "
    SELECT id, version, record, sealed, proof FROM session
    WHERE record ->> '$.ended' IS NULL OR coalesce(record ->> '$.was_idle', 0)";
const PUT: &str = "
    INSERT INTO session (id, version, record, sealed, proof) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (id) DO UPDATE SET version = excluded.version, record = excluded.record,
        sealed = excluded.sealed, proof = excluded.proof";
const NOTE: &str = "INSERT INTO decision (session) VALUES (?1)";
const SINCE: &str = "SELECT revision, session FROM decision WHERE revision > ?1 ORDER BY revision";
