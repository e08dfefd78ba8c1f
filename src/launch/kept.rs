//! Checks the folders that outlive a sandbox: they are bounded, and keep no credentials.
//!
//! A command wrote these folders, and another sandbox may write to them at the same time. So no
//! link in them is followed, and nothing is removed by its path.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use super::{detect, hide, repository};

/// Why a file was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It looks like a credential, or holds one.
    Credential,
    /// The folder would be too large with it.
    TooMuch,
}

/// Searches the folder of a home, and removes files with the known form of a credential other than
/// `ours`, entries that are no file, folder or link, and entries beyond the limits, which are not
/// read. Then puts off repositories in it that may run something. Returns what was removed,
/// relative to the folder.
///
/// # Errors
/// The error of the first folder that cannot be searched, file that cannot be removed, or
/// repository that cannot be put off.
pub fn sweep(folder: &Path, ours: &[String]) -> io::Result<Vec<(PathBuf, DropReason)>> {
    let mut sweep = Sweep {
        ours,
        bytes: 0,
        entries: 0,
        dropped: Vec::new(),
    };
    sweep.folder(open_own(CWD, folder)?, Path::new(""), 0)?;
    repository::sweep_home(folder, folder.parent().unwrap_or(folder))?;
    Ok(sweep.dropped)
}

struct Sweep<'a> {
    ours: &'a [String],
    /// The size of the kept files.
    bytes: u64,
    /// How many entries are kept.
    entries: usize,
    dropped: Vec<(PathBuf, DropReason)>,
}

impl Sweep<'_> {
    fn folder(&mut self, folder: OwnedFd, at: &Path, depth: usize) -> io::Result<()> {
        let mut entries = Dir::read_from(&folder)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                let path = at.join(OsStr::from_bytes(name.to_bytes()));
                self.entry(&folder, name, path, depth)?;
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        folder: &OwnedFd,
        name: &CStr,
        path: PathBuf,
        depth: usize,
    ) -> io::Result<()> {
        let found = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()), // It is gone.
            found => found?,
        };
        self.entries += 1;
        let size = u64::try_from(found.st_size).unwrap_or(u64::MAX);
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory if depth < DEEPEST && self.entries <= MOST_ENTRIES => {
                return match open_own(folder, name) {
                    // It was replaced.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
                    inner => self.folder(inner?, &path, depth + 1),
                };
            }
            FileType::Directory => return Err(too_large(&path)),
            _ if self.entries > MOST_ENTRIES => {
                remove(folder, name)?;
                self.dropped.push((path, DropReason::TooMuch));
                // Up to here, files are dropped one by one; beyond, the whole folder is forgotten.
                if self.dropped.len() > MOST_ENTRIES {
                    return Err(too_large(Path::new("")));
                }
            }
            FileType::Symlink => {}
            FileType::RegularFile if self.bytes.saturating_add(size) > MOST_BYTES => {
                remove(folder, name)?;
                self.dropped.push((path, DropReason::TooMuch));
            }
            FileType::RegularFile => {
                self.bytes += size;
                if !self.is_clean(folder, name, &path)? {
                    remove(folder, name)?;
                    self.dropped.push((path, DropReason::Credential));
                }
            }
            _ => remove(folder, name)?,
        }
        Ok(())
    }

    /// Whether a file holds no credential. A file with the name of a service's credential store is
    /// kept only if it holds a phantom of ours.
    fn is_clean(&self, folder: &OwnedFd, name: &CStr, path: &Path) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(true), // It is gone.
            Err(_) => return Ok(false), // What even its owner may not read hides something.
        };
        let mut content = Vec::new();
        let read = File::from(file).take(MOST_BYTES).read_to_end(&mut content);
        if read.is_err() {
            return Ok(false);
        }
        let is_store = hide::IN_HOME.iter().any(|store| Path::new(store) == path);
        if !is_store && !detect::holds_issued_credential(&content) {
            return Ok(true);
        }
        let has_ours = self.blank_ours(&mut content);
        Ok((has_ours || !is_store) && !detect::holds_issued_credential(&content))
    }

    /// Overwrites our phantoms. Returns whether the content had one.
    fn blank_ours(&self, content: &mut [u8]) -> bool {
        let ours = self.ours.iter().map(String::as_bytes);
        let mut has_ours = false;
        for phantom in ours.filter(|one| !one.is_empty()) {
            let starts: Vec<usize> = memchr::memmem::find_iter(content, phantom).collect();
            for start in starts {
                has_ours = true;
                content[start..start + phantom.len()].fill(b' ');
            }
        }
        has_ours
    }
}

