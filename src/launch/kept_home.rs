//! The folders of the home directory that outlive the sandbox, and paths of the user's own home
//! that are shown inside them.
//!
//! A command wrote these folders, and another of its sandboxes may write to them right now. So no
//! link in them is followed, and every name is looked up again below an open directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use super::failure::{AtStep, Failure, Step};
use super::home_files::HomeFile;
use super::mount_plan::MountPlan;
use super::overlay::{self, Layers};
use super::paths::below;
use super::tree::{NODEV, NOSUID, RDONLY, Tree};

/// A place in a kept folder: the open directory that it is in, and its name.
pub(super) struct KeptPlace {
    directory: OwnedFd,
    name: PathBuf,
}

/// Takes the folders, while this process can still reach them.
pub(super) fn take(plan: &MountPlan) -> Result<Vec<Tree>, Failure> {
    let home = plan.home.path();
    let take = |kept: &super::request::KeptFolder| {
        Tree::take_from(&kept.folder, &home.join(&kept.name))
            .at(Step::Mounts, kept.folder.display().to_string())
    };
    plan.kept.iter().map(take).collect()
}

/// Puts the folders in their places in the new home.
pub(super) fn put(kept: &[Tree], stage: &Path) -> Result<(), Failure> {
    for tree in kept {
        tree.restrict(NOSUID | NODEV)
            .and_then(|()| tree.put(stage))
            .at(Step::Home, tree.path().display().to_string())?;
    }
    Ok(())
}

/// Opens the directory above a path that is to be shown in a kept folder.
pub(super) fn place(plan: &MountPlan, seen: &Path, stage: &Path) -> io::Result<KeptPlace> {
    let roots = plan
        .kept
        .iter()
        .map(|kept| plan.home.path().join(&kept.name));
    let root = roots
        .into_iter()
        .find(|root| seen.starts_with(root) && root != seen);
    let root = root.ok_or(io::ErrorKind::InvalidInput)?;
    let directory = open(CWD, below(stage, &root).as_os_str())?;
    let within = seen.strip_prefix(&root).map_err(io::Error::other)?;
    KeptPlace::within(directory, within)
}

impl KeptPlace {
    /// Opens the directory above a path, below an open directory.
    fn within(mut directory: OwnedFd, path: &Path) -> io::Result<Self> {
        for part in path.parent().into_iter().flat_map(Path::iter) {
            directory = enter(&directory, part)?;
        }
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        Ok(Self { directory, name })
    }

    /// Shows a path of the user's own home here: a directory as an overlay, a file as a copy.
    /// Returns whether everything hidden in it is hidden by name.
    pub(super) fn see(&self, path: &Path, layers: &mut Layers) -> io::Result<bool> {
        let Some((real, is_directory)) = layers.shown(path)? else {
            return Ok(true);
        };
        if !is_directory {
            return self.copy(&real).map(|()| true);
        }
        let over = enter(&self.directory, self.name.as_os_str())?;
        let at = PathBuf::from(format!("/proc/self/fd/{}", over.as_raw_fd()));
        let is_overlaid = overlay::unless_refused(layers.write(&real, &at))?;
        if !is_overlaid {
            let tree = Tree::take_from(&real, path)?;
            tree.restrict(RDONLY | NOSUID | NODEV)?;
            tree.put_over(&over)?;
        }
        Ok(is_overlaid)
    }

    /// Copies this file to the place, and replaces an entry of that name.
    fn copy(&self, real: &Path) -> io::Result<()> {
        self.replace(File::open(real)?)
    }

    /// Replaces an entry of that name with a new file, atomically: another sandbox may read it. A
    /// folder of that name stays; it is the command's own.
    fn replace(&self, mut content: impl Read) -> io::Result<()> {
        let nonce = getrandom::u64().map_err(|_| io::ErrorKind::Other)?;
        let new = format!(".gateway-{nonce:016x}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.directory, &new, flags | OFlags::CLOEXEC, mode)?;
        let written = io::copy(&mut content, &mut File::from(file)).and_then(|_| {
            let renamed = rustix::fs::renameat(&self.directory, &new, &self.directory, &self.name);
            Ok(renamed?)
        });
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&self.directory, &new, AtFlags::empty());
        }
        match written {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(()),
            written => written,
        }
    }
}

/// Writes the gateway's files to the home directory.
///
/// # Errors
/// A [`Step::Home`] failure that names the file.
pub(super) fn write(files: &[HomeFile], plan: &MountPlan) -> Result<(), Failure> {
    let home = plan.home.path();
    for file in files {
        let path = home.join(&file.path);
        // A file in a project is the host's own.
        if plan.in_project(&path) {
            continue;
        }
        let within = |directory| KeptPlace::within(directory, &file.path);
        let written = open(CWD, home.as_os_str())
            .and_then(within)
            .and_then(|place| place.replace(&file.content[..]));
        // If the kernel cannot overlay a folder of the user's own home, the folder is read-only.
        match written {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {}
            written => written.at(Step::Home, path.display().to_string())?,
        }
    }
    Ok(())
}

/// Opens a directory, or makes one in place of another entry of that name.
fn enter(directory: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    if let Ok(found) = open(directory, name) {
        return Ok(found);
    }
    let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
    match rustix::fs::mkdirat(directory, name, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => open(directory, name),
        Err(error) => Err(error.into()),
    }
}

fn open(directory: impl std::os::fd::AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
}
