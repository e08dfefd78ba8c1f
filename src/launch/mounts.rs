//! Carries out the [`MountPlan`]: the mounts that the sandbox's first process creates.
//!
//! The sandbox's `/` is a fresh one in memory. It contains only the paths in the plan and [`view`];
//! the host's is then detached. All of it is read-only, except the home directory, the temporary
//! files and the projects. Its parts are overlays if the kernel allows one, because an overlay
//! hides a name. A mount hides only a file: when a host program renames another file over it, the
//! kernel detaches the mount in every namespace, and the new secret becomes visible.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use super::bounds::MemoryBound;
use super::cover::cover;
use super::devices::Devices;
use super::failure::{AtStep, Failure, Step};
use super::mount_plan::{Home, MountPlan};
use super::overlay::{self, Layers};
use super::paths::below;
use super::tree::{NODEV, NOSUID, RDONLY, Tree, make_directories, put_part};
use super::{gitconfig, kept_home, syscall, view};

/// Files that were opened before the first process became the target user, which may have no access
/// to them.
#[derive(Debug)]
pub struct HostTrees {
    projects: Vec<Tree>,
    seen: Vec<Tree>,
    kept: Vec<Tree>,
}

impl HostTrees {
    /// Takes the trees of the projects, and of everything to show.
    ///
    /// # Errors
    /// A [`Step::Mounts`] failure that names the path.
    pub fn take(plan: &MountPlan) -> Result<Self, Failure> {
        // Nothing that the host mounts later may appear inside.
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).at(Step::Mounts, "make `/` private")?;
        let take = |paths: &[PathBuf]| -> Result<Vec<Tree>, Failure> {
            let tree =
                |path: &PathBuf| Tree::take(path).at(Step::Mounts, path.display().to_string());
            paths.iter().map(tree).collect()
        };
        Ok(Self {
            projects: take(&plan.projects)?,
            seen: take(&plan.seen)?,
            kept: kept_home::take(plan)?,
        })
    }
}

/// Builds the sandbox's file system, except for the gateway's own files and [`seal`], and enters
/// it.
///
/// # Errors
/// The step and the path that failed.
pub fn build(plan: &MountPlan, kept: HostTrees, memory: MemoryBound) -> Result<(), Failure> {
    let devices = Devices::take()?;
    let stage = Path::new(STAGE);
    let kernel = Tree::take(stage).at(Step::Mounts, STAGE)?;
    mount_stage(stage)?;
    let built_in = plan.built_in_hidden();
    let hidden: Vec<PathBuf> = plan.hidden.iter().chain(&built_in).cloned().collect();
    let mut layers = furnish(stage, memory, &hidden)?;
    link_system(stage)?;
    let mut all_by_name = show_system(&mut layers)?;
    for tree in &kept.seen {
        all_by_name &= show(tree, &mut layers)?;
    }
    all_by_name &= make_home(plan, &kept.kept, &mut layers)?;
    devices.build(stage, &below(stage, MEMORY).join(SHARED_PART))?;
    for tree in &kept.projects {
        tree.restrict(NOSUID | NODEV)
            .and_then(|()| tree.put(stage))
            .at(Step::Mounts, tree.path().display().to_string())?;
    }
    kernel
        .restrict(RDONLY | NOSUID | NODEV)
        .and_then(|()| kernel.put(stage))
        .at(Step::Mounts, "read-only /sys")?;
    // Its parts stay mounted in their places, and the overlays hold their layers themselves: no
    // process inside can reach these except through them.
    rustix::mount::unmount(below(stage, MEMORY), UnmountFlags::DETACH).at(Step::Mounts, MEMORY)?;
    fs::remove_dir(below(stage, MEMORY)).at(Step::Mounts, MEMORY)?;
    move_in(stage).at(Step::Mounts, "the new root")?;
    let left = if all_by_name {
        Vec::new()
    } else {
        [built_in, plan.sockets.clone()].concat()
    };
    // Everything in a kept folder is the command's own, whatever its name is.
    let left: Vec<PathBuf> = left
        .into_iter()
        .filter(|path| !plan.is_kept(path))
        .collect();
    cover(plan, &left)
}

/// Mounts the new root, and a fresh `/proc` in it.
fn mount_stage(stage: &Path) -> Result<(), Failure> {
    MemoryBound::OWN_FILES
        .mount(stage, 0o755, MountFlags::empty())
        .at(Step::Mounts, "a new root")?;
    let proc = stage.join("proc");
    fs::create_dir(&proc).at(Step::Proc, "/proc")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", &proc, "proc", flags, None).at(Step::Proc, "/proc")
}

/// Makes the links that give the system's directories their other names.
fn link_system(stage: &Path) -> Result<(), Failure> {
    for (path, target) in view::links() {
        let link = below(stage, &path);
        link.parent()
            .map_or(Ok(()), make_directories)
            .and_then(|()| std::os::unix::fs::symlink(target, &link))
            .at(Step::Mounts, path.display().to_string())?;
    }
    Ok(())
}

