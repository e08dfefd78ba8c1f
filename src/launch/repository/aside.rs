//! Puts files that git would obey where git does not find them. All access goes through open
//! folders and never through a link: another sandbox may still write there.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use gateway_names::hex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::walk::{LONGEST, MARK, OFF, is_bare};
use crate::folder::{Folder, kind_of, open_file};

/// Renames an entry to `NAME.off-XXXX`. The command cannot predict the new name.
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

/// Makes git fail in a folder whose repository was put off and is still there, and say so, where it
/// would take the folder for a part of a repository above.
///
/// # Errors
/// The error of making it.
pub fn mark(project: &Path, path: &Path, new: &OsStr) -> io::Result<()> {
    let top = path.parent().unwrap_or(path);
    let is_repository = |above: &Path| {
        let has = |name: &CStr| above.join(OsStr::from_bytes(name.to_bytes())).exists();
        has(c".git") || is_bare(has)
    };
    let is_inner = top.iter().any(|part| part == ".git");
    if is_inner || !top.ancestors().skip(1).any(is_repository) {
        return Ok(());
    }
    let folder = match Folder::around(project, path) {
        Ok((folder, _)) if folder.look(new).is_ok() => folder,
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        // The command removed it.
        _ => return Ok(()),
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    let mut file = match rustix::fs::openat(&folder, c".git", flags, mode) {
        // Another one, which is judged by itself.
        Err(Errno::EXIST) => return Ok(()),
        made => File::from(made?),
    };
    file.write_all(&[MARK, new.as_bytes(), b"\n"].concat())
}

/// Moves a file or a link to the state's folder, and returns its new path. A folder, and a file for
/// which there is no `room`, is renamed where it is.
///
/// # Errors
/// The error of the call that failed. The entry is then still in its place.
pub fn move_to(state: &Path, project: &Path, path: &Path, room: &mut u64) -> io::Result<PathBuf> {
    let (folder, name) = Folder::around(project, path)?;
    let found = folder.look(name)?;
    let size = u64::try_from(found.st_size).unwrap_or(u64::MAX);
    let rest = room.checked_sub(size.saturating_add(OF_ENTRY));
    let is_moved = matches!(kind_of(found), FileType::RegularFile | FileType::Symlink);
    let Some(rest) = rest.filter(|_| is_moved) else {
        return put_off(project, path).map(|new| path.with_file_name(new));
    };
    *room = rest;
    let place = state.join("aside").join(unforeseen()?);
    fs::create_dir_all(&place)?;
    let new = place.join(name);
    if kind_of(found).is_symlink() {
        let target = rustix::fs::readlinkat(&folder, name, Vec::new())?;
        std::os::unix::fs::symlink(OsStr::from_bytes(target.to_bytes()), &new)?;
    } else {
        let from = open_file(&folder, name)?;
        // The command may still append to it.
        io::copy(&mut from.take(size), &mut File::create_new(&new)?)?;
    }
    rustix::fs::unlinkat(&folder, name, AtFlags::empty())?;
    Ok(new)
}

/// Returns random letters, which no process can predict.
///
/// # Errors
/// If the system gives no random bytes.
pub fn unforeseen() -> io::Result<String> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(hex(&bytes))
}

/// The space that an entry takes besides its content.
const OF_ENTRY: u64 = 4096;
