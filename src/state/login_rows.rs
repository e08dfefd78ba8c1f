//! Rows of logins: sealed, one file each, in a folder that every gateway of this user shares.
//!
//! The caller holds the lock of a login while it changes one of its rows.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::error::StateError;
use super::seal::{KeyMark, SealingKey};
use crate::files::{self, Unfit};
use crate::names::{CredentialName, hex};

/// The folder of the rows.
#[derive(Debug, Clone)]
pub struct LoginRows(PathBuf);

/// What a row is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RowName {
    /// The login.
    pub login: CredentialName,
    /// The grant that a session was given, until somebody says that it is kept.
    pub grant: Option<GrantId>,
}

/// A grant of a session, in 16 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GrantId(String);

/// What a row holds.
pub struct LoginRow {
    /// Its content.
    pub content: Zeroizing<Vec<u8>>,
    /// How often it was written.
    pub version: u64,
    /// When it was written.
    pub written: SystemTime,
}

impl LoginRows {
    /// The rows in this folder, which need not be there.
    pub fn at(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Which rows there are, in the order of their names.
    ///
    /// # Errors
    /// [`StateError::Unfit`] if the folder cannot be read.
    pub fn names(&self) -> Result<Vec<RowName>, StateError> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(Unfit::from)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let file = entry.map_err(Unfit::from)?.file_name();
            names.extend(file.to_str().and_then(RowName::of_file));
        }
        names.sort_by_key(RowName::file);
        Ok(names)
    }

    /// Reads a row; `None` if there is none.
    ///
    /// # Errors
    /// [`StateError::Changed`] if it was sealed with another key, or was changed or moved.
    pub fn read(&self, key: &SealingKey, name: &RowName) -> Result<Option<LoginRow>, StateError> {
        let Some((bytes, written)) = private(&self.0.join(name.file()))? else {
            return Ok(None);
        };
        let (version, sealed) = bytes.split_first_chunk().ok_or(StateError::Changed)?;
        let opened = key.open(&name.place(version), sealed);
        Ok(Some(LoginRow {
            content: opened.map_err(|_| StateError::Changed)?,
            version: u64::from_be_bytes(*version),
            written,
        }))
    }

    /// Writes a row whose version was `before`, 0 if there was none. It is on the disk when this
    /// returns.
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
        files::private_folder(&self.0)?;
        let version = before.saturating_add(1).to_be_bytes();
        let sealed = key.seal(&name.place(&version), content);
        let sealed = sealed.map_err(|error| StateError::Damaged(error.to_string()))?;
        let bytes = [&version[..], &sealed].concat();
        let written = files::replace_private(&self.0.join(name.file()), &bytes);
        Ok(written.map_err(Unfit::from)?)
    }

    /// Removes a row. Returns whether there was one.
    ///
    /// # Errors
    /// [`StateError::Unfit`] if it cannot be removed.
    pub fn remove(&self, name: &RowName) -> Result<bool, StateError> {
        match fs::remove_file(self.0.join(name.file())) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Unfit::from(error).into()),
        }
    }

    /// Removes the grants of sessions that nobody kept, and that were written so long ago.
    ///
    /// # Errors
    /// [`StateError::Unfit`] if one of them cannot be removed.
    pub fn forget_unkept(&self, after: Duration) -> Result<(), StateError> {
        let is_old = |name: &RowName| {
            let about = fs::metadata(self.0.join(name.file()));
            let written = about.and_then(|about| about.modified());
            written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > after))
        };
        for name in self.names()? {
            if name.grant.is_none() || !is_old(&name) {
                continue;
            }
            // Who holds the lock is renewing it.
            let lock = self.lock_file(&name.login)?;
            if lock.try_lock().is_ok() && is_old(&name) {
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Whether there is a row. Needs no key.
    #[must_use]
    pub fn has(&self, name: &RowName) -> bool {
        self.0.join(name.file()).exists()
    }

    /// Opens the file that whoever changes a login locks.
    ///
    /// # Errors
    /// [`StateError::Unfit`] if it cannot be opened.
    pub fn lock_file(&self, login: &CredentialName) -> Result<File, StateError> {
        files::private_folder(&self.0)?;
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true);
        let path = self.0.join(format!("{}.row.lock", escaped(login.as_str())));
        let opened = options.mode(0o600).open(path);
        Ok(opened.map_err(Unfit::from)?)
    }

    /// The mark of the key that seals the rows; `None` before the first.
    ///
    /// # Errors
    /// [`StateError`] if it cannot be read.
    pub fn key_mark(&self) -> Result<Option<KeyMark>, StateError> {
        let path = self.mark_path();
        let Some((bytes, _)) = private(&path)? else {
            return Ok(None);
        };
        let damaged = || StateError::Damaged(format!("`{}`", path.display()));
        let (store, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let end = memchr::memchr(b'\n', rest).ok_or_else(damaged)?;
        Ok(Some(KeyMark {
            source: String::from_utf8(rest[..end].to_vec()).map_err(|_| damaged())?,
            store: *store,
            sealed: rest[end + 1..].to_vec(),
        }))
    }

    /// Keeps the mark of the key that seals the rows.
    ///
    /// # Errors
    /// [`StateError::Unfit`] if it cannot be written.
    pub fn set_key_mark(&self, mark: &KeyMark) -> Result<(), StateError> {
        let bytes = [&mark.store[..], mark.source.as_bytes(), b"\n", &mark.sealed].concat();
        Ok(files::replace_private(&self.mark_path(), &bytes).map_err(Unfit::from)?)
    }

    fn mark_path(&self) -> PathBuf {
        self.0.join("key.mark")
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }
}

/// The bytes of a file of this user alone, and when they were written; `None` if there is none.
fn private(path: &Path) -> Result<Option<(Vec<u8>, SystemTime)>, StateError> {
    match files::check_private(path) {
        Err(Unfit::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        checked => {
            checked?;
            let written = fs::symlink_metadata(path).and_then(|about| about.modified());
            Ok(Some((fs::read(path)?, written?)))
        }
    }
}

impl std::fmt::Display for GrantId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl RowName {
    /// A login that is kept.
    pub fn kept(login: CredentialName) -> Self {
        let grant = None;
        Self { login, grant }
    }

    /// A new grant of a session.
    ///
    /// # Errors
    /// [`StateError::Unfit`] if the system has no random numbers.
    pub fn granted(login: CredentialName) -> Result<Self, StateError> {
        let mut drawn = [0; 8];
        let filled = getrandom::fill(&mut drawn);
        filled.map_err(|error| Unfit::from(io::Error::other(error.to_string())))?;
        let grant = Some(GrantId(hex(&drawn)));
        Ok(Self { login, grant })
    }

    /// Names hold neither `%` nor `@`.
    fn file(&self) -> String {
        let login = escaped(self.login.as_str());
        match &self.grant {
            None => format!("{login}.row"),
            Some(GrantId(grant)) => format!("{login}@{grant}.row"),
        }
    }

    fn of_file(file: &str) -> Option<Self> {
        let name = file.strip_suffix(".row")?.replace("%2F", "/");
        let (login, grant) = match name.split_once('@') {
            None => (&name[..], None),
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

fn escaped(name: &str) -> String {
    name.replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_opens_under_its_own_name_and_key_alone() {
        let folder = tempfile::tempdir().unwrap();
        let rows = LoginRows::at(folder.path().join("logins"));
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
        let path = |name: &RowName| rows.folder().join(name.file());
        let sealed = fs::read(path(&kept)).unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"CANARY"));
        fs::copy(path(&pending), path(&kept)).unwrap();
        assert!(matches!(rows.read(&key, &kept), Err(StateError::Changed)));
        assert!(rows.remove(&kept).unwrap() && !rows.remove(&kept).unwrap());
        let mark = key.mark("file").unwrap();
        assert_eq!(rows.key_mark().unwrap(), None);
        rows.set_key_mark(&mark).unwrap();
        assert_eq!(rows.key_mark().unwrap(), Some(mark));
    }
}
