//! Carries out the [`Layout`]: the mounts that the sandbox's first process creates.
//!
//! The sandbox's `/` is a fresh one in memory. It contains only what the layout and [`view`] list;
//! the host's is then detached. All of it is read-only, except the home directory, the temporary
//! files and the projects. Its parts are overlays where the kernel allows one, because an overlay
//! hides a name. A mount hides only a file: when a host program renames another file over it, the
//! kernel detaches the mount in every namespace, and the new secret becomes visible.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use super::bounds::{self, Room};
use super::error::{At, Failure, Step};
use super::layout::{Home, Layout};
use super::overlay::{self, Layers};
use super::{devices, git, gitconfig, syscall, view};

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

    /// Where it belongs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Restricts the whole tree for as long as it is mounted.
    ///
    /// # Errors
    /// `ENOSYS` before Linux 5.12.
    fn restrict(&self, attributes: u64) -> io::Result<()> {
        syscall::restrict_tree(&self.root, attributes)
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

/// What was opened before the first process became the target user, while it could still reach it.
#[derive(Debug)]
pub struct Kept {
    projects: Vec<Tree>,
    seen: Vec<Tree>,
}

impl Kept {
    /// Takes the trees of the projects, and of everything to show.
    ///
    /// # Errors
    /// A [`Step::Mounts`] failure that names the path.
    pub fn take(layout: &Layout) -> Result<Self, Failure> {
        // Nothing that the host mounts later may appear inside.
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).at(Step::Mounts, "make `/` private")?;
        let take = |paths: &[PathBuf]| -> Result<Vec<Tree>, Failure> {
            let tree =
                |path: &PathBuf| Tree::take(path).at(Step::Mounts, path.display().to_string());
            paths.iter().map(tree).collect()
        };
        Ok(Self {
            projects: take(&layout.projects)?,
            seen: take(&layout.seen)?,
        })
    }
}

/// Builds the sandbox's file system, except for the gateway's own files and [`seal`], and enters
/// it.
///
/// # Errors
/// The step and the path that failed.
pub fn build(layout: &Layout, kept: Kept, room: Room) -> Result<(), Failure> {
    let devices = devices::Devices::take()?;
    let kernel = Tree::take(Path::new(STAGE)).at(Step::Mounts, STAGE)?;
    let stage = Path::new(STAGE);
    let secure = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(
        "tmpfs",
        stage,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        Some(&*bounds::own_files()),
    )
    .at(Step::Mounts, "a new root")?;
    let proc = stage.join("proc");
    fs::create_dir(&proc).at(Step::Proc, "/proc")?;
    rustix::mount::mount("proc", &proc, "proc", secure, None).at(Step::Proc, "/proc")?;
    let built_in = layout.built_in_hidden();
    let hidden: Vec<PathBuf> = layout.hidden.iter().chain(&built_in).cloned().collect();
    let mut layers = furnish(stage, room, &hidden)?;
    for (path, target) in view::links() {
        let link = below(stage, &path);
        link.parent()
            .map_or(Ok(()), make_directories)
            .and_then(|()| std::os::unix::fs::symlink(target, &link))
            .at(Step::Mounts, path.display().to_string())?;
    }
    let mut all_by_name = true;
    let mut show = |tree: &Tree| -> Result<(), Failure> {
        all_by_name &= see(tree, &mut layers).at(Step::Mounts, tree.path.display().to_string())?;
        Ok(())
    };
    for path in view::trees() {
        match Tree::take(&path) {
            Ok(tree) => show(&tree)?,
            // This user does not see what they may not reach.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error).at(Step::Mounts, path.display().to_string()),
        }
    }
    kept.seen.iter().try_for_each(&mut show)?;
    all_by_name &= make_home(layout, &mut layers)?;
    devices.build(stage, &below(stage, MEMORY).join(SHARED_PART))?;
    for tree in &kept.projects {
        tree.restrict(NOSUID | NODEV)
            .and_then(|()| tree.put(stage))
            .at(Step::Mounts, tree.path.display().to_string())?;
    }
    kernel
        .restrict(RDONLY | NOSUID | NODEV)
        .and_then(|()| kernel.put(stage))
        .at(Step::Mounts, "read-only /sys")?;
    // Its parts stay mounted in their places, and the overlays keep their layers themselves:
    // nothing inside can reach these except through them.
    rustix::mount::unmount(below(stage, MEMORY), UnmountFlags::DETACH).at(Step::Mounts, MEMORY)?;
    fs::remove_dir(below(stage, MEMORY)).at(Step::Mounts, MEMORY)?;
    move_in(stage).at(Step::Mounts, "the new root")?;
    let left = match all_by_name {
        true => Vec::new(),
        false => [built_in, layout.sockets.clone()].concat(),
    };
    cover_what_is_left(layout, &left)
}

