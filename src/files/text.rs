//! Reads text files that no other user could have written.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::bad_file::BadFile;
use super::folders::{check_folders, trusted};

thread_local! {
    /// The files that this thread read, while [`traced`] runs.
    static TRACED: RefCell<Option<BTreeSet<PathBuf>>> = const { RefCell::new(None) };
}

/// Runs `done`, and returns the paths that it passed to [`shown`] on this thread, whether or not
/// they could be read.
pub fn traced<T>(done: impl FnOnce() -> T) -> (T, BTreeSet<PathBuf>) {
    TRACED.set(Some(BTreeSet::new()));
    let done = done();
    (done, TRACED.take().unwrap_or_default())
}

/// Reads a text file of at most `most_mib` MiB that belongs to root or to the gateway's own user.
/// Refuses it if everyone may write or replace it.
///
/// Symbolic links are followed, because orchestrators mount files through them. The checks apply to
/// the open file at their end.
///
/// A command in a sandbox may have written the text. It may be shown; [`super::read`] checks
/// whether it may take effect.
///
/// # Errors
/// Returns the cause as [`BadFile`].
pub fn shown(path: &Path, most_mib: u64) -> Result<String, BadFile> {
    TRACED.with_borrow_mut(|traced| traced.as_mut().map(|all| all.insert(path.to_owned())));
    let (file, about) = open(path)?;
    if about.mode() & 0o002 != 0 {
        return Err(BadFile::Writable);
    }
    let mut text = String::new();
    let most = most_mib << 20;
    if file.take(most + 1).read_to_string(&mut text)? as u64 > most {
        return Err(BadFile::Large(most_mib));
    }
    Ok(text)
}

/// Opens a file that belongs to root or to the gateway's own user, and that no other user may
/// replace.
///
/// # Errors
/// Returns the cause as [`BadFile`].
pub fn open(path: &Path) -> Result<(File, Metadata), BadFile> {
    // Non-blocking, so that a pipe cannot block the reader.
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(BadFile::Irregular);
    }
    if !trusted(about.uid()) {
        return Err(BadFile::Owner(about.uid()));
    }
    check_folders(path)?;
    Ok((file, about))
}
