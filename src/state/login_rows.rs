//! Rows of logins: sealed, in the database that all gateways of this user share.
//!
//! The caller holds the lock of a login while it changes one of its rows.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use gateway_files::{self as files, BadFile, UserKind, UserTable};
use gateway_names::{CredentialName, hex};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::error::StateError;
use super::seal::{KeyMark, SealingKey};

/// The rows of logins, and the mark of the key that seals them.
#[derive(Debug, Clone)]
pub struct LoginRows {
    rows: UserTable,
    mark: UserTable,
}

/// The name of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RowName {
    /// The login.
    pub login: CredentialName,
    /// The grant that a session was given, until a person keeps it for the login.
    pub grant: Option<GrantId>,
}

/// A grant of a session, in 16 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GrantId(String);

/// The content of a row.
pub struct LoginRow {
    /// Its content.
    pub content: Zeroizing<Vec<u8>>,
    /// How many times it was written.
    pub version: u64,
    /// When it was written.
    pub written: SystemTime,
}

impl LoginRows {
    /// Returns the rows in this database, which need not exist yet.
    pub fn at(database: &Path) -> Self {
        Self {
            rows: UserTable::of(database.to_owned(), &ROWS),
            mark: UserTable::of(database.to_owned(), &MARK),
        }
    }

    /// Returns the names of all rows, in order.
    ///
    /// # Errors
    /// [`StateError::Unfit`] if the database cannot be read.
    pub fn names(&self) -> Result<Vec<RowName>, StateError> {
        let rows = self.rows.rows()?;
        Ok(rows.keys().filter_map(|key| RowName::of_key(key)).collect())
    }

    /// Reads a row; `None` if there is none.
    ///
    /// # Errors
    /// [`StateError::Changed`] if it was sealed with another key, or was changed or moved.
    pub fn read(&self, key: &SealingKey, name: &RowName) -> Result<Option<LoginRow>, StateError> {
        let Some(row) = self.rows.get(name.key())? else {
            return Ok(None);
        };
        let (version, sealed) = row.content.split_first_chunk().ok_or(StateError::Changed)?;
        let opened = key.open(&name.place(version), sealed);
        Ok(Some(LoginRow {
            content: opened.map_err(|_| StateError::Changed)?,
            version: u64::from_be_bytes(*version),
            written: row.written,
        }))
    }

    /// Writes a row whose version was `before`, 0 if there was none. The row is on the disk when
    /// this returns.
    ///
    /// # Errors
    /// [`StateError::Unfit`] if it cannot be written.
    pub fn write(
        &self,
        key: &SealingKey,
        name: &RowName,
        before: u64,
        content: &[u8],
    ) -> Result<(), StateError> {
        let version = before.saturating_add(1).to_be_bytes();
        let sealed = key.seal(&name.place(&version), content);
        let sealed = sealed.map_err(|error| StateError::Damaged(error.to_string()))?;
        Ok(self
            .rows
            .put(name.key(), [&version[..], &sealed].concat())?)
    }

    /// Proves that a row of this length could be written, before there is anything to lose.
    ///
    /// # Errors
    /// [`StateError::Unfit`] if it cannot be written.
    pub fn check_writable(&self, length: usize) -> Result<(), StateError> {
        let room = UserTable::of(self.rows.database().to_owned(), &ROOM);
        room.put("", vec![0; length])?;
        room.remove("")?;
        Ok(())
    }

    /// Removes a row. Returns whether there was one.
    ///
    /// # Errors
    /// [`StateError::Unfit`] if it cannot be removed.
    pub fn remove(&self, name: &RowName) -> Result<bool, StateError> {
        Ok(self.rows.remove(name.key())?)
    }

