//! The places of a login's tokens: reads the tokens, and replaces them if they have not changed.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gateway_files::{self as files, BadFile};
use gateway_state::RowName;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::super::StoreError;
use super::super::file::blocking;
use super::super::leased::{Held, Moment};
use super::super::material::{Lease, Material};
use super::fault::{of_file, of_state, unfit};
use super::lock::{LoginLock, digest};
use super::rows::SealedRows;
use crate::login::{Login, LoginFile, TokenKind, Tokens, UNTOLD, file};

/// The place where the tokens of a login are kept.
#[derive(Clone)]
pub(super) enum TokenPlace {
    /// In the file of the program that logged in.
    File(Arc<LoginFile>),
    /// In a row; if a person keeps the row, in the row that it became.
    Row(RowName),
    /// In memory, without a state folder; with the time of their arrival.
    Memory(Arc<Mutex<(Tokens, SystemTime)>>),
}

/// The tokens of a login, as read from their place.
#[derive(Clone)]
pub(super) struct HeldTokens {
    pub(super) tokens: Tokens,
    /// When they were written to the place.
    pub(super) written: SystemTime,
    pub(super) stamp: PlaceStamp,
    /// The digest of the refresh token in the place.
    pub(super) of: String,
    /// The lock, if the tokens are in memory alone because they could not be stored. It is held
    /// until they are: another renewal would present a used token.
    pub(super) unkept: Option<Arc<Mutex<LoginLock>>>,
    /// The access token that was read, if these tokens have replaced it since.
    pub(super) former: Option<Zeroizing<String>>,
}

/// A mark by which a change of the place is noticed.
#[derive(Clone)]
pub(super) enum PlaceStamp {
    /// The text of a file.
    Text(Zeroizing<Vec<u8>>),
    /// A row, and its version.
    Row(RowName, u64),
    /// No other process changes it.
    Own,
}

impl HeldTokens {
    fn new(tokens: Tokens, written: SystemTime, stamp: PlaceStamp) -> Self {
        let refresh = tokens.refresh.as_ref();
        Self {
            of: refresh.map(|text| digest(text)).unwrap_or_default(),
            tokens,
            written,
            stamp,
            unkept: None,
            former: None,
        }
    }

    /// Returns tokens that were made now, and are stored nowhere.
    pub(super) fn made(tokens: Tokens) -> Self {
        Self::new(tokens, SystemTime::now(), PlaceStamp::Own)
    }

    /// Returns these tokens with a lease that ends with the access token.
    pub(super) fn leased(self) -> Held<Self> {
        let lease = self.left().map(|left| Lease {
            refresh_after: left.saturating_sub(self.margin()),
            ..Lease::of(left)
        });
        Held::new(self, lease, Moment::now())
    }

    /// Returns when the access token ends. If the issuer did not say and the token can be renewed,
    /// one hour after it was written.
    pub(super) fn end(&self) -> Option<SystemTime> {
        let is_renewable = self.tokens.refresh.is_some();
        let assumed = is_renewable.then(|| self.written + UNTOLD);
        self.tokens.expires.or(assumed)
    }

    /// Returns how long the access token may still be used; `None` if it does not end.
    pub(super) fn left(&self) -> Option<Duration> {
        let end = self.end()?;
        Some(end.duration_since(SystemTime::now()).unwrap_or_default())
    }

    /// Returns how long before its end the access token is renewed.
    fn margin(&self) -> Duration {
        let life = self
            .end()
            .and_then(|end| end.duration_since(self.written).ok());
        life.unwrap_or_default().div_f64(5.0).min(MARGIN)
    }

    /// Whether the access token must be renewed.
    pub(super) fn is_due(&self) -> bool {
        self.left().is_some_and(|left| left <= self.margin())
    }

    /// Whether the access token can still be used.
    pub(super) fn serves(&self) -> bool {
        !self.tokens.access.is_empty() && self.left().is_none_or(|left| !left.is_zero())
    }

