//! The secrets and tokens that a person revoked: one file for all gateways of this user.
//!
//! Each configuration of `serve` has its own sealed state. Revocations hold for all configurations,
//! so they are in one file in the same folder, which is not sealed: no lost key keeps a person from
//! revoking. A secret is revoked at the place that it is read from. The row also has a fingerprint
//! of the value, so that the same value in another place is revoked with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use aws_lc_rs::hmac;
use gateway_files::{self as files, BadFile};
use gateway_names::SecretLabel;
use gateway_token::PrefixId;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::error::StateError;
use super::record::unix;

/// The file of revocations.
#[derive(Debug, Clone)]
pub struct RevokedFile(PathBuf);

/// The content of the file: each revoked secret, and each token's id with the time of its
/// revocation, in seconds since 1970.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RevokedRows {
    version: u32,
    secrets: Vec<RevokedSecret>,
    tokens: BTreeMap<String, u64>,
}

/// A revoked secret: the label that the person gave, and what is known about the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokedSecret {
    /// The name, variable or place that the person gave.
    pub label: SecretLabel,
    /// The time of the revocation, in seconds since 1970.
    pub since: u64,
    /// What is known about it.
    pub known: KnownOfSecret,
}

/// A secret that was revoked, and when that was taken back. Values are compared where they are
/// read, so that none is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedRevocation {
    /// The revocation, without fingerprints.
    pub secret: RevokedSecret,
    /// When it was taken back, in seconds since 1970.
    pub restored: Option<u64>,
}

impl SharedRevocation {
    pub(super) fn text(&self) -> Result<String, StateError> {
        serde_json::to_string(self).map_err(|why| StateError::Damaged(why.to_string()))
    }
}

/// What is known about a revoked secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownOfSecret {
    /// The credentials and variables that it was lent as. `restore` accepts these as labels too.
    pub names: BTreeSet<String>,
    /// The places that it is read from.
    pub places: BTreeSet<String>,
    /// The fingerprints of its values.
    pub values: BTreeSet<String>,
}

impl KnownOfSecret {
    /// Adds what else is known. The number of values is limited, for secrets that change often:
    /// every value that is read from a revoked place is revoked anyway.
    pub fn add(&mut self, more: &Self) {
        self.names.extend(more.names.iter().cloned());
        self.places.extend(more.places.iter().cloned());
        let room = MOST_VALUES.saturating_sub(self.values.len());
        let new = more.values.difference(&self.values).take(room).cloned();
        let new: Vec<String> = new.collect();
        self.values.extend(new);
    }
}

impl RevokedSecret {
    /// Returns a new revocation, of which only the person's label is known.
    pub fn by(label: SecretLabel) -> Self {
        Self {
            label,
            since: unix(SystemTime::now()),
            known: KnownOfSecret::default(),
        }
    }

    /// Whether the label is one of these, or names this place with or without the field.
    pub fn names(&self, labels: &BTreeSet<String>, place: &str) -> bool {
        let label = self.label.as_str();
        labels.contains(label) || is_within(place, label)
    }

    /// Whether a secret is read from one of the places.
    pub fn covers(&self, place: &str) -> bool {
        self.known
            .places
            .iter()
            .any(|known| is_within(place, known))
    }

    /// Whether `restore` finds this revocation by the label.
    pub(super) fn is_called(&self, label: &str) -> bool {
        let Self { known, .. } = self;
        self.label.as_str() == label
            || known.names.contains(label)
            || known.places.iter().any(|place| is_within(place, label))
    }
}

/// Whether a place equals another one, or is a field of it.
fn is_within(place: &str, whole: &str) -> bool {
    let rest = place.strip_prefix(whole);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
}

/// The key of the fingerprints. Each user has one, in a file beside the revocations.
#[derive(Clone)]
pub struct FingerprintKey(hmac::Key);

