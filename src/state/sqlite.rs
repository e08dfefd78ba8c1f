//! State in a file, for one machine: SQLite on a thread of its own.
//!
//! Several processes may open the same file. Each decision is one transaction that is on the disk
//! when it is answered, so a process that is killed loses nothing that it was told.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::decision::SessionDecision;
use super::error::StateError;
use super::record::SessionRecord;
use super::seal::KeyMark;
use super::store::{REMEMBERED, Revision, StateFuture, StateStore};
use crate::files;
use crate::names::SessionId;

/// Keeps records in a SQLite file.
pub struct SqliteState {
    jobs: mpsc::Sender<Job>,
}

/// What the thread runs, with the connection that only it has.
type Job = Box<dyn FnOnce(&mut Connection) + Send>;

impl SqliteState {
    /// Opens the file, or creates it with mode 0600 in a folder of mode 0700.
    ///
    /// # Errors
    /// [`StateError`] if others may read or replace the file, if it is damaged, or if a newer
    /// gateway wrote it.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        prepare(path)?;
        let (jobs, queue) = mpsc::channel::<Job>();
        let (tell, told) = mpsc::channel();
        let path = path.to_owned();
        std::thread::Builder::new()
            .name("gateway-state".to_owned())
            .spawn(move || match connect(path) {
                Ok(mut connection) => {
                    // Nobody waits if the opening was given up.
                    let _ = tell.send(Ok(()));
                    queue.iter().for_each(|job| job(&mut connection));
                }
                Err(error) => drop(tell.send(Err(error))),
            })?;
        told.recv().map_err(|_| StateError::Gone)??;
        Ok(Self { jobs })
    }

    fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> Result<T, StateError> + Send + 'static,
    ) -> StateFuture<'_, T> {
        let (tell, told) = oneshot::channel();
        // Whoever asked may have stopped waiting.
        let job: Job = Box::new(move |connection| drop(tell.send(job(connection))));
        let sent = self.jobs.send(job);
        Box::pin(async move {
            sent.map_err(|_| StateError::Gone)?;
            told.await.map_err(|_| StateError::Gone)?
        })
    }
}

impl StateStore for SqliteState {
    fn session<'a>(&'a self, id: &'a SessionId) -> StateFuture<'a, Option<SessionRecord>> {
        let id = id.clone();
        self.ask(move |connection| read(connection, &id))
    }

    fn sessions(&self, most: usize) -> StateFuture<'_, Vec<SessionRecord>> {
        self.ask(move |connection| {
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let mut rows = connection.prepare(LATEST)?;
            let rows = rows.query_map([most], columns)?;
            rows.map(|row| record(row?)).collect()
        })
    }

    fn decide(&self, all: Vec<SessionDecision>) -> StateFuture<'_, Revision> {
        self.ask(move |connection| decide(connection, all))
    }

    fn since(&self, seen: Revision) -> StateFuture<'_, Vec<(Revision, SessionId)>> {
        self.ask(move |connection| since(connection, seen))
    }

    fn key_mark(&self) -> StateFuture<'_, Option<KeyMark>> {
        self.ask(|connection| {
            let mark = |row: &rusqlite::Row<'_>| {
                Ok(KeyMark {
                    source: row.get(0)?,
                    sealed: row.get(1)?,
                })
            };
            let found = connection.query_row("SELECT source, sealed FROM seal", [], mark);
            Ok(found.optional()?)
        })
    }

    fn set_key_mark(&self, mark: KeyMark) -> StateFuture<'_, ()> {
        self.ask(move |connection| {
            let set = connection.execute(
                "INSERT INTO seal (one, source, sealed) VALUES (1, ?1, ?2) ON CONFLICT DO NOTHING",
                params![mark.source, mark.sealed],
            )?;
            match set {
                0 => Err(StateError::Refused("the store has a key")),
                _ => Ok(()),
            }
        })
    }

    fn forget(&self) -> StateFuture<'_, ()> {
        self.ask(|connection| {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            change.execute_batch("DELETE FROM session; DELETE FROM seal;")?;
            Ok(change.commit()?)
        })
    }
}

/// Makes sure that the file is there, and that it is this user's alone.
fn prepare(path: &Path) -> Result<(), StateError> {
    if let Some(folder) = path.parent() {
        files::private_folder(folder)?;
    }
    files::create_private(path, b"")?;
    Ok(files::check_private(path)?)
}

