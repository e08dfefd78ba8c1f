//! The locks of a login: one for all gateways of the user, and the one of the program whose file it
//! is.

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
/// Its file holds a note while a renewal is under way. Whoever finds one there knows that the
/// process before it was ended meanwhile. Its second line tells which folder that process made as
/// the lock of the program. What is in memory alone needs no file.
#[derive(Default)]
pub(super) struct LoginLock {
    // Dropped before the file: who locks that next takes the folder for one that nobody holds.
    program: Option<FolderLock>,
    file: Option<File>,
    /// What the process before left, if it was ended in the middle.
    pub(super) left: Option<String>,
}

impl LoginLock {
    /// Takes the locks, and waits at most so long for them; `None` if others hold them that long.
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
                // Whoever made it held this lock, and was ended.
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

    /// Leaves a note for whoever comes next, in case that this process is ended.
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

    /// Takes the note back.
    pub(super) fn clear(&mut self) -> Result<(), StoreError> {
        self.note("")
    }
}

/// A folder that whoever made it holds: the lock of programs that use `proper-lockfile` (npm). It
/// is made new every few seconds, and one that was not is nobody's any more.
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
            // Of two that remove it, one makes it.
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
                // If it is gone, somebody believed it stale; the file is compared before it is
                // replaced.
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
        // A program that believed it stale has removed it.
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// What tells a folder from every other, also from a later one of its name.
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

/// The digest of a token, by which it is known again.
pub(super) fn digest(token: &str) -> String {
    hex(&Sha256::digest(token.as_bytes()))
}

/// What is left in the lock's file while a renewal is under way: which token was sent, and when.
pub(super) fn note(digest: &str) -> String {
    let now = OffsetDateTime::from(SystemTime::now()).format(&Rfc3339);
    format!("{digest} {}", now.unwrap_or_default())
}

const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// As `proper-lockfile` has it.
const STALE: Duration = Duration::from_secs(10);
const REFRESH: Duration = Duration::from_secs(5);