/// Makes the root itself read-only. This is the last step: from now on, only memory and projects
/// can be written.
///
/// # Errors
/// A [`Step::Mounts`] failure.
pub fn seal() -> Result<(), Failure> {
    for path in [c"/", c"/dev"] {
        syscall::make_only_this_read_only(path).at(Step::Mounts, "read-only root")?;
    }
    Ok(())
}

/// Creates one in-memory file system for everything that is writable and discarded at the end, and
/// puts its parts in their places. The rest of it is for overlay layers.
fn furnish(stage: &Path, room: Room, hidden: &[PathBuf]) -> Result<Layers, Failure> {
    let memory = below(stage, MEMORY);
    fs::create_dir(&memory).at(Step::Mounts, MEMORY)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(
        "tmpfs",
        &memory,
        "tmpfs",
        flags,
        Some(&*room.options(0o700)),
    )
    .at(Step::Mounts, MEMORY)?;
    for (name, mode) in PARTS {
        let part = memory.join(name);
        fs::create_dir(&part)
            .and_then(|()| fs::set_permissions(&part, fs::Permissions::from_mode(mode)))
            .at(Step::Mounts, name)?;
    }
    for (name, path) in PLACES {
        put_part(&memory.join(name), &below(stage, path)).at(Step::Mounts, path)?;
    }
    furnish_run(&below(stage, "/run")).at(Step::Mounts, "/run")?;
    Ok(Layers::new(memory.join(LAYERS), hidden))
}

/// Binds a part of the memory to its place.
///
/// # Errors
/// The errors of `mkdir` and `mount`.
pub fn put_part(part: &Path, place: &Path) -> io::Result<()> {
    make_directories(place)?;
    Ok(rustix::mount::mount_bind(part, place)?)
}