impl FingerprintKey {
    fn new(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Returns the fingerprint of a value, which cannot be used to test a guess without the key.
    pub fn of(&self, value: &[u8]) -> String {
        let tag = hmac::sign(&self.0, value);
        tag.as_ref()
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }
}

fn drawn() -> io::Result<Zeroizing<[u8; 32]>> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(&mut bytes[..]).map_err(io::Error::other)?;
    Ok(bytes)
}

impl RevokedFile {
    /// Returns the file at this path, which need not exist yet.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the revoked secrets.
    ///
    /// # Errors
    /// Returns [`BadFile`] also if another user could have written it: a file that cannot be read
    /// may revoke something.
    pub fn read(&self) -> Result<Vec<RevokedSecret>, BadFile> {
        Ok(self.rows()?.secrets)
    }

    /// Revokes the secret with this label, or adds to what is known about it; with `again`, only if
    /// it is still revoked. The change is on the disk when this returns.
    ///
    /// # Errors
    /// Returns [`BadFile`] if it cannot be read or written. Nothing has changed then.
    pub fn revoke(
        &self,
        label: &SecretLabel,
        known: &KnownOfSecret,
        again: bool,
    ) -> Result<(), BadFile> {
        self.change(|rows| {
            let rows = &mut rows.secrets;
            if !again && !rows.iter().any(|row| row.label == *label) {
                rows.push(RevokedSecret::by(label.clone()));
            }
            if let Some(row) = rows.iter_mut().find(|row| row.label == *label) {
                row.known.add(known);
            }
        })
    }

    /// Withdraws each revocation that has this label, or a name or place that the label matches.
    /// Returns the labels of these revocations.
    ///
    /// # Errors
    /// As [`RevokedFile::revoke`].
    pub fn restore(&self, label: &SecretLabel) -> Result<Vec<SecretLabel>, BadFile> {
        let mut restored = Vec::new();
        self.change(|rows| {
            rows.secrets.retain(|row| {
                let is_called = row.is_called(label.as_str());
                restored.extend(is_called.then(|| row.label.clone()));
                !is_called
            });
        })?;
        Ok(restored)
    }

    /// Adds the revocations that several gateways share, and withdraws those that were taken back
    /// since.
    ///
    /// # Errors
    /// As [`RevokedFile::revoke`].
    pub fn follow(
        &self,
        secrets: &[SharedRevocation],
        tokens: &[(String, u64)],
    ) -> Result<(), BadFile> {
        let now = unix(SystemTime::now());
        self.change(|rows| {
            for SharedRevocation { secret, restored } in secrets {
                let same = |row: &RevokedSecret| row.label == secret.label;
                match (rows.secrets.iter_mut().find(|row| same(row)), restored) {
                    (Some(row), None) => row.known.add(&secret.known),
                    (None, None) => rows.secrets.push(secret.clone()),
                    (_, Some(at)) => rows.secrets.retain(|row| !same(row) || row.since > *at),
                }
            }
            for (id, since) in tokens {
                if now.saturating_sub(*since) <= LONGEST_TOKEN {
                    rows.tokens.entry(id.clone()).or_insert(*since);
                }
            }
        })
    }

    /// Returns the key of the fingerprints. The first revocation draws it.
    ///
    /// # Errors
    /// Returns [`BadFile`] if it cannot be read or written, or if it is missing although there are
    /// fingerprints that were made with it.
    pub fn key(&self) -> Result<FingerprintKey, BadFile> {
        let path = self.0.with_extension("key");
        if !path.try_exists()? {
            files::private_folder(self.0.parent().unwrap_or(Path::new("/")))?;
            let _held = self.lock()?;
            let rows = self.rows()?.secrets;
            if rows.iter().any(|row| !row.known.values.is_empty()) {
                let why = format!("`{}` is gone, so no value can be compared", path.display());
                return Err(BadFile::Unreadable(io::Error::other(why)));
            }
            files::create_private(&path, &*drawn()?)?;
        }
        files::check_private(&path)?;
        let bytes = Zeroizing::new(std::fs::read(&path)?);
        let wrong = || BadFile::Unreadable(io::Error::other("its key has another length"));
        let key = (bytes.len() == 32).then(|| FingerprintKey::new(&bytes));
        key.ok_or_else(wrong)
    }

