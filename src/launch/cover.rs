//! Covers paths that overlays cannot leave out of the new root.

use std::fs;
use std::path::{Path, PathBuf};

use gateway_names::real_path;
use rustix::mount::MountFlags;

use super::bounds::MemoryBound;
use super::failure::{AtStep, Failure, Step};
use super::mount_plan::MountPlan;
use super::tree::Tree;

/// Covers, in the new root, the files that git would run, the hidden paths in projects, and `left`,
/// which no overlay could leave out.
///
/// # Errors
/// Returns a failure that names the path that cannot be covered.
pub fn cover(plan: &MountPlan, left: &[PathBuf]) -> Result<(), Failure> {
    plan.repositories.guard()?;
    let hidden = plan.hidden.iter().chain(left);
    for path in hidden.filter(|path| !plan.is_made(path)) {
        if let Ok(real) = real_path(path) {
            mask(&real)?;
        }
    }
    pinned(plan)?.iter().try_for_each(|path| pin(path))
}

/// Returns the directories above irreplaceable paths that this user could rename, outermost first.
///
/// A mount point cannot be unlinked or renamed itself. But it could be moved away with its
/// directory, and another put there for the gateway's next start to read (threats M09).
fn pinned(plan: &MountPlan) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for path in plan.own.iter().filter(|path| plan.in_project(path)) {
        let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        if is_link {
            let why = format!(
                "`{}` is a link, in whose place the command could put a file; name the file itself",
                path.display()
            );
            return Err(Failure::new(Step::Hide, why));
        }
        let real = real_path(path).unwrap_or_else(|_| path.clone());
        for directory in real.ancestors().skip(1) {
            let Some(parent) = directory.parent() else {
                continue;
            };
            let renames = rustix::fs::access(parent, rustix::fs::Access::WRITE_OK).is_ok();
            let is_root = plan.projects.iter().any(|project| project == directory);
            if renames && !is_root && plan.in_project(directory) && directory.is_dir() {
                found.push(directory.to_owned());
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Makes a directory a mount point, so that it cannot be renamed or removed. Keeps everything
/// mounted in it.
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
        Err(_) => Ok(()), // It does not exist or is unreachable, so there is nothing to hide from this user.
    }
}

/// Covers a directory with an empty, read-only one.
fn empty(path: &Path, mode: u32) -> Result<(), Failure> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    MemoryBound::SMALL
        .mount(path, mode, MountFlags::NOEXEC)
        .at(Step::Hide, path.display().to_string())
}
