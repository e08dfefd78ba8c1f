//! A user's database, `user.db` in the state folder: tables of rows by name.
//!
//! A database that cannot be read at all is put aside whole, and logged. While it is there, a
//! restriction that it may have held is not taken as absent: [`UserTable::unread`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, TransactionBehavior, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::bad_file::BadFile;
use super::database::{NewDatabase, Schema, known_version};
use super::private::{ASIDE, private_folder, put_aside, with_end};
use super::state_folder::{real, state_directory};

/// A table of a user's database.
#[derive(Debug, Clone)]
pub struct UserTable {
    /// The database; `None` if no variable names a folder for it.
    database: Option<PathBuf>,
    kind: &'static UserKind,
}

/// A kind of row, which makes a table.
#[derive(Debug)]
pub struct UserKind {
    /// Its name in the database.
    pub name: &'static str,
    /// The version of its rows.
    pub version: u32,
    /// The meaning of its rows, for messages.
    pub what: &'static str,
    /// How the user replaces a row that cannot be understood.
    pub anew: &'static str,
}

/// A row as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRow {
    /// Its content.
    pub content: Vec<u8>,
    /// When it was written.
    pub written: SystemTime,
}

/// The rows of a table, by name.
pub type UserRows = BTreeMap<Vec<u8>, UserRow>;

impl UserTable {
    /// Returns a table in the user's own state folder.
    pub fn of_user(kind: &'static UserKind) -> Self {
        let database = user_database();
        Self { database, kind }
    }

    /// Returns a table in another database.
    pub fn of(database: PathBuf, kind: &'static UserKind) -> Self {
        let database = Some(database);
        Self { database, kind }
    }

    /// Returns the path of the database.
    pub fn database(&self) -> &Path {
        self.database.as_deref().unwrap_or(Path::new("user.db"))
    }

    /// Returns a file that may hold rows that were not read: a database that was put aside, or the
    /// note of an earlier gateway.
    pub fn unread(&self) -> Option<BadFile> {
        let database = self.database.as_ref()?;
        let note = in_state(database, EARLIER[0]);
        let is_there = |path: &PathBuf| match path.symlink_metadata() {
            Err(error) => error.kind() != io::ErrorKind::NotFound,
            Ok(_) => true,
        };
        let aside = [database, &note].map(|path| with_end(path, ASIDE));
        let found = aside.into_iter().chain([note]).find(is_there);
        found.map(BadFile::Unread)
    }

    /// Returns all rows: none without a database.
    ///
    /// # Errors
    /// [`BadFile`] if they cannot be read: an unread row may restrict something.
    pub fn rows(&self) -> Result<UserRows, BadFile> {
        self.named(None)
    }

    /// Returns the row of a name.
    ///
    /// # Errors
    /// As [`UserTable::rows`].
    pub fn get(&self, name: impl AsRef<OsStr>) -> Result<Option<UserRow>, BadFile> {
        let name = name.as_ref().as_encoded_bytes();
        Ok(self.named(Some(name))?.remove(name))
    }

    /// Reads the row of a name and decodes it.
    ///
    /// # Errors
    /// As [`UserTable::rows`], also if the row cannot be decoded.
    pub fn read<T: DeserializeOwned>(&self, name: impl AsRef<OsStr>) -> Result<Option<T>, BadFile> {
        let row = self.get(name)?;
        row.map(|row| self.understood(&row)).transpose()
    }

    /// Decodes a row.
    ///
    /// # Errors
    /// [`BadFile`] if it cannot be decoded.
    pub fn understood<T: DeserializeOwned>(&self, row: &UserRow) -> Result<T, BadFile> {
        let anew = self.kind.anew;
        let read = serde_json::from_slice(&row.content);
        self.told(read.map_err(|why| BadFile::Row { why, anew }))
    }

    /// Changes the rows, one process at a time. The change is on the disk when this returns.
    ///
    /// # Errors
    /// [`BadFile`] if the rows cannot be read or written. Nothing has changed then.
    pub fn change<T>(&self, change: impl FnOnce(&mut UserRows) -> T) -> Result<T, BadFile> {
        self.told((|| {
            let nowhere = || io::Error::other("neither HOME nor XDG_STATE_HOME names a folder");
            let mut connection = connected(self.database.as_ref().ok_or_else(nowhere)?)?;
            // A write lock from the start: the rows read are still current when they are written.
            let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let before = self.found(&begun, None)?;
            let mut rows = before.clone();
            let changed = change(&mut rows);
            for name in before.keys().filter(|name| !rows.contains_key(*name)) {
                begun.execute(REMOVE, params![self.kind.name, name])?;
            }
            let is_new = |(name, row): &(&Vec<u8>, &UserRow)| before.get(*name) != Some(*row);
            for (name, row) in rows.iter().filter(is_new) {
                let since = row.written.duration_since(UNIX_EPOCH).unwrap_or_default();
                let written = u64::try_from(since.as_nanos()).unwrap_or(0);
                let (kind, version) = (self.kind.name, self.kind.version);
                begun.execute(PUT, params![kind, name, version, written, row.content])?;
            }
            begun.commit()?;
            Ok(changed)
        })())
    }

