//! Opens the gateway's databases: SQLite files that only this user may read.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::bad_file::BadFile;
use super::private::{check_private, create_private, private_folder, put_aside, with_end};

/// The schema of a database.
pub struct Schema {
    /// Its version, which is its `user_version` too.
    pub version: u32,
    /// The SQL that creates its tables.
    pub tables: &'static str,
    /// The SQL that creates those that the version before did not have. If it is empty, a file of
    /// the version before is refused.
    pub added: &'static str,
    /// The image of a new database.
    pub new: NewDatabase,
}

/// The image of a new database, once this process has made one.
#[derive(Debug)]
pub struct NewDatabase(OnceLock<(Vec<u8>, Tables)>);

impl NewDatabase {
    /// Returns an empty cell: this process has made no image yet.
    pub const fn unmade() -> Self {
        Self(OnceLock::new())
    }
}

/// The name of each table and index, with the SQL that declares it.
type Tables = Vec<(String, Option<String>)>;

impl Schema {
    /// Opens a database, or creates it with mode 0600 in a folder of mode 0700. A new database gets
    /// its name only once it has all its tables, so a file without them was cut off.
    ///
    /// # Errors
    /// [`BadFile`] if others may read or replace it, if it is damaged, or if a gateway of another
    /// version wrote it.
    pub fn open(&self, path: &Path) -> Result<Connection, BadFile> {
        let (image, known) = self.image()?;
        if let Some(folder) = path.parent() {
            private_folder(folder)?;
        }
        if path.symlink_metadata().is_err() {
            create_private(path, image)?;
        }
        check_private(path)?;
        let connection = reached(path)?;
        // Meanwhile, no other process writes to it.
        let look = connection.unchecked_transaction()?;
        let found = version_of(&look)?;
        let page: u64 = look.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        // SQLite reads the missing part of a page as zeros. The write-ahead log may hold that page.
        let log = with_end(path, "-wal").metadata();
        let is_logged = log.is_ok_and(|log| log.len() > 0);
        let is_cut = path.metadata()?.len() % page != 0 && !is_logged;
        if is_cut || found == 0 {
            return Err(BadFile::Damaged("it is cut off"));
        }
        drop(look);
        let look = if self.comes_before(found) {
            Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?
        } else {
            connection.unchecked_transaction()?
        };
        // Another process may have added the tables meanwhile.
        if self.comes_before(version_of(&look)?) {
            look.execute_batch(self.added)?;
            look.pragma_update(None, "user_version", self.version)?;
        }
        known_version("it", version_of(&look)?, self.version)?;
        if tables(&look)? != *known {
            return Err(BadFile::Damaged("its tables are not the gateway's"));
        }
        look.commit()?;
        Ok(connection)
    }

    /// Whether a version is the one before, of which files go on being used.
    fn comes_before(&self, found: u32) -> bool {
        found + 1 == self.version && !self.added.is_empty()
    }

    /// Opens a database as [`Schema::open`] does. If it fails with an error that `may_go` accepts,
    /// the file is put aside whole, and a new database and the path of the old one are returned.
    ///
    /// # Errors
    /// As [`Schema::open`], also if an earlier file was put aside already.
    pub fn open_anew(
        &self,
        path: &Path,
        may_go: impl Fn(&BadFile) -> bool,
    ) -> Result<(Connection, Option<PathBuf>), BadFile> {
        match self.open(path) {
            Err(unfit) if may_go(&unfit) => {}
            opened => return Ok((opened?, None)),
        }
        let held = File::open(path.parent().unwrap_or(Path::new("/")))?;
        held.lock()?;
        // Another process may have put the file aside meanwhile.
        match self.open(path) {
            Err(unfit) if may_go(&unfit) => {
                let aside = put_aside(path)?.ok_or(unfit)?;
                Ok((self.open(path)?, Some(aside)))
            }
            opened => Ok((opened?, None)),
        }
    }

    /// Returns the bytes of a new database, and its tables.
    fn image(&self) -> Result<&(Vec<u8>, Tables), BadFile> {
        if let Some(made) = self.new.0.get() {
            return Ok(made);
        }
        let mut new = self.in_memory()?;
        let made = (new.serialize("main")?.to_vec(), tables(&new)?);
        Ok(self.new.0.get_or_init(|| made))
    }

    /// Returns a database that ends with its connection.
    ///
    /// # Errors
    /// [`BadFile::Database`].
    pub fn in_memory(&self) -> Result<Connection, BadFile> {
        let known = Connection::open_in_memory()?;
        known.execute_batch(self.tables)?;
        known.execute_batch(self.added)?;
        known.pragma_update(None, "user_version", self.version)?;
        Ok(known)
    }
}

/// Connects to an existing database, of any version.
///
/// # Errors
/// [`BadFile`] if it cannot be opened.
pub fn reached(path: &Path) -> Result<Connection, BadFile> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    // SQLite follows no link anywhere on the path, so the folder's own links are resolved first.
    let folder = path.parent().map(gateway_names::real_path).transpose()?;
    let path = match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    };
    let connection = Connection::open_with_flags(path, flags)?;
    // Nothing that another process put into the file runs, such as a trigger that drops a decision.
    for (switch, on) in SWITCHES {
        connection.set_db_config(switch, on)?;
    }
    connection.busy_timeout(BUSY)?;
    // A change that was reported is on the disk, and a removed row is not.
    connection.execute_batch("PRAGMA synchronous = EXTRA; PRAGMA secure_delete = ON;")?;
    Ok(connection)
}

fn version_of(connection: &Connection) -> Result<u32, BadFile> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

/// Refuses every version but this one. An earlier version does not show whether a row was changed.
///
/// # Errors
/// [`BadFile::Version`].
pub fn known_version(what: &'static str, found: u32, known: u32) -> Result<(), BadFile> {
    if found == known {
        Ok(())
    } else {
        Err(BadFile::Version { what, found, known })
    }
}

/// Returns the declaration of every table and index in a database.
fn tables(connection: &Connection) -> Result<Tables, BadFile> {
    let mut all = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name")?;
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

const SWITCHES: [(DbConfig, bool); 4] = [
    (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
    (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
    (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
];
/// How long a process waits for the transaction of another.
const BUSY: Duration = Duration::from_secs(10);