fn connect(path: PathBuf) -> Result<Connection, StateError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    // SQLite follows no link anywhere on the path, so the folder's own links are resolved first.
    let folder = path.parent().map(std::fs::canonicalize).transpose()?;
    let path = match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path,
    };
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    // Changing the journal's mode fails at once, whatever the timeout, while another process does
    // the same (sqlite.org/wal.html).
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;")?;
    if !is_current(&connection)? {
        // Another process may have created the tables meanwhile.
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !is_current(&begun)? {
            begun.execute_batch(SCHEMA)?;
        }
        begun.commit()?;
    }
    Ok(connection)
}

/// Whether the tables are those that this gateway knows. `false` if there are none.
fn is_current(connection: &Connection) -> Result<bool, StateError> {
    let found: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let known = SCHEMA_VERSION;
    match found {
        0 => Ok(false),
        SCHEMA_VERSION => Ok(true),
        found => Err(StateError::Newer { found, known }),
    }
}

fn read(connection: &Connection, id: &SessionId) -> Result<Option<SessionRecord>, StateError> {
    one(&mut connection.prepare(ONE)?, id)
}

fn one(
    row: &mut rusqlite::Statement<'_>,
    id: &SessionId,
) -> Result<Option<SessionRecord>, StateError> {
    let found = row.query_row([id.as_str()], columns).optional()?;
    found.map(record).transpose()
}

fn decide(connection: &mut Connection, all: Vec<SessionDecision>) -> Result<Revision, StateError> {
    // A write lock from the start: what a decision needs still holds when it is made.
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    apply(&change, all)?;
    let revision = latest(&change)?;
    change
        .prepare("DELETE FROM decision WHERE revision <= ?1")?
        .execute([revision.saturating_sub(REMEMBERED)])?;
    change.commit()?;
    Ok(revision)
}

fn apply(change: &Connection, all: Vec<SessionDecision>) -> Result<(), StateError> {
    let (mut row, mut put) = (change.prepare(ONE)?, change.prepare(PUT)?);
    let mut note = change.prepare(NOTE)?;
    for decision in all {
        let id = decision.session()?;
        let record = decision.apply(one(&mut row, &id)?)?;
        put.execute(params![
            record.id,
            record.version,
            record.made,
            record.text()?,
            record.sealed
        ])?;
        note.execute([id.as_str()])?;
    }
    Ok(())
}

fn since(
    connection: &mut Connection,
    seen: Revision,
) -> Result<Vec<(Revision, SessionId)>, StateError> {
    let view = connection.transaction()?;
    let latest = latest(&view)?;
    if seen == latest {
        return Ok(Vec::new());
    }
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
        Ok((revision, id))
    })
    .collect()
}

/// The last revision, which stays known when its decision is no longer kept.
fn latest(connection: &Connection) -> Result<Revision, StateError> {
    let sequence = "SELECT seq FROM sqlite_sequence WHERE name = 'decision'";
    let found = connection.query_row(sequence, [], |row| row.get(0));
    Ok(found.optional()?.unwrap_or(0))
}

fn columns(row: &rusqlite::Row<'_>) -> rusqlite::Result<(u32, String, Vec<u8>)> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}

fn record((version, text, sealed): (u32, String, Vec<u8>)) -> Result<SessionRecord, StateError> {
    SessionRecord::read(version, &text, sealed)
}

const SCHEMA_VERSION: u32 = 1;
const SCHEMA: &str = "
    CREATE TABLE session (
        id TEXT PRIMARY KEY, version INTEGER NOT NULL, made INTEGER NOT NULL,
        record TEXT NOT NULL, sealed BLOB NOT NULL
    ) STRICT;
    CREATE TABLE decision (
        revision INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL
    ) STRICT;
    CREATE TABLE seal (
        one INTEGER PRIMARY KEY CHECK (one = 1), source TEXT NOT NULL, sealed BLOB NOT NULL
    ) STRICT;
    PRAGMA user_version = 1;";
const ONE: &str = "SELECT version, record, sealed FROM session WHERE id = ?1";
const LATEST: &str =
    "SELECT version, record, sealed FROM session ORDER BY made DESC, id DESC LIMIT ?1";
const PUT: &str = "
    INSERT INTO session (id, version, made, record, sealed) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (id) DO UPDATE SET version = excluded.version, made = excluded.made,
        record = excluded.record, sealed = excluded.sealed";
const NOTE: &str = "INSERT INTO decision (session) VALUES (?1)";
const SINCE: &str = "SELECT revision, session FROM decision WHERE revision > ?1 ORDER BY revision";
/// How long a process waits for another one's transaction.
const BUSY: Duration = Duration::from_secs(10);
