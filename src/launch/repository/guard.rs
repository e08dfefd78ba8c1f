//! The mounts that guard the files that git obeys, and placeholders for absent ones.

use std::fs::{self, File, FileTimes};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::AtFlags;

use super::record::{Guard, Repositories};
use crate::failure::{AtStep, Failure, Step};
use crate::folder::Folder;
use crate::tree::{Tree, bind, pin_link};

impl Repositories {
    /// Mounts the guarded files. Projects are the host's own folders here, and can be written.
    ///
    /// # Errors
    /// A [`Step::Git`] failure that names the file that cannot be guarded.
    pub fn guard(&self) -> Result<(), Failure> {
        for (path, guard) in &self.guards {
            let content = match guard {
                Guard::Pinned | Guard::ReadOnly => continue,
                Guard::File => Some(&b""[..]),
                Guard::Commondir => Some(COMMONDIR),
                Guard::Folder => None,
            };
            make_placeholder(path, content).at(Step::Git, path.display().to_string())?;
        }
        let mut guards = self.guards.iter();
        guards.try_for_each(|(path, guard)| mount(path, *guard))
    }

    /// Mounts again guarded files that a program of the host replaced.
    ///
    /// # Errors
    /// As [`Repositories::guard`].
    pub fn guard_again(&self) -> Result<(), Failure> {
        let mut guards = self.guards.iter();
        guards.try_for_each(|(path, guard)| {
            if is_mount_point(path) {
                Ok(())
            } else {
                mount(path, *guard)
            }
        })
    }

    /// Removes the placeholders. No other sandbox may need them.
    pub fn remove_placeholders(&self, projects: &[PathBuf]) {
        for (path, guard) in self.guards.iter().rev() {
            let project = projects.iter().find(|project| path.starts_with(project));
            if let Some(project) = project.filter(|_| *guard > Guard::ReadOnly && is_ours(path)) {
                // A placeholder that cannot be removed stays, and has no effect.
                let _ = remove(project, path);
            }
        }
    }
}

fn mount(path: &Path, guard: Guard) -> Result<(), Failure> {
    let place = || path.display().to_string();
    match (fs::symlink_metadata(path), guard) {
        (Err(_), _) => Ok(()),
        (Ok(found), _) if found.is_symlink() => pin_link(path).at(Step::Git, place()),
        (Ok(_), Guard::Pinned) => Tree::take(path)
            .and_then(|tree| tree.put(Path::new("/")))
            .at(Step::Git, place()),
        (Ok(_), _) => bind(path, path, true),
    }
}

/// Whether a path is a mount point.
fn is_mount_point(path: &Path) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let mask = rustix::fs::StatxFlags::MNT_ID;
    let mount = |path: &Path| {
        let found = rustix::fs::statx(rustix::fs::CWD, path, flags, mask).ok()?;
        Some(found.stx_mnt_id)
    };
    mount(path) != path.parent().and_then(mount)
}

/// Makes an empty file or folder at a free path. If this user may not, the command may not, either.
fn make_placeholder(path: &Path, content: Option<&[u8]>) -> io::Result<()> {
    let make = || match content {
        None => fs::create_dir(path),
        Some(content) => File::create_new(path).and_then(|mut file| file.write_all(content)),
    };
    let made = match make() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => with_leave(path, make),
        made => made,
    };
    match made {
        // This time identifies a placeholder, also after this process was killed.
        Ok(()) => {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(PLACEHOLDER_SECONDS as u64);
            File::open(path)?.set_times(FileTimes::new().set_modified(time))
        }
        Err(error) => match error.kind() {
            ErrorKind::AlreadyExists
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotADirectory => Ok(()),
            _ => Err(error),
        },
    }
}

/// Tries again with the folder made writable, if it is the user's own. The command could do that,
/// too.
fn with_leave(path: &Path, make: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().ok_or(ErrorKind::PermissionDenied)?;
    let found = fs::metadata(folder)?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mode = found.mode() & 0o7777;
    fs::set_permissions(folder, fs::Permissions::from_mode(mode | 0o700))?;
    let made = make();
    fs::set_permissions(folder, fs::Permissions::from_mode(mode))?;
    made
}

/// Whether a file is a placeholder, rather than the user's.
pub fn is_ours(path: &Path) -> bool {
    let Ok(found) = fs::symlink_metadata(path) else {
        return false;
    };
    let is_short = found.is_file() && found.len() <= COMMONDIR.len() as u64;
    let content = is_short.then(|| fs::read(path).ok()).flatten();
    let is_empty = content.is_some_and(|content| {
        if path.ends_with("commondir") {
            content == COMMONDIR
        } else {
            content.is_empty()
        }
    });
    found.mtime() == PLACEHOLDER_SECONDS && (found.is_dir() || is_empty)
}

fn remove(project: &Path, path: &Path) -> io::Result<()> {
    let (folder, name) = Folder::around(project, path)?;
    let flags = if path.is_dir() {
        AtFlags::REMOVEDIR
    } else {
        AtFlags::empty()
    };
    Ok(rustix::fs::unlinkat(&folder, name, flags)?)
}

/// The time of a placeholder's last change: the first day of 1990, before git.
const PLACEHOLDER_SECONDS: i64 = 631_152_000;
/// git appends this to the directory's own path, so it leads back there.
const COMMONDIR: &[u8] = b"./\n";
