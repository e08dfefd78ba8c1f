//! Carrying out the [`Layout`]: the mounts that the sandbox's first process makes.
//!
//! What must stay visible is first taken in hand as a detached mount tree, then its surroundings are covered, then it is
//! put back. Hiding is by name (overlay whiteouts) wherever a host program may replace a file by renaming another over
//! it: a mount on a file would then be detached by the kernel, in every namespace, and the new secret seen.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};

use super::bounds::{self, Room, Share};
use super::error::{At, Failure, Step};
use super::layout::{Home, Layout};
use super::{devices, git, hide, overlay, syscall};

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
    /// What `open_tree` says: `ENOENT`, `EACCES`, `EINVAL` for a tree of another namespace.
    pub fn take(path: &Path) -> io::Result<Self> {
        Self::take_from(path, path)
    }

    /// Takes the tree at `from`, to be put at `path`.
    ///
    /// # Errors
    /// As [`Tree::take`].
    pub fn take_from(from: &Path, path: &Path) -> io::Result<Self> {
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let root = rustix::mount::open_tree(CWD, from, flags)?;
        let mode = rustix::fs::fstat(&root)?.st_mode;
        let is_directory = rustix::fs::FileType::from_raw_mode(mode).is_dir();
        Ok(Self {
            root,
            path: path.to_owned(),
            is_directory,
        })
    }

    /// Puts the tree in its place, making the place if a fresh file system now covers it.
    ///
    /// # Errors
    /// What `mkdir` and `move_mount` say.
    pub fn put(&self) -> io::Result<()> {
        if self.is_directory {
            make_directories(&self.path)?;
        } else {
            if let Some(parent) = self.path.parent() {
                make_directories(parent)?;
            }
            if !fs::exists(&self.path)? {
                fs::File::create(&self.path)?;
            }
        }
        rustix::mount::move_mount(
            &self.root,
            c"",
            CWD,
            &self.path,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )?;
        Ok(())
    }
}

/// What was taken in hand before the first process became the target user, while it could still reach it.
#[derive(Debug)]
pub struct Kept {
    projects: Vec<Tree>,
}

impl Kept {
    /// Takes the projects' trees.
    ///
    /// # Errors
    /// A [`Step::Mounts`] failure that names the project.
    pub fn take(layout: &Layout) -> Result<Self, Failure> {
        // Nothing that the host mounts later shall appear inside.
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).at(Step::Mounts, "make `/` private")?;
        let mut projects = Vec::new();
        for path in &layout.projects {
            projects.push(Tree::take(path).at(Step::Mounts, path.display().to_string())?);
        }
        Ok(Self { projects })
    }
}

/// Builds the sandbox's file system, but for the gateway's own files.
///
/// # Errors
/// The step and the path that failed.
pub fn build(layout: &Layout, kept: Kept, room: Room) -> Result<(), Failure> {
    let secure = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", "/proc", "proc", secure, None).at(Step::Proc, "/proc")?;
    let devices = devices::Devices::take()?;
    let mut rest = Vec::new();
    for path in hide::KEPT {
        if let Ok(tree) = Tree::take(Path::new(path)) {
            rest.push(tree);
        }
    }
    if let Home::Overlay(home) = &layout.home {
        overlay::cover_home(home, &layout.hidden, room)?;
        if hide::COVERED.iter().any(|covered| home.starts_with(covered)) {
            rest.push(Tree::take(home).at(Step::Home, home.display().to_string())?);
        }
    }
    let (by_name, by_mount) = hide_elsewhere_plan(layout);
    for (directory, names) in &by_name {
        if overlay::cover_directory(directory, names).is_err() {
            // No overlay over an overlay, nor over some file systems: then by mounts, which hold as long as the host's
            // names stay what they are.
            names.iter().try_for_each(|name| mask(name))?;
        }
    }
    for path in hide::COVERED {
        cover(path, room)?;
    }
    for home in &layout.emptied {
        empty(home, 0o755)?;
    }
    devices.build(room)?;
    rest.iter()
        .try_for_each(|tree| tree.put().at(Step::Mounts, tree.path.display().to_string()))?;
    kept.projects
        .iter()
        .try_for_each(|tree| tree.put().at(Step::Mounts, tree.path.display().to_string()))?;
    furnish_run().at(Step::Mounts, "/run")?;
    if let Home::Empty(home) = &layout.home {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(home)
            .at(Step::Home, home.display().to_string())?;
    }
    git::guard(layout)?;
    by_mount.iter().try_for_each(|path| mask(path))?;
    pinned(layout)?.iter().try_for_each(|path| pin(path))?;
    syscall::make_read_only(c"/sys").at(Step::Mounts, "read-only /sys")
}

/// Directories, each with the names in it that are to vanish.
type ByName = Vec<(PathBuf, Vec<PathBuf>)>;