    /// Keeps a row, in place of an earlier one of its name.
    ///
    /// # Errors
    /// As [`UserTable::change`].
    pub fn put(&self, name: impl AsRef<OsStr>, content: impl Into<Vec<u8>>) -> Result<(), BadFile> {
        let (name, written) = (name.as_ref().as_encoded_bytes(), SystemTime::now());
        let content = content.into();
        self.change(|rows| drop(rows.insert(name.to_owned(), UserRow { content, written })))
    }

    /// Encodes a value and keeps it as a row, for [`UserTable::read`].
    ///
    /// # Errors
    /// As [`UserTable::change`].
    pub fn keep(&self, name: impl AsRef<OsStr>, said: &impl Serialize) -> Result<(), BadFile> {
        self.put(name, serde_json::to_vec(said).map_err(io::Error::from)?)
    }

    /// Removes a row. Returns whether there was one.
    ///
    /// # Errors
    /// As [`UserTable::change`].
    pub fn remove(&self, name: impl AsRef<OsStr>) -> Result<bool, BadFile> {
        self.change(|rows| rows.remove(name.as_ref().as_encoded_bytes()).is_some())
    }

    fn named(&self, name: Option<&[u8]>) -> Result<UserRows, BadFile> {
        self.told((|| match &self.database {
            Some(database) if database.try_exists()? => self.found(&connected(database)?, name),
            _ => Ok(UserRows::new()),
        })())
    }

    fn found(&self, connection: &Connection, name: Option<&[u8]>) -> Result<UserRows, BadFile> {
        let mut rows = connection.prepare(FIND)?;
        let mut rows = rows.query(params![self.kind.name, name])?;
        let mut all = UserRows::new();
        while let Some(row) = rows.next()? {
            known_version("a row of it", row.get(1)?, self.kind.version)?;
            let written = UNIX_EPOCH + Duration::from_nanos(row.get(2)?);
            let content = row.get(3)?;
            all.insert(row.get(0)?, UserRow { content, written });
        }
        Ok(all)
    }

    /// Adds to an error which table could not be read or kept, and the path of its database.
    fn told<T>(&self, done: Result<T, BadFile>) -> Result<T, BadFile> {
        done.map_err(|why| BadFile::Kept {
            what: self.kind.what,
            at: self.database().to_owned(),
            why: Box::new(why),
        })
    }
}

/// Returns the path of the user's database, with links resolved: `sessions/user.db` in the state
/// folder.
pub fn user_database() -> Option<PathBuf> {
    state_directory().map(|state| real(&state.join("sessions")).join("user.db"))
}

/// Opens the database. A database that cannot be read at all is put aside first, as are the files
/// of an earlier gateway.
fn connected(database: &Path) -> Result<Connection, BadFile> {
    let folder = database.parent().unwrap_or(Path::new("/"));
    private_folder(folder).map_err(|why| why.of_folder(folder))?;
    if database.symlink_metadata().is_err() {
        let projects = std::fs::read_dir(in_state(database, "projects"));
        let projects = projects.into_iter().flatten().flatten();
        let own = |entry: std::fs::DirEntry| OF_PROJECT.map(|name| entry.path().join(name));
        let own: Vec<PathBuf> = projects.flat_map(own).collect();
        let shared = EARLIER.map(|name| in_state(database, name));
        for path in own.into_iter().chain(shared) {
            put_aside(&path)?.iter().for_each(|aside| tell(aside));
        }
    }
    let (connection, aside) = USER.open_anew(database, BadFile::is_lost)?;
    aside.iter().for_each(|aside| tell(aside));
    Ok(connection)
}

fn tell(aside: &Path) {
    let aside = aside.display();
    tracing::error!("`{aside}` is not read: it is damaged, or an earlier gateway wrote it");
}

/// Returns the path of a file in the state folder of a database.
fn in_state(database: &Path, name: &str) -> PathBuf {
    let state = database.parent().and_then(Path::parent);
    state.unwrap_or(Path::new("/")).join(name)
}

/// The files that an earlier gateway kept in the state folder. The first is the note of the folders
/// that commands could write to.
const EARLIER: [&str; 3] = ["writable", "logins", "audit-heads"];
/// The files that it kept for each project.
const OF_PROJECT: [&str; 3] = ["file.json", "secrets.json", "last-run.json"];
static USER: Schema = Schema {
    new: NewDatabase::unmade(),
    version: 1,
    tables: "
    CREATE TABLE kept (
        kind TEXT NOT NULL, name BLOB NOT NULL, version INTEGER NOT NULL,
        written INTEGER NOT NULL, content BLOB NOT NULL, PRIMARY KEY (kind, name)
    ) STRICT;",
    added: "",
};
const FIND: &str = "
    SELECT name, version, written, content FROM kept
    WHERE kind = ?1 AND name = coalesce(?2, name)";
const REMOVE: &str = "DELETE FROM kept WHERE kind = ?1 AND name = ?2";
const PUT: &str = "
    INSERT OR REPLACE INTO kept (kind, name, version, written, content)
    VALUES (?1, ?2, ?3, ?4, ?5)";
