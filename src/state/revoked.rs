//! Which credentials and tokens a person revoked: one file for every gateway of this user.
//!
//! Each configuration of `serve` has a state of its own, and a key seals it. What holds for all of
//! them is a file in the same folder and needs no key, so that no lost key keeps a person from
//! revoking.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::record::unix;
use crate::files::{self, Unfit};
use crate::names::CredentialName;
use crate::token::PrefixId;

/// The file of revocations.
#[derive(Debug, Clone)]
pub struct RevokedFile(PathBuf);

/// The file's text: each credential and each token's id, and since when, in seconds since 1970.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RevokedRows {
    revoked: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    tokens: BTreeMap<String, u64>,
}

impl RevokedFile {
    /// The file at this path, which need not be there.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the revoked names, with the times.
    ///
    /// # Errors
    /// Returns [`Unfit`] also if another user could have written it: what cannot be read may
    /// revoke something.
    pub fn read(&self) -> Result<BTreeMap<CredentialName, u64>, Unfit> {
        let unknown =
            |name: &str| Unfit::Unreadable(io::Error::other(format!("`{name}` is no credential")));
        let rows = self.rows()?.revoked.into_iter();
        rows.map(|(name, since)| {
            Ok((
                CredentialName::new(&name).map_err(|_| unknown(&name))?,
                since,
            ))
        })
        .collect()
    }

    /// Adds a credential's row, or removes it. It is on the disk when this returns. Returns whether
    /// that changed anything.
    ///
    /// # Errors
    /// Returns [`Unfit`] if it cannot be read or written. Nothing has changed then.
    pub fn set(&self, credential: &CredentialName, is_revoked: bool) -> Result<bool, Unfit> {
        files::private_folder(self.0.parent().unwrap_or(Path::new("/")))?;
        let _held = self.lock()?;
        let mut rows = self.rows()?;
        let name = credential.to_string();
        let changes = rows.revoked.contains_key(&name) != is_revoked;
        if changes {
            match is_revoked {
                true => rows.revoked.insert(name, unix(SystemTime::now())),
                false => rows.revoked.remove(&name),
            };
            self.write(&rows)?;
        }
        Ok(changes)
    }

    /// Returns the ids of the revoked tokens.
    ///
    /// # Errors
    /// As [`RevokedFile::read`].
    pub fn tokens(&self) -> Result<BTreeSet<PrefixId>, Unfit> {
        let unknown = |id: &str| Unfit::Unreadable(io::Error::other(format!("`{id}` is no token")));
        let rows = self.rows()?.tokens.into_keys();
        rows.map(|id| PrefixId::named(&id).ok_or_else(|| unknown(&id)))
            .collect()
    }

    /// Adds a token's row. It is on the disk when this returns. Rows of tokens that have all ended
    /// meanwhile go.
    ///
    /// # Errors
    /// As [`RevokedFile::set`].
    pub fn revoke_token(&self, id: &PrefixId) -> Result<(), Unfit> {
        files::private_folder(self.0.parent().unwrap_or(Path::new("/")))?;
        let _held = self.lock()?;
        let (mut rows, now) = (self.rows()?, unix(SystemTime::now()));
        rows.tokens
            .retain(|_, since| now.saturating_sub(*since) <= LONGEST_TOKEN);
        rows.tokens.entry(id.to_string()).or_insert(now);
        self.write(&rows)
    }

    /// Writes no more than can be read.
    fn write(&self, rows: &RevokedRows) -> Result<(), Unfit> {
        let text = serde_json::to_vec(rows).map_err(io::Error::from)?;
        if text.len() as u64 > LARGEST_MIB << 20 {
            let why = format!("it would be larger than {LARGEST_MIB} MiB: too much is revoked");
            return Err(Unfit::Unreadable(io::Error::other(why)));
        }
        Ok(files::replace_private(&self.0, &text)?)
    }

    fn rows(&self) -> Result<RevokedRows, Unfit> {
        match self.0.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(RevokedRows::default());
            }
            _ => files::check_private(&self.0)?,
        }
        let text = files::read(&self.0, LARGEST_MIB)?;
        serde_json::from_str(&text).map_err(|error| Unfit::Unreadable(error.into()))
    }

    /// One process at a time changes it.
    fn lock(&self) -> io::Result<File> {
        let mut private = File::options();
        private.create(true).append(true).mode(0o600);
        let lock = private.open(self.0.with_extension("lock"))?;
        lock.lock()?;
        Ok(lock)
    }
}

const LARGEST_MIB: u64 = 4;
/// Gateways mint no token that lasts longer, in seconds.
const LONGEST_TOKEN: u64 = 2 * 366 * 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_stays_until_it_is_removed_and_what_cannot_be_read_is_no_empty_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = RevokedFile::at(folder.path().join("sessions/revoked.json"));
        let name = |text| CredentialName::new(text).unwrap();
        assert!(file.read().unwrap().is_empty());
        assert!(file.set(&name("github"), true).unwrap());
        assert!(!file.set(&name("github"), true).unwrap());
        assert!(file.set(&name("a/b"), true).unwrap());
        assert!(!file.set(&name("other"), false).unwrap());
        assert!(file.set(&name("github"), false).unwrap());
        let id = PrefixId::named(&"0a".repeat(16)).unwrap();
        file.revoke_token(&id).unwrap();
        assert_eq!(file.tokens().unwrap(), BTreeSet::from([id]));
        let left: Vec<_> = file.read().unwrap().into_keys().collect();
        assert_eq!(left, [name("a/b")]);
        // No row is written that would leave the file unreadable.
        let (long, now) = ("x".repeat((4 << 20) - 40), unix(SystemTime::now()));
        let full = format!("{{\"revoked\":{{}},\"tokens\":{{\"{long}\":{now}}}}}");
        std::fs::write(file.path(), &full).unwrap();
        let error = file.revoke_token(&id).unwrap_err();
        assert!(error.to_string().contains("too much is revoked"), "{error}");
        assert!(file.set(&name("github"), true).is_err() && file.read().unwrap().is_empty());
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), full);
        std::fs::write(file.path(), "{").unwrap();
        assert!(file.read().is_err());
        assert!(file.set(&name("github"), true).is_err());
    }
}