    /// Removes the grants of sessions that were written longer ago than this and never kept.
    ///
    /// # Errors
    /// [`StateError::Unfit`] if one of them cannot be removed.
    pub fn forget_unkept(&self, after: Duration) -> Result<(), StateError> {
        let is_old = |at: SystemTime| at.elapsed().is_ok_and(|age| age > after);
        for (key, row) in self.rows.rows()? {
            let name = RowName::of_key(&key).filter(|name| name.grant.is_some());
            let Some(name) = name.filter(|_| is_old(row.written)) else {
                continue;
            };
            // A process that holds the lock is renewing the grant.
            let lock = self.lock_file(&name.login)?;
            let is_free = lock.try_lock().is_ok();
            let now = self.rows.get(name.key())?;
            let now = now.filter(|row| is_old(row.written));
            if is_free && now.is_some() {
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Whether a row exists. Needs no key.
    #[must_use]
    pub fn has(&self, name: &RowName) -> bool {
        let row = self.rows.get(name.key());
        row.is_ok_and(|row| row.is_some())
    }

    /// Opens the lock file of a login, which a process holds while it changes the login.
    ///
    /// # Errors
    /// [`StateError::Unfit`] if it cannot be opened.
    pub fn lock_file(&self, login: &CredentialName) -> Result<File, StateError> {
        files::private_folder(self.folder())?;
        let name = format!("{}.login.lock", login.as_str().replace('/', "%2F"));
        Ok(files::lock_file(&self.folder().join(name))?)
    }

    /// Returns the mark of the key that seals the rows; `None` before the first is written.
    ///
    /// # Errors
    /// [`StateError`] if it cannot be read.
    pub fn key_mark(&self) -> Result<Option<KeyMark>, StateError> {
        Ok(self.mark.read("")?)
    }

    /// Keeps the mark of the key that seals the rows.
    ///
    /// # Errors
    /// [`StateError::Unfit`] if it cannot be written.
    pub fn set_key_mark(&self, mark: &KeyMark) -> Result<(), StateError> {
        Ok(self.mark.keep("", mark)?)
    }

    /// Returns the folder of the database.
    pub fn folder(&self) -> &Path {
        self.rows.database().parent().unwrap_or(Path::new("/"))
    }
}

impl std::fmt::Display for GrantId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl RowName {
    /// Returns the name of a login that is kept.
    pub fn kept(login: CredentialName) -> Self {
        let grant = None;
        Self { login, grant }
    }

    /// Returns a new name for the grant of a session.
    ///
    /// # Errors
    /// [`StateError::Unfit`] if the system has no random numbers.
    pub fn granted(login: CredentialName) -> Result<Self, StateError> {
        let mut drawn = [0; 8];
        let filled = getrandom::fill(&mut drawn);
        filled.map_err(|error| BadFile::from(io::Error::other(error.to_string())))?;
        let grant = Some(GrantId(hex(&drawn)));
        Ok(Self { login, grant })
    }

    /// Returns the key of the row. Names of logins hold no `@`.
    fn key(&self) -> String {
        match &self.grant {
            None => self.login.to_string(),
            Some(grant) => format!("{}@{grant}", self.login),
        }
    }

    fn of_key(key: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(key).ok()?;
        let (login, grant) = match name.split_once('@') {
            None => (name, None),
            Some((login, grant)) => (login, Some(GrantId(grant.to_owned()))),
        };
        let login = CredentialName::new(login).ok()?;
        Some(Self { login, grant })
    }

    fn place<'n>(&'n self, version: &'n [u8; 8]) -> [&'n [u8]; 4] {
        let grant = self.grant.as_ref().map_or("", |GrantId(grant)| grant);
        let login = self.login.as_str().as_bytes();
        [b"login", login, grant.as_bytes(), version]
    }
}

const ROWS: UserKind = UserKind {
    name: "login",
    version: 1,
    what: "the logins that are kept",
    anew: "log in again",
};
const MARK: UserKind = UserKind {
    name: "login key",
    version: 1,
    what: "the mark of the key of logins",
    anew: "`gateway login forget` each login",
};

const ROOM: UserKind = UserKind {
    name: "login room",
    version: 1,
    what: "whether a login can be kept",
    anew: "",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_opens_under_its_own_name_and_key_alone() {
        let folder = tempfile::tempdir().unwrap();
        let rows = LoginRows::at(&folder.path().join("sessions/user.db"));
        let draw = || SealingKey::from_text(SealingKey::draw().unwrap().as_bytes()).unwrap();
        let (key, other) = (draw(), draw());
        let kept = RowName::kept(CredentialName::new("a/b").unwrap());
        let pending = RowName::granted(kept.login.clone()).unwrap();
        assert!(rows.names().unwrap().is_empty());
        assert!(rows.read(&key, &kept).unwrap().is_none());
        rows.write(&key, &kept, 0, b"CANARY-1").unwrap();
        rows.write(&key, &pending, 0, b"CANARY-2").unwrap();
        rows.write(&key, &kept, 1, b"CANARY-3").unwrap();
        assert_eq!(rows.names().unwrap(), [kept.clone(), pending.clone()]);
        let row = rows.read(&key, &kept).unwrap().unwrap();
        assert_eq!((&row.content[..], row.version), (&b"CANARY-3"[..], 2));
        assert!(matches!(rows.read(&other, &kept), Err(StateError::Changed)));
        let sealed = std::fs::read(rows.rows.database()).unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"CANARY"));
        let other_row = rows.rows.get(pending.key()).unwrap().unwrap().content;
        rows.rows.put(kept.key(), other_row).unwrap();
        assert!(matches!(rows.read(&key, &kept), Err(StateError::Changed)));
        assert!(rows.remove(&kept).unwrap() && !rows.remove(&kept).unwrap());
        let mark = key.mark("file").unwrap();
        assert_eq!(rows.key_mark().unwrap(), None);
        rows.set_key_mark(&mark).unwrap();
        assert_eq!(rows.key_mark().unwrap(), Some(mark));
    }
}
