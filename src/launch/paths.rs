//! Paths by their text and by their real directories.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use gateway_names::real_path;

use super::failure::{AtStep, Failure, Step};

/// Returns the path of a name in its real directory; the name itself may be a link. Returns `None`
/// if there is no such directory.
pub fn by_name(path: &Path) -> Option<PathBuf> {
    Some(real_path(path.parent()?).ok()?.join(path.file_name()?))
}

/// Removes `..` from a path, judged by its text: links are not followed.
pub fn lexical(path: &Path) -> PathBuf {
    let mut place = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = place.pop(),
            part => place.push(part),
        }
    }
    place
}

/// Makes the first folder that can be entered the working directory, or else `/`.
pub fn enter_first<'p>(mut folders: impl Iterator<Item = &'p Path>) -> Result<&'p Path, Failure> {
    let is_entered = |folder: &&Path| std::env::set_current_dir(folder).is_ok();
    if let Some(folder) = folders.find(is_entered) {
        return Ok(folder);
    }
    std::env::set_current_dir("/").at(Step::WorkingDirectory, "/")?;
    Ok(Path::new("/"))
}

/// Returns the location of an absolute path below another root.
pub fn below(root: &Path, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Converts a path to the form that the kernel expects.
pub fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