/// Shows the system's directories. Returns the same as [`see`].
fn show_system(layers: &mut Layers) -> Result<bool, Failure> {
    let mut all_by_name = true;
    for path in view::trees() {
        match Tree::take(&path) {
            Ok(tree) => all_by_name &= show(&tree, layers)?,
            // A path that this user may not reach is not shown.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error).at(Step::Mounts, path.display().to_string()),
        }
    }
    Ok(all_by_name)
}

fn show(tree: &Tree, layers: &mut Layers) -> Result<bool, Failure> {
    see(tree, layers).at(Step::Mounts, tree.path().display().to_string())
}

/// Makes the root itself read-only. This is the last step: from now on, only memory and projects
/// can be written.
///
/// # Errors
/// A [`Step::Mounts`] failure.
pub fn seal() -> Result<(), Failure> {
    for path in [c"/", c"/dev"] {
        syscall::make_read_only(path).at(Step::Mounts, "read-only root")?;
    }
    Ok(())
}

/// Creates one in-memory file system for everything that is writable and discarded at the end, and
/// puts its parts in their places. The rest is for overlay layers.
fn furnish(stage: &Path, bound: MemoryBound, hidden: &[PathBuf]) -> Result<Layers, Failure> {
    let memory = below(stage, MEMORY);
    fs::create_dir(&memory).at(Step::Mounts, MEMORY)?;
    bound
        .mount(&memory, 0o700, MountFlags::empty())
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

/// Puts a tree of the host in its place, read-only, without its hidden names, and without its
/// sockets.
///
/// Returns whether things are hidden by name. Where the kernel cannot overlay the tree, the tree
/// itself stays. [`cover`] then hides by mounts, which work as long as the host's
/// names do not change.
fn see(tree: &Tree, layers: &mut Layers) -> io::Result<bool> {
    let stage = Path::new(STAGE);
    tree.restrict(RDONLY | NOSUID | NODEV)?;
    tree.put(stage)?;
    let place = below(stage, tree.path());
    if !tree.is_directory() {
        return Ok(false);
    }
    overlay::unless_refused(layers.read(&place, tree.path(), &place))
}

/// Creates the home directory: in memory, with the visible parts of the user's own. Returns whether
/// everything hidden in it is hidden by name.
fn make_home(plan: &MountPlan, kept: &[Tree], layers: &mut Layers) -> Result<bool, Failure> {
    let stage = Path::new(STAGE);
    let home = plan.home.path();
    let place = below(stage, home);
    if let Home::Empty(_) = plan.home {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&place);
        made.at(Step::Home, home.display().to_string())?;
        kept_home::put(kept, stage)?;
        make_files(plan, &place)?;
        return Ok(true);
    }
    let part = below(stage, MEMORY).join(HOME);
    put_part(&part, &place).at(Step::Home, home.display().to_string())?;
    let mut all_by_name = true;
    let (in_kept, seen): (Vec<_>, Vec<_>) =
        plan.places_in_home().partition(|path| plan.is_kept(path));
    for seen in seen {
        all_by_name &= see_in_home(&seen, layers).at(Step::Home, seen.display().to_string())?;
    }
    kept_home::put(kept, stage)?;
    for seen in in_kept {
        let place =
            kept_home::place(plan, &seen, stage).at(Step::Home, seen.display().to_string())?;
        all_by_name &= place
            .see(&seen, layers)
            .at(Step::Home, seen.display().to_string())?;
    }
    let settings = place.join(".gitconfig");
    if let Some(identity) = gitconfig::identity(home).filter(|_| !settings.exists()) {
        fs::write(settings, identity).at(Step::Home, ".gitconfig")?;
    }
    make_files(plan, &place)?;
    Ok(all_by_name)
}

/// Makes the plan's files that the home does not show itself.
fn make_files(plan: &MountPlan, home: &Path) -> Result<(), Failure> {
    for (name, text) in &plan.files {
        let path = home.join(name);
        if path.symlink_metadata().is_err() {
            path.parent()
                .map_or(Ok(()), make_directories)
                .and_then(|()| fs::write(&path, text))
                .at(Step::Home, name.display().to_string())?;
        }
    }
    Ok(())
}

/// Puts one item of the home directory in its place: a directory as an overlay, a file as a copy.
/// Changes stay in memory. Returns the same as [`see`].
fn see_in_home(path: &Path, layers: &mut Layers) -> io::Result<bool> {
    let place = below(Path::new(STAGE), path);
    let Some((real, is_directory)) = layers.shown(path)? else {
        return Ok(true);
    };
    if !is_directory {
        place.parent().map_or(Ok(()), make_directories)?;
        fs::copy(&real, &place)?;
        return Ok(true);
    }
    make_directories(&place)?;
    let is_overlaid = overlay::unless_refused(layers.write(&real, &place))?;
    if !is_overlaid {
        let tree = Tree::take_from(&real, path)?;
        tree.restrict(RDONLY | NOSUID | NODEV)?;
        tree.put(Path::new(STAGE))?;
    }
    Ok(is_overlaid)
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

/// Where the new root is assembled: a directory of the host that is not needed meanwhile.
const STAGE: &str = "/sys";
/// The in-memory file system, inside it, until its parts are in their places.
const MEMORY: &str = "/.memory";
const HOME: &str = "home";
const LAYERS: &str = "layers";
/// The part for `/dev/shm`, which [`super::devices`] puts in its place.
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
