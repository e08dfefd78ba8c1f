//! Mount trees: taken from one place and put in another.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags};

use super::failure::{AtStep, Failure, Step};
use super::paths::below;
use super::syscall;

/// A detached copy of a mount tree, and where it belongs.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    path: PathBuf,
    is_directory: bool,
}

impl Tree {
    /// Takes the tree at `path`, to be put back there.
    ///
    /// # Errors
    /// The error of `open_tree`: `ENOENT`, `EACCES`, `EINVAL` for a tree of another namespace.
    pub fn take(path: &Path) -> io::Result<Self> {
        Self::take_from(path, path)
    }

    /// Takes the tree at `from`, to be put at `path`.
    ///
    /// # Errors
    /// As [`Tree::take`].
    pub fn take_from(from: &Path, path: &Path) -> io::Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        let root = rustix::mount::open_tree(CWD, from, flags)?;
        let mode = rustix::fs::fstat(&root)?.st_mode;
        let is_directory = rustix::fs::FileType::from_raw_mode(mode).is_dir();
        Ok(Self {
            root,
            path: path.to_owned(),
            is_directory,
        })
    }

    /// Returns where the tree belongs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the tree is a directory, rather than a single file.
    pub fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// Restricts the whole tree for as long as it is mounted.
    ///
    /// # Errors
    /// `ENOSYS` before Linux 5.12.
    pub fn restrict(&self, attributes: u64) -> io::Result<()> {
        syscall::restrict_tree(&self.root, attributes)
    }

    /// Puts the tree over an open directory.
    ///
    /// # Errors
    /// The errors of `move_mount`.
    pub fn put_over(&self, directory: impl AsFd) -> io::Result<()> {
        let empty =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        Ok(rustix::mount::move_mount(
            &self.root, c"", directory, c"", empty,
        )?)
    }

    /// Puts the tree in its place below `root`, and creates the place if needed.
    ///
    /// # Errors
    /// The errors of `mkdir` and `move_mount`.
    pub fn put(&self, root: &Path) -> io::Result<()> {
        let place = below(root, &self.path);
        if self.is_directory {
            make_directories(&place)?;
        } else {
            if let Some(parent) = place.parent() {
                make_directories(parent)?;
            }
            if !fs::exists(&place)? {
                fs::File::create(&place)?;
            }
        }
        rustix::mount::move_mount(
            &self.root,
            c"",
            CWD,
            &place,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )?;
        Ok(())
    }
}

/// Binds a part of the memory to its place.
///
/// # Errors
/// The errors of `mkdir` and `mount`.
pub fn put_part(part: &Path, place: &Path) -> io::Result<()> {
    make_directories(place)?;
    Ok(rustix::mount::mount_bind(part, place)?)
}

/// Binds `from` over `onto`, read-only on request.
///
/// # Errors
/// A [`Step::Mounts`] failure.
pub fn bind(from: &Path, onto: &Path, read_only: bool) -> Result<(), Failure> {
    // Includes everything mounted in it, because an outer sandbox's mounts cannot be left out.
    let bind = || {
        let tree = Tree::take_from(from, onto)?;
        if read_only {
            tree.restrict(RDONLY)?;
        }
        tree.put(Path::new("/"))
    };
    // A file that an editor just replaced was found by its name, and is gone from there.
    let is_replaced = |error: &io::Error| error.kind() == io::ErrorKind::NotFound && onto.exists();
    let mut bound = bind();
    for _ in 0..MOST_REPLACED {
        match &bound {
            Err(error) if is_replaced(error) => bound = bind(),
            _ => break,
        }
    }
    bound.at(Step::Mounts, onto.display().to_string())
}

/// Makes a link a mount point, so that it cannot be removed or replaced. Its target stays the same.
///
/// # Errors
/// The errors of `open_tree` and `move_mount`.
pub fn pin_link(link: &Path) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    let tree = rustix::mount::open_tree(CWD, link, flags)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, c"", CWD, link, flags)?)
}

/// Creates a directory and its parents, traversable by every user.
pub fn make_directories(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
}

/// How often a file may be replaced while it is bound.
const MOST_REPLACED: usize = 64;

/// Nothing can be written.
pub const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
/// No program gains rights.
pub const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
/// Device files open no device.
pub const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