    /// Returns the tokens as the fields of a read.
    pub(super) fn material(&self) -> Material {
        let left = self.left();
        let usable = left.unwrap_or(LOOKED_AT).min(LOOKED_AT);
        let until_due = left.map_or(LOOK, |left| match left.checked_sub(self.margin()) {
            Some(until) if !until.is_zero() => until,
            // A renewal failed, or another process is renewing.
            _ => left / 4,
        });
        let lease = Lease {
            refresh_after: until_due.min(LOOK),
            stale_after: usable,
            expires_after: usable,
            id: None,
        };
        let field = |material: Material, kind: TokenKind| match self.tokens.of(kind) {
            Some(text) => material.with(kind.as_str(), Zeroizing::new(text.as_bytes().to_vec())),
            None => material,
        };
        let material = TokenKind::ALL
            .into_iter()
            .fold(Material::new(Some(lease)), field);
        match &self.former {
            Some(text) => {
                let text = Zeroizing::new(text.as_bytes().to_vec());
                material.with_former(TokenKind::Access.as_str(), text)
            }
            None => material,
        }
    }
}

impl TokenPlace {
    /// Reads the tokens; `None` if there is no login.
    pub(super) async fn read(
        &self,
        rows: Option<&SealedRows>,
    ) -> Result<Option<HeldTokens>, StoreError> {
        match self {
            Self::File(file) => {
                let file = file.clone();
                blocking(move || read_whole(&file)).await
            }
            Self::Row(name) => {
                let Some(rows) = rows else {
                    return Ok(None);
                };
                Ok(rows.read_grant(name).await?.map(|row| {
                    let stamp = PlaceStamp::Row(row.name, row.version);
                    HeldTokens::new(row.tokens, row.written, stamp)
                }))
            }
            Self::Memory(own) => {
                let (tokens, written) = own.lock().clone();
                Ok(Some(HeldTokens::new(tokens, written, PlaceStamp::Own)))
            }
        }
    }

    /// Proves that tokens could be replaced, before the issuer is asked for any.
    pub(super) async fn check(
        &self,
        rows: Option<&SealedRows>,
        before: &HeldTokens,
    ) -> Result<(), StoreError> {
        match (self, &before.stamp, rows) {
            (Self::File(file), PlaceStamp::Text(text), _) => {
                let length = replaced(file, text, &before.tokens)?.len() + GROWTH;
                let file = file.clone();
                blocking(move || {
                    let (real, _) = own(&file)?;
                    let proven = files::check_replaceable(&real, length);
                    proven.map_err(|error| unwritable(&file, &error))
                })
                .await
            }
            (Self::Row(_), _, Some(rows)) => {
                let rows = rows.rows.clone();
                let proven = move || rows.check_writable(2 * GROWTH);
                blocking(move || proven().map_err(|why| of_state(&why))).await
            }
            _ => Ok(()),
        }
    }

