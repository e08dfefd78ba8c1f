//! Writes files that other programs read.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::Failure;

/// Replaces a file atomically: a reader sees either the old one or the new one.
///
/// # Errors
/// Returns a [`Failure`] that names the file.
pub fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), Failure> {
    WrittenFile::new(path, content, mode)?.map_or(Ok(()), WrittenFile::replace)
}

/// A file that was written as `NAME.new`, next to the one that it replaces. It is removed on drop.
pub struct WrittenFile {
    path: PathBuf,
    beside: PathBuf,
}

impl WrittenFile {
    /// Writes a file next to the one that it replaces; `None` if that has this content already.
    ///
    /// A file that a killed gateway left there is replaced, so that leftovers do not pile up.
    ///
    /// # Errors
    /// Returns a [`Failure`] that names the file.
    pub fn new(path: &Path, content: &[u8], mode: u32) -> Result<Option<Self>, Failure> {
        if holds(path, content).is_ok_and(|holds| holds) {
            return Ok(None);
        }
        // Renaming would fail only later, when other files are already in place.
        if std::fs::symlink_metadata(path).is_ok_and(|known| known.is_dir()) {
            return Err(unwritten(path, &ErrorKind::IsADirectory.into()));
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let written = Self {
            path: path.to_owned(),
            beside: beside.into(),
        };
        match written.write(content, mode) {
            Ok(()) => Ok(Some(written)),
            Err(error) => Err(unwritten(path, &error)),
        }
    }

    fn write(&self, content: &[u8], mode: u32) -> std::io::Result<()> {
        match std::fs::remove_file(&self.beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // A file or link of this name that another process made meanwhile is refused.
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&self.beside)?;
        file.write_all(content)
    }

    /// Replaces the file atomically: a reader sees either the old one or the new one.
    ///
    /// # Errors
    /// As [`WrittenFile::new`].
    pub fn replace(self) -> Result<(), Failure> {
        let replaced = std::fs::rename(&self.beside, &self.path);
        replaced.map_err(|error| unwritten(&self.path, &error))
    }
}

impl Drop for WrittenFile {
    fn drop(&mut self) {
        // The file is gone if it replaced the other.
        let _ = std::fs::remove_file(&self.beside);
    }
}

/// Whether a regular file has this content. Anyone who can write to the folder may have put
/// something else there: a pipe is not waited for, a link not followed, and a large file not read.
fn holds(path: &Path, content: &[u8]) -> std::io::Result<bool> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let (known, most) = (file.metadata()?, content.len() as u64);
    if !known.is_file() || known.len() != most {
        return Ok(false);
    }
    let mut held = Vec::with_capacity(content.len());
    file.take(most + 1).read_to_end(&mut held)?;
    Ok(held == content)
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::new(format!("`{}` cannot be written", path.display()));
    let failure = failure.because(error.to_string());
    match path.parent().filter(|folder| !folder.exists()) {
        Some(folder) => failure.next(format!("make the folder {}", folder.display())),
        None => failure,
    }
}
