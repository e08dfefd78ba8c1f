//! What commands leave in the folders that outlive a sandbox: bounded, and without credentials.
//!
//! A command wrote these folders, and another sandbox may write to them meanwhile. So no link in
//! them is followed, and nothing is removed by a path.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use super::{detect, hide};

/// Why a file was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It looks like a credential, or holds one.
    Credential,
    /// With it, the folder would be too large.
    TooMuch,
}

/// Looks through the folder of a home, and removes what is not kept: files that hold the known
/// shape of a credential other than `ours`, what is neither a file nor a folder nor a link, and
/// the oldest files beyond what fits. Returns what was removed, relative to the folder.
///
/// # Errors
/// The error of the first folder or file that cannot be looked through.
pub fn sweep(folder: &Path, ours: &[String]) -> io::Result<Vec<(PathBuf, Dropped)>> {
    let mut sweep = Sweep {
        ours,
        files: Vec::new(),
        dropped: Vec::new(),
    };
    sweep.folder(open_own(CWD, folder)?, Path::new(""), 0)?;
    sweep.bound(folder)?;
    Ok(sweep.dropped)
}

struct Sweep<'a> {
    ours: &'a [String],
    /// What stays: when it was changed, its size, and its path.
    files: Vec<(i64, u64, PathBuf)>,
    dropped: Vec<(PathBuf, Dropped)>,
}

impl Sweep<'_> {
    fn folder(&mut self, folder: OwnedFd, at: &Path, depth: usize) -> io::Result<()> {
        let names = Dir::read_from(&folder)?
            .map(|entry| Ok(entry?.file_name().to_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        for name in names
            .iter()
            .filter(|name| !matches!(name.to_bytes(), b"." | b".."))
        {
            let path = at.join(name.to_string_lossy().as_ref());
            let Ok(found) = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue; // It went meanwhile.
            };
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory if depth < DEEPEST => {
                    match open_own(&folder, name.as_c_str()) {
                        // It was replaced meanwhile.
                        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                        inner => self.folder(inner?, &path, depth + 1)?,
                    }
                }
                FileType::Directory => return Err(too_deep(&path)),
                FileType::Symlink => self.files.push((found.st_mtime, 0, path)),
                FileType::RegularFile if self.is_clean(&folder, name, &path)? => {
                    let size = u64::try_from(found.st_size).unwrap_or_default();
                    self.files.push((found.st_mtime, size, path));
                }
                kind => {
                    rustix::fs::unlinkat(&folder, name.as_c_str(), AtFlags::empty())?;
                    if kind == FileType::RegularFile {
                        self.dropped.push((path, Dropped::Credential));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a file holds no credential. One that services name for their credentials is kept
    /// only if it holds one of ours.
    fn is_clean(&self, folder: &OwnedFd, name: &std::ffi::CStr, path: &Path) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(folder, name, flags, Mode::empty()) else {
            return Ok(false); // A file that even its owner may not read hides something.
        };
        let mut content = Vec::new();
        File::from(file)
            .take(MOST_BYTES + 1)
            .read_to_end(&mut content)?;
        let mut has_ours = false;
        for phantom in self
            .ours
            .iter()
            .map(String::as_bytes)
            .filter(|one| !one.is_empty())
        {
            let starts: Vec<usize> = memchr::memmem::find_iter(&content, phantom).collect();
            for start in starts {
                has_ours = true;
                content[start..start + phantom.len()].fill(b' ');
            }
        }
        let is_store = hide::IN_HOME.iter().any(|store| Path::new(store) == path);
        Ok((has_ours || !is_store) && !detect::holds_issued_credential(&content))
    }

    /// Removes the oldest files until the rest fits.
    fn bound(&mut self, folder: &Path) -> io::Result<()> {
        self.files.sort_by(|one, other| other.cmp(one));
        let (mut bytes, mut count) = (0, 0);
        for (_, size, path) in std::mem::take(&mut self.files) {
            (bytes, count) = (bytes + size, count + 1);
            if bytes <= MOST_BYTES && count <= MOST_FILES {
                continue;
            }
            let mut directory = open(CWD, folder)?;
            for part in path.parent().into_iter().flat_map(Path::iter) {
                directory = open(&directory, part)?;
            }
            let name = path.file_name().unwrap_or_default();
            let _ = rustix::fs::unlinkat(&directory, name, AtFlags::empty());
            self.dropped.push((path, Dropped::TooMuch));
        }
        Ok(())
    }
}

/// Opens a folder that its owner may have closed to themselves.
fn open_own(directory: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    if !Mode::from_raw_mode(rustix::fs::fstat(&found)?.st_mode).contains(Mode::RWXU) {
        // By the open folder: what has its name now may be another.
        rustix::fs::chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), Mode::RWXU)?;
    }
    open(&found, ".")
}

fn open(directory: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

fn too_deep(path: &Path) -> io::Error {
    io::Error::other(format!("`{}` is too deep in its folder", path.display()))
}

/// The most that is kept of one project.
const MOST_BYTES: u64 = 256 << 20;
const MOST_FILES: usize = 50_000;
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
        assert_eq!(swept, [(".codex/x/log".into(), Dropped::Credential)]);
        assert!(at(".codex/auth.json").exists() && at(".codex/x/notes").exists());
        assert!(outside.path().join("own").exists());
        // Without its phantom, the file of credentials goes.
        let swept = sweep(home.path(), &[]).unwrap();
        assert_eq!(swept, [(".codex/auth.json".into(), Dropped::Credential)]);
    }

    #[test]
    fn a_socket_and_a_folder_without_end_are_not_kept() {
        let home = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(home.path().join("s")).unwrap();
        assert!(sweep(home.path(), &[]).unwrap().is_empty());
        assert!(!home.path().join("s").exists());
        // A folder that is closed to its owner is looked through like any other.
        fs::create_dir(home.path().join("closed")).unwrap();
        fs::write(
            home.path().join("closed/key"),
            "-----BEGIN PRIVATE KEY-----",
        )
        .unwrap();
        fs::set_permissions(home.path().join("closed"), fs::Permissions::from_mode(0)).unwrap();
        assert_eq!(sweep(home.path(), &[]).unwrap().len(), 1);
        fs::create_dir_all(home.path().join("x/".repeat(DEEPEST + 2))).unwrap();
        assert!(sweep(home.path(), &[]).is_err());
    }
}