    /// Replaces the tokens, if the place has not changed since it was read. They are on the disk
    /// when this returns. Returns whether they were replaced.
    pub(super) async fn write(
        &self,
        rows: Option<&SealedRows>,
        before: &HeldTokens,
        (login, tokens): (&Login, &Tokens),
    ) -> Result<bool, StoreError> {
        match (self, &before.stamp, rows) {
            (Self::File(file), PlaceStamp::Text(text), _) => {
                let (file, text) = (file.clone(), text.clone());
                let new = replaced(&file, &text, tokens)?;
                blocking(move || replace(&file, &text, &new)).await
            }
            (Self::Row(_), PlaceStamp::Row(name, version), Some(rows)) => {
                // The lock is held, so no other process has changed the row.
                rows.write(name, *version, (login, tokens))
                    .await
                    .map(|()| true)
            }
            (Self::Memory(own), ..) => {
                *own.lock() = (tokens.clone(), SystemTime::now());
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

fn replaced(
    at: &LoginFile,
    text: &[u8],
    tokens: &Tokens,
) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    let new = file::replace(at, text, tokens);
    new.map_err(|why| StoreError::LoginUnusable(why.to_string().into()))
}

/// Reads a program's file. Programs that write in place leave it cut off for a moment.
fn read_whole(at: &LoginFile) -> Result<Option<HeldTokens>, StoreError> {
    let mut tries = 0;
    loop {
        let Some((text, about)) = read(&at.path)? else {
            return Ok(None);
        };
        match file::read(at, &text) {
            Ok(None) => return Ok(None),
            Ok(Some(tokens)) => {
                let written = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                let stamp = PlaceStamp::Text(text);
                return Ok(Some(HeldTokens::new(tokens, written, stamp)));
            }
            Err(_) if tries < 3 => std::thread::sleep(BETWEEN),
            Err(why) => return Err(StoreError::LoginUnusable(why.to_string().into())),
        }
        tries += 1;
    }
}

/// The text of a file, and its metadata.
type FileRead = (Zeroizing<Vec<u8>>, Metadata);

/// Reads a file that only this user or root may have written; `None` if there is none.
fn read(path: &Path) -> Result<Option<FileRead>, StoreError> {
    let failed = |why: BadFile| unfit(path, &why);
    let (file, about) = match files::open(path) {
        Err(BadFile::Unreadable(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        opened => opened.map_err(failed)?,
    };
    if about.mode() & 0o022 != 0 {
        let remedy = format!("run `chmod go-w {}`", path.display());
        return Err(of_file(path, "other users may write it", &remedy));
    }
    files::check_written(path).map_err(|why| failed(why.into()))?;
    // Capacity for the whole text: a growing vector would leave copies behind.
    let room = usize::try_from(about.len()).unwrap_or(usize::MAX).min(MOST) + 1;
    let mut text = Zeroizing::new(Vec::with_capacity(room));
    File::take(file, u64::try_from(room).unwrap_or(u64::MAX))
        .read_to_end(&mut text)
        .map_err(|error| failed(error.into()))?;
    if text.len() > MOST {
        return Err(of_file(path, "it is larger than 1 MiB", "correct the path"));
    }
    Ok(Some((text, about)))
}

/// Replaces a program's file, if it has not changed since it was read.
fn replace(at: &LoginFile, before: &[u8], new: &[u8]) -> Result<bool, StoreError> {
    let (real, mode) = own(at)?;
    let is_unchanged = || {
        let now = read(&at.path);
        now.is_ok_and(|now| now.is_some_and(|(text, _)| text[..] == *before))
    };
    files::replace_if(&real, new, mode, is_unchanged).map_err(|error| unwritable(at, &error))
}

/// Returns the path of a program's file, if it is this user's, and its mode. A link stays a link.
fn own(at: &LoginFile) -> Result<(PathBuf, u32), StoreError> {
    let real = std::fs::canonicalize(&at.path).map_err(|error| unwritable(at, &error))?;
    let about = std::fs::metadata(&real).map_err(|error| unwritable(at, &error))?;
    if about.uid() == rustix::process::geteuid().as_raw() {
        Ok((real, about.mode() & 0o777))
    } else {
        Err(unfit(&at.path, &BadFile::Owner(about.uid())))
    }
}

fn unwritable(at: &LoginFile, error: &std::io::Error) -> StoreError {
    let remedy = "let the file and its folder be your own, writable, and not full";
    of_file(&at.path, &error.to_string(), remedy)
}

/// How much longer new tokens may be than the previous ones.
const GROWTH: usize = 16 * 1024;
/// The longest time before its end at which a token is renewed.
const MARGIN: Duration = Duration::from_secs(60);
/// How often the place is read while it is used.
const LOOK: Duration = Duration::from_secs(1);
/// How long a token is used if its place cannot be read.
const LOOKED_AT: Duration = Duration::from_secs(60);
/// The largest file that is read.
const MOST: usize = 1 << 20;
const BETWEEN: Duration = Duration::from_millis(50);