/// What is to be hidden outside the overlay of the home directory, and is there: files by their names where their
/// directory can have an overlay, the rest by mounts.
///
/// A place in a project may be hidden only by a mount, since the project is the host's own directory.
fn hide_elsewhere_plan(layout: &Layout) -> (ByName, Vec<PathBuf>) {
    let in_overlay = |path: &Path| matches!(&layout.home, Home::Overlay(home) if path.starts_with(home));
    let in_project = |path: &Path| layout.projects.iter().any(|project| path.starts_with(project));
    let covered = |path: &Path| hide::COVERED.iter().any(|covered| path.starts_with(covered));
    let (mut by_name, mut by_mount) = (ByName::new(), Vec::new());
    for path in layout.hidden.iter().chain(&layout.sockets) {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let is_project = in_project(&real);
        let Ok(found) = fs::symlink_metadata(&real) else {
            continue;
        };
        if !is_project && (in_overlay(&real) || covered(&real)) {
            continue;
        }
        match real
            .parent()
            .filter(|parent| !found.is_dir() && !is_project && layout.may_have_overlay(parent))
        {
            None => by_mount.push(real),
            Some(parent) => match by_name.iter_mut().find(|(directory, _)| directory == parent) {
                Some((_, names)) => names.push(real),
                None => by_name.push((parent.to_owned(), vec![real])),
            },
        }
    }
    by_mount.dedup();
    (by_name, by_mount)
}

/// The directories above what may not be replaced that this user could rename, the outermost first.
///
/// What is hidden by a mount cannot be unlinked or renamed itself, but with its directory it could be moved away, and
/// another put there for the gateway's next start to read (threats M09).
fn pinned(layout: &Layout) -> Result<Vec<PathBuf>, Failure> {
    let in_project = |path: &Path| layout.projects.iter().any(|project| path.starts_with(project));
    let is_private = |path: &Path| {
        let in_overlay = matches!(&layout.home, Home::Overlay(home) if path.starts_with(home));
        (in_overlay || hide::COVERED.iter().any(|covered| path.starts_with(covered))) && !in_project(path)
    };
    let mut found = Vec::new();
    for path in &layout.own {
        let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        if is_link && in_project(path) {
            let why = format!(
                "`{}` is a link, in whose place the command could put a file; name the file itself",
                path.display()
            );
            return Err(Failure::new(Step::Hide, why));
        }
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        for directory in real.ancestors().skip(1) {
            let Some(parent) = directory.parent() else {
                continue;
            };
            let renames = rustix::fs::access(parent, rustix::fs::Access::WRITE_OK).is_ok();
            let is_root = layout.projects.iter().any(|project| project == directory);
            if renames && !is_root && !is_private(directory) && directory.is_dir() {
                found.push(directory.to_owned());
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Makes a directory a mount point, with everything that is mounted in it, so that it cannot be renamed or removed.
fn pin(path: &Path) -> Result<(), Failure> {
    Tree::take(path)
        .and_then(|tree| tree.put())
        .at(Step::Hide, path.display().to_string())
}

/// Mounts an empty file or directory over `path`, if there is something.
fn mask(path: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => empty(path, 0),
        Ok(_) => rustix::mount::mount_bind("/dev/null", path).at(Step::Hide, path.display().to_string()),
        Err(_) => Ok(()), // Not there, or not reachable: nothing to hide from this user.
    }
}

/// Covers a directory by an empty one that can only be read.
fn empty(path: &Path, mode: u32) -> Result<(), Failure> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("tmpfs", path, "tmpfs", flags, Some(&*bounds::small(mode)))
        .at(Step::Hide, path.display().to_string())
}

/// Covers a directory of the host's sockets and temporary files by a fresh one.
fn cover(path: &str, room: Room) -> Result<(), Failure> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if found.is_symlink() {
        return Ok(()); // `/var/tmp` -> `/tmp`: its target is covered, or is an ordinary directory.
    }
    let mode = if path == "/run" { 0o755 } else { 0o1777 };
    let options = room.options(Share::of(path), mode);
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", path, "tmpfs", flags, Some(&*options)).at(Step::Hide, path)
}

/// Makes the directories in `/run` that programs expect.
fn furnish_run() -> io::Result<()> {
    fs::create_dir_all("/run/lock")?;
    fs::set_permissions("/run/lock", fs::Permissions::from_mode(0o1777))?;
    let own = runtime_directory();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create("/run/user")?;
    match fs::DirBuilder::new().mode(0o700).create(own) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Gives the command's own `XDG_RUNTIME_DIR`.
pub fn runtime_directory() -> String {
    format!("/run/user/{}", rustix::process::getuid().as_raw())
}

/// Binds `from` over `onto`, read-only if so wanted.
///
/// # Errors
/// A [`Step::Mounts`] failure.
pub fn bind(from: &Path, onto: &Path, read_only: bool) -> Result<(), Failure> {
    let name = || onto.display().to_string();
    rustix::mount::mount_bind(from, onto).at(Step::Mounts, name())?;
    if read_only {
        let path = c_string(onto.as_os_str()).at(Step::Mounts, name())?;
        syscall::make_read_only(&path).at(Step::Mounts, format!("read-only {}", name()))?;
    }
    Ok(())
}

/// Makes a directory and its parents, open to be passed through.
pub fn make_directories(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Gives a path as the kernel wants it.
pub fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
