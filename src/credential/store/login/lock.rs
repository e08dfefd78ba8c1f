//! The locks of a login: one for all gateways of the user, and that of the program that owns the
//! file.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use gateway_names::{CredentialName, hex};
use gateway_state::LoginRows;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::super::StoreError;
use super::super::file::blocking;
use super::fault::of_state;

/// A login's lock, held until it is dropped or its process ends.
///
/// Its file holds a note while a renewal is under way. A process that finds a note knows that the
/// previous one was killed meanwhile. The second line identifies the folder that this process made
/// as the program's lock. A login in memory needs no file.
#[derive(Default)]
pub(super) struct LoginLock {
    // Dropped before the file: the next to lock the file would take the folder for stale.
    program: Option<FolderLock>,
    file: Option<File>,
    /// The note of the previous process, if it was killed during a renewal.
    pub(super) left: Option<String>,
}

impl LoginLock {
    /// Takes the locks, and waits at most this long for them; `None` if others hold them that long.
    pub(super) async fn take(
        rows: &LoginRows,
        login: &CredentialName,
        program: Option<&Path>,
        wait: Duration,
    ) -> Result<Option<Self>, StoreError> {
        let end = Instant::now() + wait;
        let (opened, named) = (rows.clone(), login.clone());
        let mut file =
            blocking(move || opened.lock_file(&named).map_err(|why| of_state(&why))).await?;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(std::fs::TryLockError::WouldBlock) if Instant::now() < end => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Err(std::fs::TryLockError::WouldBlock) => return Ok(None),
                Err(std::fs::TryLockError::Error(error)) => {
                    return Err(StoreError::File(error.kind()));
                }
            }
        }
        let mut content = String::new();
        let read = file.read_to_string(&mut content);
        read.map_err(|error| StoreError::File(error.kind()))?;
        let (left, made) = content.split_once('\n').unwrap_or((&content, ""));
        let mut lock = Self {
            program: None,
            file: Some(file),
            left: (!left.is_empty()).then(|| left.to_owned()),
        };
        if let Some(path) = program {
            if folder_id(path).is_some_and(|id| id == made) {
                // The process that made it held this lock, and was killed.
                let _ = std::fs::remove_dir(path);
            }
            lock.program = FolderLock::take(path, end).await?;
            if lock.program.is_none() {
                return Ok(None);
            }
            lock.note(left)?;
        }
        Ok(Some(lock))
    }

    /// Leaves a note for the next process, in case this one is killed.
    pub(super) fn note(&mut self, text: &str) -> Result<(), StoreError> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let folder = self.program.as_ref().and_then(|held| held.id.as_deref());
        let content = format!("{text}\n{}", folder.unwrap_or_default());
        let written = file.set_len(0).and_then(|()| file.rewind());
        let written = written.and_then(|()| file.write_all(content.as_bytes()));
        written.map_err(|error| StoreError::File(error.kind()))
    }

    /// Removes the note.
    pub(super) fn clear(&mut self) -> Result<(), StoreError> {
        self.note("")
    }
}

/// A folder that its maker holds: the lock of programs that use `proper-lockfile` (npm). The maker
/// touches it every few seconds; one that was not touched has no owner any more.
struct FolderLock {
    path: PathBuf,
    id: Option<String>,
    refresh: tokio::task::JoinHandle<()>,
}

impl FolderLock {
    async fn take(path: &Path, end: Instant) -> Result<Option<Self>, StoreError> {
        loop {
            match std::fs::create_dir(path) {
                Ok(()) => break,
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(StoreError::File(error.kind())),
            }
            // Of two processes that remove it, one makes it anew.
            if is_stale(path) && std::fs::remove_dir(path).is_ok() {
                continue;
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let held = path.to_owned();
        let refresh = tokio::spawn(async move {
            loop {
                tokio::time::sleep(REFRESH).await;
                let folder = File::open(&held);
                // If it is gone, another process considered it stale; the file is compared before
                // it is replaced.
                let _ = folder.and_then(|folder| folder.set_modified(SystemTime::now()));
            }
        });
        Ok(Some(Self {
            id: folder_id(path),
            path: path.to_owned(),
            refresh,
        }))
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        self.refresh.abort();
        // A program that considered it stale has removed it.
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Returns the identity of a folder, which a later folder of the same name does not have.
fn folder_id(path: &Path) -> Option<String> {
    let about = std::fs::symlink_metadata(path).ok()?;
    let made = about.created().ok()?.duration_since(SystemTime::UNIX_EPOCH);
    Some(format!("{} {}", about.ino(), made.ok()?.as_nanos()))
}

fn is_stale(path: &Path) -> bool {
    let made = std::fs::metadata(path).and_then(|about| about.modified());
    let age = made.map(|at| at.elapsed().unwrap_or_default());
    age.is_ok_and(|age| age > STALE)
}

/// Returns the digest of a token, by which the token is recognised.
pub(super) fn digest(token: &str) -> String {
    hex(&Sha256::digest(token.as_bytes()))
}

/// Returns the note in the lock's file during a renewal: the token that was sent, and when.
pub(super) fn note(digest: &str) -> String {
    let now = OffsetDateTime::from(SystemTime::now()).format(&Rfc3339);
    format!("{digest} {}", now.unwrap_or_default())
}

const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The values of `proper-lockfile`.
const STALE: Duration = Duration::from_secs(10);
const REFRESH: Duration = Duration::from_secs(5);