    /// Puts a file in the format without a version aside, whole. Returns its new path.
    ///
    /// # Errors
    /// As [`RevokedFile::read`].
    pub fn put_aside(&self) -> Result<Option<PathBuf>, BadFile> {
        let is_old = self.text()?.is_some_and(|text| {
            let read = serde_json::from_str::<BTreeMap<String, serde_json::Value>>(&text);
            read.is_ok_and(|rows| rows.contains_key("revoked") && !rows.contains_key("version"))
        });
        if is_old {
            Ok(files::put_aside(&self.0)?)
        } else {
            Ok(None)
        }
    }

    /// Returns the ids of the revoked tokens.
    ///
    /// # Errors
    /// As [`RevokedFile::read`].
    pub fn tokens(&self) -> Result<BTreeSet<PrefixId>, BadFile> {
        let fault = |id: &str| BadFile::Unreadable(io::Error::other(format!("`{id}` is no token")));
        let rows = self.rows()?.tokens.into_keys();
        rows.map(|id| PrefixId::named(&id).ok_or_else(|| fault(&id)))
            .collect()
    }

    /// Revokes a token. The change is on the disk when this returns. Removes the ids of tokens that
    /// have expired since their revocation.
    ///
    /// # Errors
    /// As [`RevokedFile::revoke`].
    pub fn revoke_token(&self, id: &PrefixId) -> Result<(), BadFile> {
        self.change(|rows| {
            let now = unix(SystemTime::now());
            let tokens = &mut rows.tokens;
            tokens.retain(|_, since| now.saturating_sub(*since) <= LONGEST_TOKEN);
            tokens.entry(id.to_string()).or_insert(now);
        })
    }

    /// Changes the rows, one process at a time. Refuses to write more than can be read.
    fn change(&self, change: impl FnOnce(&mut RevokedRows)) -> Result<(), BadFile> {
        files::private_folder(self.0.parent().unwrap_or(Path::new("/")))?;
        let _held = self.lock()?;
        let mut rows = self.rows()?;
        let before = serde_json::to_vec(&rows).map_err(io::Error::from)?;
        change(&mut rows);
        let text = serde_json::to_vec(&rows).map_err(io::Error::from)?;
        if text.len() as u64 > LARGEST_MIB << 20 {
            let why = format!("it would be larger than {LARGEST_MIB} MiB: too much is revoked");
            return Err(BadFile::Unreadable(io::Error::other(why)));
        }
        if text == before {
            Ok(())
        } else {
            Ok(files::replace_private(&self.0, &text)?)
        }
    }

    fn rows(&self) -> Result<RevokedRows, BadFile> {
        let Some(text) = self.text()? else {
            return Ok(RevokedRows {
                version: VERSION,
                secrets: Vec::new(),
                tokens: BTreeMap::new(),
            });
        };
        let rows: RevokedRows =
            serde_json::from_str(&text).map_err(|error| BadFile::Unreadable(error.into()))?;
        let why = format!(
            "it has version {}, and this gateway reads {VERSION}",
            rows.version
        );
        let other = || BadFile::Unreadable(io::Error::other(why));
        (rows.version == VERSION).then_some(rows).ok_or_else(other)
    }

    /// Returns the file's text, if the file exists.
    fn text(&self) -> Result<Option<String>, BadFile> {
        match self.0.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            _ => files::check_private(&self.0)?,
        }
        files::read(&self.0, LARGEST_MIB).map(Some)
    }

    /// Locks the file against changes by other processes.
    fn lock(&self) -> io::Result<File> {
        let lock = files::lock_file(&self.0.with_extension("lock"))?;
        lock.lock()?;
        Ok(lock)
    }
}