/// Puts a tree of the host in its place, read-only, without what is hidden in it, and without its
/// sockets.
///
/// Returns whether things are hidden by name. Where the kernel cannot overlay the tree, the tree
/// itself stays. [`cover_what_is_left`] then hides by mounts, which work as long as the host's
/// names do not change.
fn see(tree: &Tree, layers: &mut Layers) -> io::Result<bool> {
    let stage = Path::new(STAGE);
    tree.restrict(RDONLY | NOSUID | NODEV)?;
    tree.put(stage)?;
    let place = below(stage, &tree.path);
    if !tree.is_directory {
        return Ok(false);
    }
    match layers.read(&place, &tree.path, &place) {
        Ok(()) => Ok(true),
        Err(error) if overlay::is_refusal(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates the home directory: in memory, with what is visible of the user's own. Returns whether
/// everything hidden in it is hidden by name.
fn make_home(layout: &Layout, layers: &mut Layers) -> Result<bool, Failure> {
    let stage = Path::new(STAGE);
    let home = layout.home.path();
    let place = below(stage, home);
    if let Home::Empty(_) = layout.home {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&place);
        made.at(Step::Home, home.display().to_string())?;
        return Ok(true);
    }
    let part = below(stage, MEMORY).join(HOME);
    put_part(&part, &place).at(Step::Home, home.display().to_string())?;
    let mut all_by_name = true;
    for seen in layout.places_in_home() {
        all_by_name &= see_in_home(&seen, layers).at(Step::Home, seen.display().to_string())?;
    }
    let settings = place.join(".gitconfig");
    if let Some(identity) = gitconfig::identity(home).filter(|_| !settings.exists()) {
        fs::write(settings, identity).at(Step::Home, ".gitconfig")?;
    }
    Ok(all_by_name)
}

/// Puts one item of the home directory in its place: a directory as an overlay, a file as a copy.
/// Changes stay in memory. Returns the same as [`see`].
fn see_in_home(path: &Path, layers: &mut Layers) -> io::Result<bool> {
    let place = below(Path::new(STAGE), path);
    // A link shows its target.
    let Ok(real) = fs::canonicalize(path) else {
        return Ok(true);
    };
    let found = fs::metadata(&real)?;
    if layers.hide(path) || layers.hide(&real) || !(found.is_file() || found.is_dir()) {
        return Ok(true);
    }
    if found.is_file() {
        place.parent().map_or(Ok(()), make_directories)?;
        fs::copy(&real, &place)?;
        return Ok(true);
    }
    make_directories(&place)?;
    match layers.write(&real, &place) {
        Ok(()) => Ok(true),
        Err(error) if overlay::is_refusal(&error) => {
            let tree = Tree::take_from(&real, path)?;
            tree.restrict(RDONLY | NOSUID | NODEV)?;
            tree.put(Path::new(STAGE))?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Makes the stage the root of this mount namespace, and detaches the host's.
fn move_in(stage: &Path) -> io::Result<()> {
    std::env::set_current_dir(stage)?;
    rustix::process::pivot_root(".", ".")?;
    // The host's root now lies over ours. Detaching it detaches every mount that was not put into
    // ours.
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")
}

/// Covers, in the new root, git's programs, what is hidden in projects, and what is `left` because
/// no overlay could leave it out.
fn cover_what_is_left(layout: &Layout, left: &[PathBuf]) -> Result<(), Failure> {
    git::guard(layout)?;
    for path in layout.hidden.iter().chain(left) {
        if let Ok(real) = fs::canonicalize(path) {
            mask(&real)?;
        }
    }
    pinned(layout)?.iter().try_for_each(|path| pin(path))
}

/// The directories above what may not be replaced that this user could rename, outermost first.
///
/// What a mount hides cannot be unlinked or renamed itself. But it could be moved away with its
/// directory, and another put there for the gateway's next start to read (threats M09).
fn pinned(layout: &Layout) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for path in layout.own.iter().filter(|path| layout.in_project(path)) {
        let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        if is_link {
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
            if renames && !is_root && layout.in_project(directory) && directory.is_dir() {
                found.push(directory.to_owned());
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Makes a directory a mount point, with everything mounted in it, so that it cannot be renamed or
/// removed.
fn pin(path: &Path) -> Result<(), Failure> {
    Tree::take(path)
        .and_then(|tree| tree.put(Path::new("/")))
        .at(Step::Hide, path.display().to_string())
}

/// Mounts an empty file or directory over `path`, if that exists.
fn mask(path: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => empty(path, 0),
        Ok(_) => {
            rustix::mount::mount_bind("/dev/null", path).at(Step::Hide, path.display().to_string())
        }
        Err(_) => Ok(()), // Not there, or not reachable: nothing to hide from this user.
    }
}

/// Covers a directory with an empty, read-only one.
fn empty(path: &Path, mode: u32) -> Result<(), Failure> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("tmpfs", path, "tmpfs", flags, Some(&*bounds::small(mode)))
        .at(Step::Hide, path.display().to_string())
}

/// Creates the directories in `/run` that programs expect.
fn furnish_run(run: &Path) -> io::Result<()> {
    let lock = run.join("lock");
    fs::create_dir(&lock)?;
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o1777))?;
    let own = below(run, format!("user/{}", own_uid()));
    fs::DirBuilder::new().mode(0o755).create(run.join("user"))?;
    fs::DirBuilder::new().mode(0o700).create(own)
}

/// The command's own `XDG_RUNTIME_DIR`.
pub fn runtime_directory() -> String {
    format!("/run/user/{}", own_uid())
}

fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Binds `from` over `onto`, read-only on request.
///
/// # Errors
/// A [`Step::Mounts`] failure.
pub fn bind(from: &Path, onto: &Path, read_only: bool) -> Result<(), Failure> {
    // With everything mounted in it: an outer sandbox's mounts cannot be left out.
    Tree::take_from(from, onto)
        .and_then(|tree| {
            if read_only {
                tree.restrict(RDONLY)?;
            }
            tree.put(Path::new("/"))
        })
        .at(Step::Mounts, onto.display().to_string())
}

/// The location of an absolute path below another root.
pub fn below(root: &Path, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Creates a directory and its parents, traversable by everybody.
pub fn make_directories(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
}

/// A path in the form that the kernel expects.
pub fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Where the new root is assembled: a place of the host that is not needed meanwhile.
const STAGE: &str = "/sys";
/// The memory, inside it, until its parts have their places.
const MEMORY: &str = "/.memory";
const HOME: &str = "home";
const LAYERS: &str = "layers";
/// The part for `/dev/shm`, which [`devices`] puts in its place.
const SHARED_PART: &str = "shared";
/// The parts of the memory, and their modes.
const PARTS: [(&str, u32); 6] = [
    ("run", 0o755),
    ("tmp", 0o1777),
    ("var-tmp", 0o1777),
    (SHARED_PART, 0o1777),
    (HOME, 0o700),
    (LAYERS, 0o700),
];
/// The places of those parts that every sandbox has.
const PLACES: [(&str, &str); 3] = [("run", "/run"), ("tmp", "/tmp"), ("var-tmp", "/var/tmp")];
const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
