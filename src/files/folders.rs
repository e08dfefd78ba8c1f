//! Checks who may replace the entries of the folders on a path.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

use super::bad_file::Replaceable;

/// Checks that no folder on a file's path lets every user replace the file.
///
/// Links are followed one at a time, and the folders of each are checked. In a sticky folder like
/// `/tmp`, users cannot touch each other's entries, so an entry of a trusted owner is safe.
///
/// # Errors
/// Returns [`Replaceable`] with the folder or the entry.
pub fn check_folders(path: &Path) -> Result<(), Replaceable> {
    let mut at = PathBuf::from("/");
    let mut rest = parts_from_last(&std::path::absolute(path)?);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        match part.as_path().components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::Normal(name)) => {
                let entry = at.join(name);
                let about = fs::symlink_metadata(&entry)?;
                check_entry(&at, &entry, &about)?;
                if !about.is_symlink() {
                    at = entry;
                    continue;
                }
                links += 1;
                if links > MOST_LINKS {
                    return Err(Replaceable::Unknown(io::ErrorKind::Other));
                }
                rest.extend(parts_from_last(&fs::read_link(&entry)?));
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    Ok(())
}

fn parts_from_last(path: &Path) -> Vec<PathBuf> {
    let parts = path.components().rev();
    parts.map(|part| PathBuf::from(part.as_os_str())).collect()
}

fn check_entry(folder: &Path, entry: &Path, about: &Metadata) -> Result<(), Replaceable> {
    let of_folder = fs::metadata(folder)?;
    let mode = of_folder.mode();
    if mode & 0o002 == 0 || is_read_only(folder) {
        return Ok(());
    }
    if mode & STICKY == 0 {
        return Err(Replaceable::Folder(folder.to_owned()));
    }
    // In a sticky folder, the owner of an entry and the owner of the folder may remove the entry.
    for (path, about) in [(folder, &of_folder), (entry, about)] {
        if !trusted(about.uid()) {
            return Err(Replaceable::Entry {
                entry: path.to_owned(),
                owner: about.uid(),
            });
        }
    }
    Ok(())
}

/// Whether this mount makes the folder read-only for everyone. Orchestrators mount folders of mode
/// 0777 this way. A user who has the same files mounted writable elsewhere is trusted.
fn is_read_only(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Whether a file of this owner may configure the gateway: root or the gateway's own user.
#[must_use]
pub fn trusted(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}

/// The sticky bit: users may remove and rename only their own entries in the folder.
pub(super) const STICKY: u32 = 0o1000;
/// The number of links that Linux follows.
const MOST_LINKS: usize = 40;
