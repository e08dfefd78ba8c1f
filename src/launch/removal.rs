//! Removes files that commands left in folders of the gateway's own state.
//!
//! A command wrote these folders, and another sandbox may write to them at the same time. So no
//! link in them is followed, and no depth of folders needs more than a few open files.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir};
use rustix::io::Errno;
use rustix::path::Arg;

use super::kept::open_own;

/// Removes a folder with everything in it. A folder in a folder is moved up before it is emptied.
///
/// # Errors
/// The first error of the file system, or `TimedOut` if there is too much.
pub fn remove_tree(folder: &Path) -> io::Result<()> {
    Removal::of(open_own(CWD, folder)?).empty_top()?;
    Ok(rustix::fs::unlinkat(CWD, folder, AtFlags::REMOVEDIR)?)
}

/// Removes a file below a folder, if it exists, or a folder in its place.
///
/// # Errors
/// The error of the file system, or `TimedOut` if there is too much.
pub fn remove_file(folder: &Path, file: &Path) -> io::Result<()> {
    let mut at = open_own(CWD, folder)?;
    for part in file.parent().into_iter().flat_map(Path::iter) {
        at = match open_own(&at, part) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            inner => inner?,
        };
    }
    let name = CString::new(file.file_name().unwrap_or_default().as_bytes())?;
    let is_folder = !is_removed(&at, &name)?;
    let emptied = is_folder.then(|| Removal::of(at).empty(&name));
    emptied.unwrap_or(Ok(()))
}

struct Removal {
    top: OwnedFd,
    /// How many folders were moved up; the next one's name has this number.
    moved: u64,
    end: Instant,
}

impl Removal {
    fn of(top: OwnedFd) -> Self {
        let (moved, end) = (0, Instant::now() + WITHIN);
        Self { top, moved, end }
    }

    fn empty_top(&mut self) -> io::Result<()> {
        loop {
            let names = some_of(&self.top)?;
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                if !is_removed(&self.top, &name)? {
                    self.empty(&name)?;
                }
            }
        }
    }

    /// Removes a folder of the top, and moves the folders in it up.
    fn empty(&mut self, name: &CString) -> io::Result<()> {
        let folder = open_own(&self.top, name)?;
        loop {
            if Instant::now() > self.end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let names = some_of(&folder)?;
            if names.is_empty() {
                break;
            }
            for inner in names {
                if !is_removed(&folder, &inner)? {
                    self.move_up(&folder, &inner)?;
                }
            }
        }
        Ok(rustix::fs::unlinkat(&self.top, name, AtFlags::REMOVEDIR)?)
    }

    fn move_up(&mut self, folder: &OwnedFd, name: &CString) -> io::Result<()> {
        // A folder without permission for its owner cannot be moved.
        drop(open_own(folder, name)?);
        loop {
            self.moved += 1;
            let new = format!(".moved-{}", self.moved);
            match rustix::fs::renameat(folder, name, &self.top, new) {
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                moved => return Ok(moved?),
            }
        }
    }
}

/// Removes a file, a link or an empty folder. Returns whether it did.
fn is_removed(folder: impl AsFd + Copy, name: impl Arg + Copy) -> io::Result<bool> {
    let as_file = rustix::fs::unlinkat(folder, name, AtFlags::empty());
    let removed = match as_file {
        Err(Errno::ISDIR) => rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR),
        removed => removed,
    };
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns some names of a folder; none if it is empty.
fn some_of(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    let mut entries = Dir::read_from(folder)?;
    while let Some(entry) = entries.read() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
        if names.len() == AT_ONCE {
            break;
        }
    }
    Ok(names)
}

/// How long a removal may take. The rest is tried again later.
const WITHIN: Duration = Duration::from_secs(5);
/// How many names are read at once.
const AT_ONCE: usize = 1000;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_tree_is_removed_however_deep_it_is_and_no_link_is_followed() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("own"), "mine").unwrap();
        let parent = tempfile::tempdir().unwrap();
        let tree = parent.path().join("tree");
        fs::create_dir_all(tree.join(".moved-1/x")).unwrap();
        fs::write(tree.join(".moved-2"), "in the way").unwrap();
        symlink(outside.path(), tree.join("link")).unwrap();
        fs::create_dir_all(tree.join("closed/inner")).unwrap();
        fs::write(tree.join("closed/inner/file"), "").unwrap();
        fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        // Deeper than a process may have open files, and than a path may be long.
        let mut at = open_own(CWD, &tree).unwrap();
        for _ in 0..1500 {
            rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::RWXU).unwrap();
            at = open_own(&at, "d").unwrap();
        }
        // A slow disk needs several attempts, each of which continues where the last one stopped.
        while let Err(error) = remove_tree(&tree) {
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        assert!(!tree.exists());
        assert!(outside.path().join("own").exists());
    }

    #[test]
    fn a_file_is_removed_below_the_folder_alone() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("own"), "mine").unwrap();
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("a/folder/b")).unwrap();
        fs::write(home.path().join("a/file"), "copied").unwrap();
        symlink(outside.path(), home.path().join("b")).unwrap();
        for file in ["a/file", "a/folder", "b/own", "none/file"] {
            remove_file(home.path(), Path::new(file)).unwrap();
        }
        assert!(!home.path().join("a/file").exists());
        assert!(!home.path().join("a/folder").exists());
        assert!(outside.path().join("own").exists());
    }
}