/// The version of the file's format. The first format had none.
const VERSION: u32 = 2;
const LARGEST_MIB: u64 = 4;
/// The largest number of values kept of one secret.
const MOST_VALUES: usize = 64;
/// The longest lifetime of a token that a gateway mints, in seconds.
const LONGEST_TOKEN: u64 = 2 * 366 * 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn label(text: &str) -> SecretLabel {
        SecretLabel::new(text).unwrap()
    }

    fn labels(file: &RevokedFile) -> Vec<String> {
        let rows = file.read().unwrap();
        rows.into_iter().map(|row| row.label.to_string()).collect()
    }

    #[test]
    fn a_row_stays_until_it_is_removed_and_what_cannot_be_read_is_no_empty_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = RevokedFile::at(folder.path().join("sessions/revoked.json"));
        assert!(file.read().unwrap().is_empty());
        let known = KnownOfSecret {
            names: ["hub".to_owned()].into(),
            places: ["env:HUB".to_owned()].into(),
            values: [file.key().unwrap().of(b"CANARY-0001")].into(),
        };
        file.revoke(&label("github"), &known, false).unwrap();
        file.revoke(&label("github"), &KnownOfSecret::default(), false)
            .unwrap();
        assert_eq!(file.read().unwrap()[0].known, known);
        file.revoke(&label("a/b"), &KnownOfSecret::default(), false)
            .unwrap();
        file.revoke(&label("gone"), &known, true).unwrap();
        assert_eq!(file.restore(&label("other")).unwrap(), []);
        for (said, restored) in [("hub", 1), ("env:HUB", 0)] {
            assert_eq!(
                file.restore(&label(said)).unwrap().len(),
                restored,
                "{said}"
            );
        }
        let id = PrefixId::named(&"0a".repeat(16)).unwrap();
        file.revoke_token(&id).unwrap();
        assert_eq!(file.tokens().unwrap(), BTreeSet::from([id]));
        assert_eq!(labels(&file), ["a/b"]);
        // No row is written that would leave the file unreadable.
        let (long, now) = ("x".repeat((4 << 20) - 60), unix(SystemTime::now()));
        let full = format!("{{\"version\":2,\"secrets\":[],\"tokens\":{{\"{long}\":{now}}}}}");
        std::fs::write(file.path(), &full).unwrap();
        let error = file.revoke_token(&id).unwrap_err();
        assert!(error.to_string().contains("too much is revoked"), "{error}");
        assert!(file.revoke(&label("github"), &known, false).is_err() && labels(&file).is_empty());
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), full);
        for text in ["{", "{\"version\":3,\"secrets\":[],\"tokens\":{}}"] {
            std::fs::write(file.path(), text).unwrap();
            assert!(file.read().is_err() && file.put_aside().unwrap_or_default().is_none());
            assert!(file.revoke(&label("github"), &known, false).is_err());
        }
    }

    #[test]
    fn a_file_of_the_old_form_is_put_aside_whole_and_never_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = RevokedFile::at(folder.path().join("revoked.json"));
        let old = "{\"revoked\":{\"github\":1}}";
        files::replace_private(file.path(), old.as_bytes()).unwrap();
        assert!(file.read().is_err());
        let aside = file.put_aside().unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(aside).unwrap(), old);
        assert!(labels(&file).is_empty() && file.put_aside().unwrap().is_none());
    }

    #[test]
    fn a_fingerprint_without_its_key_is_no_answer() {
        let folder = tempfile::tempdir().unwrap();
        let file = RevokedFile::at(folder.path().join("revoked.json"));
        let [one, again] = [(); 2].map(|()| file.key().unwrap().of(b"CANARY-0001"));
        assert_eq!(one, again);
        assert_ne!(one, FingerprintKey::new(b"another").of(b"CANARY-0001"));
        let values = BTreeSet::from([one]);
        let known = KnownOfSecret {
            values,
            ..KnownOfSecret::default()
        };
        file.revoke(&label("github"), &known, false).unwrap();
        std::fs::remove_file(file.path().with_extension("key")).unwrap();
        assert!(file.key().is_err());
    }
}
