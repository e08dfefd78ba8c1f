//! Files and folders that belong to this user alone, such as those of the gateway's state.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FallocateFlags, StatxFlags, statx};
use zeroize::Zeroizing;

use super::bad_file::BadFile;
use super::folders::{check_folders, trusted};

/// Creates a folder of mode 0700 with its parents, unless it exists, and checks that no other user
/// may replace its entries.
///
/// Nothing is created in a folder of another user: root with the home of a user would leave files
/// there that the user cannot change.
///
/// # Errors
/// Returns the cause as [`BadFile`].
pub fn private_folder(path: &Path) -> Result<(), BadFile> {
    let known = path.ancestors().find_map(|at| std::fs::metadata(at).ok());
    let owner = known.map_or(0, |about| about.uid());
    if !trusted(owner) {
        return Err(BadFile::Owner(owner));
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    Ok(check_folders(path)?)
}

/// Checks that a file is regular and this user's, and that no other user may read or replace it.
///
/// # Errors
/// Returns the cause as [`BadFile`].
pub fn check_private(path: &Path) -> Result<(), BadFile> {
    let about = std::fs::symlink_metadata(path)?;
    if !about.is_file() {
        return Err(BadFile::Irregular);
    }
    check_folders(path)?;
    private(about.uid(), about.mode())
}

/// Creates a file of mode 0600 with this content. Returns whether it did: an existing file is left
/// unchanged.
///
/// The content is whole and on the disk before the file has its name.
///
/// # Errors
/// The error of the file system.
pub fn create_private(path: &Path, content: &[u8]) -> io::Result<bool> {
    if std::fs::symlink_metadata(path).is_ok() {
        return Ok(false);
    }
    let linked = beside(path, content, 0o600, |beside| {
        std::fs::hard_link(beside, path)
    });
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Replaces a file by one of mode 0600 with this content, which is whole and on the disk before it
/// has its name.
///
/// # Errors
/// The error of the file system.
pub fn replace_private(path: &Path, content: &[u8]) -> io::Result<()> {
    beside(path, content, 0o600, |beside| std::fs::rename(beside, path))
}

/// Opens the file that a process locks before it changes the files beside it. Only this user may
/// open the lock file: a user who can open it can lock it.
///
/// # Errors
/// The error of the file system.
pub fn lock_file(path: &Path) -> io::Result<File> {
    let mut private = OpenOptions::new();
    private.create(true).truncate(false).read(true).write(true);
    private.mode(0o600).open(path)
}

/// Puts a file or folder aside, whole, together with SQLite's files of a database. Returns its new
/// path; `None` if it does not exist, or if an earlier one was put aside already.
///
/// # Errors
/// The error of the file system.
pub fn put_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    let aside = with_end(path, ASIDE);
    if path.symlink_metadata().is_err() || aside.symlink_metadata().is_ok() {
        return Ok(None);
    }
    // SQLite's files go first: a new database would take them for its own.
    for end in ["-journal", "-wal", "-shm", ""] {
        match std::fs::rename(with_end(path, end), with_end(&aside, end)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
    Ok(Some(aside))
}

/// Appends to a path, without a separator.
pub fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// The suffix of a file that was put aside.
pub const ASIDE: &str = ".aside";

/// Replaces a file by one of this content and mode, if `may` still agrees once the new file is on
/// the disk. Returns whether it did.
///
/// If the new file cannot be made or renamed, as over a mount, the content is written in place,
/// padded with blank lines: one write that no kill of the process divides.
///
/// # Errors
/// The error of the file system.
pub fn replace_if(
    path: &Path,
    content: &[u8],
    mode: u32,
    may: impl Fn() -> bool,
) -> io::Result<bool> {
    let replaced = beside(path, content, mode, |beside| {
        if may() {
            std::fs::rename(beside, path).map(|()| true)
        } else {
            Ok(false)
        }
    });
    if replaced.is_ok() {
        return replaced;
    }
    let file = OpenOptions::new().write(true).open(path)?;
    if !may() {
        return Ok(false);
    }
    let blank = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let blank = vec![b'\n'; blank.saturating_sub(content.len())];
    file.write_all_at(&Zeroizing::new([content, &blank].concat()), 0)?;
    file.sync_all()?;
    Ok(true)
}

/// Checks that [`replace_if`] could replace a file by one of this length, before anything can be
/// lost.
///
/// # Errors
/// The error of the file system.
pub fn check_replaceable(path: &Path, length: usize) -> io::Result<()> {
    let mount = |path: &Path| {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID);
        found.ok().map(|found| found.stx_mnt_id)
    };
    let is_mount = mount(path) != path.parent().and_then(mount);
    let in_place = |_| {
        let file = OpenOptions::new().write(true).open(path)?;
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        match rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, length) {
            // The file system reports a lack of room only on a write.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            done => Ok(done?),
        }
    };
    if is_mount {
        in_place(io::Error::from(io::ErrorKind::ResourceBusy))
    } else {
        beside(path, &vec![0; length], 0o600, |_| Ok(())).or_else(in_place)
    }
}

/// Writes a file next to `path`, and calls `name` to give it its final name.
fn beside<T>(
    path: &Path,
    content: &[u8],
    mode: u32,
    name: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let beside = with_end(path, &format!(".{:016x}", u64::from_le_bytes(random)));
    let named = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()?;
        name(&beside)
    })();
    // By now the file has its final name, or is useless.
    let _ = std::fs::remove_file(&beside);
    let named = named?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(named)
}

/// Checks that a file is this user's and private. A file of root is refused too: the gateway could
/// not keep it as it is.
fn private(owner: u32, mode: u32) -> Result<(), BadFile> {
    if owner != rustix::process::geteuid().as_raw() {
        return Err(BadFile::Owner(owner));
    }
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(BadFile::Exposed(mode & 0o777)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_file_is_created_once_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/key");
        private_folder(path.parent().unwrap()).unwrap();
        assert!(create_private(&path, b"first").unwrap());
        assert!(!create_private(&path, b"second").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        check_private(&path).unwrap();
        let left = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1);
    }

    #[test]
    fn what_others_may_use_is_not_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        create_private(&path, b"x").unwrap();
        for mode in [0o640, 0o604, 0o620, 0o601] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(check_private(&path), Err(BadFile::Exposed(_))));
        }
        let open = folder.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(
            private_folder(&open.join("state")),
            Err(BadFile::Replaceable(_))
        ));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(check_private(&link), Err(BadFile::Irregular)));
        assert!(!create_private(&link, b"y").unwrap());
    }
}
