//! Puts what git would obey where git does not find it. All of it goes through open folders and
//! never through a link: another sandbox may still write there.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use gateway_names::hex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use crate::folder::{Folder, kind_of};

/// Renames an entry to `NAME.off-XXXX`. The command cannot know the new name before.
///
/// # Errors
/// The kernel's error. The entry is then unchanged.
pub fn put_off(project: &Path, path: &Path) -> io::Result<OsString> {
    let (folder, name) = Folder::around(project, path)?;
    let mut new = name.as_bytes().to_vec();
    new.truncate(LONGEST);
    new.extend(OFF);
    new.extend(unforeseen()?.into_bytes());
    let new = OsString::from_vec(new);
    folder.rename(name, &folder, &new)?;
    Ok(new)
}

/// Whether a repository was put off: it is none unless a person goes into it.
pub fn is_off(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.starts_with(&[b".git", OFF].concat())
}

/// Moves a file, a link or a folder to the state's folder, and returns its new path.
///
/// # Errors
/// The error of the call that failed. The entry is then still in its place.
pub fn move_to(state: &Path, project: &Path, path: &Path) -> io::Result<PathBuf> {
    let (folder, name) = Folder::around(project, path)?;
    let place = state.join("aside").join(unforeseen()?);
    fs::create_dir_all(&place)?;
    let new = place.join(name);
    let found = folder.look(name)?;
    match kind_of(found) {
        FileType::RegularFile if found.st_size <= MOST_COPIED => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let from = rustix::fs::openat(&folder, name, flags, Mode::empty())?;
            io::copy(&mut File::from(from), &mut File::create_new(&new)?)?;
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&folder, name, Vec::new())?;
            std::os::unix::fs::symlink(OsStr::from_bytes(target.to_bytes()), &new)?;
        }
        // What is in it stays beside it, under a name that nobody reads.
        _ => return put_off(project, path).map(|new| path.with_file_name(new)),
    }
    rustix::fs::unlinkat(&folder, name, AtFlags::empty())?;
    Ok(new)
}

/// Letters that nobody can foresee.
///
/// # Errors
/// If there is no randomness.
pub fn unforeseen() -> io::Result<String> {
    let mut bytes = [0_u8; 4];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(hex(&bytes))
}

/// The largest file that is copied.
const MOST_COPIED: i64 = 64 << 20;
const OFF: &[u8] = b".off-";
/// How much of a name is kept when it is extended.
const LONGEST: usize = 200;