/// Removes an entry that is not a folder, if it still exists.
fn remove(folder: &OwnedFd, name: &CStr) -> io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        removed => Ok(removed?),
    }
}

/// Opens a folder, also if its owner has no permission for it.
pub(super) fn open_own(directory: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    if !Mode::from_raw_mode(rustix::fs::fstat(&found)?.st_mode).contains(Mode::RWXU) {
        // By descriptor: its name may mean another folder now.
        rustix::fs::chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), Mode::RWXU)?;
    }
    open(&found, ".")
}

fn open(directory: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

fn too_large(path: &Path) -> io::Error {
    let place = path.display();
    io::Error::other(format!("`{place}` is too deep, or one of too many folders"))
}

/// The limits for one project.
const MOST_BYTES: u64 = 256 << 20;
const MOST_ENTRIES: usize = 50_000;
const DEEPEST: usize = 64;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const OURS: &str = "ghp_C4n4ryC4n4ryC4n4ryC4n4ryC4n4ry0kPLHd";

    #[test]
    fn what_holds_a_credential_of_another_is_not_kept_and_no_link_is_followed() {
        let outside = tempfile::tempdir().unwrap();
        let other = "sk-ant-oat01-Zx81kQmLpTnWc5RjYb3HvGs7DfKe9AqUoX2";
        fs::write(outside.path().join("own"), other).unwrap();
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir_all(at(".codex/x")).unwrap();
        symlink(outside.path(), at(".codex/x/link")).unwrap();
        symlink(outside.path().join("own"), at(".codex/file")).unwrap();
        fs::write(at(".codex/auth.json"), format!("{{\"key\":\"{OURS}\"}}")).unwrap();
        fs::write(at(".codex/x/log"), format!("token {other}\n")).unwrap();
        fs::write(
            at(".codex/x/notes"),
            "sk-learn and key-value pairs, 42 re_tries",
        )
        .unwrap();
        let swept = sweep(home.path(), &[OURS.to_owned()]).unwrap();
        assert_eq!(swept, [(".codex/x/log".into(), DropReason::Credential)]);
        assert!(at(".codex/auth.json").exists() && at(".codex/x/notes").exists());
        assert!(outside.path().join("own").exists());
        // Without its phantom, the file of credentials is removed.
        let swept = sweep(home.path(), &[]).unwrap();
        assert_eq!(swept, [(".codex/auth.json".into(), DropReason::Credential)]);
    }

    #[test]
    fn a_socket_and_a_folder_without_end_are_not_kept() {
        let home = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(home.path().join("s")).unwrap();
        assert!(sweep(home.path(), &[]).unwrap().is_empty());
        assert!(!home.path().join("s").exists());
        // A folder without permission for its owner is searched like any other.
        fs::create_dir(home.path().join("closed")).unwrap();
        fs::write(
            home.path().join("closed/key"),
            "-----BEGIN PRIVATE KEY-----",
        )
        .unwrap();
        fs::set_permissions(
            home.path().join("closed"),
            fs::Permissions::from_mode(0o000),
        )
        .unwrap();
        assert_eq!(sweep(home.path(), &[]).unwrap().len(), 1);
        fs::create_dir_all(home.path().join("x/".repeat(DEEPEST + 2))).unwrap();
        assert!(sweep(home.path(), &[]).is_err());
    }
}
