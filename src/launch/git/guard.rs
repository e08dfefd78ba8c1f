//! The mounts that guard git repositories.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::named::{inner_directories, named_by, used};
use super::places::places;
use super::repository::{APART, FIXED, GUARDED};
use super::words;
use crate::after::survey::{Kind, Survey};
use crate::failure::{At, Failure, Step};
use crate::mount_plan::MountPlan;
use crate::tree::{Tree, bind};

/// Guards every repository of the projects, and the places where git outside would find a new one
/// at once.
///
/// # Errors
/// Returns a [`Step::Git`] failure that names what cannot be guarded.
pub fn guard(plan: &MountPlan) -> Result<(), Failure> {
    let survey = Survey::of(&plan.projects);
    if plan.guard_git {
        let working_directory = plan.persistent.then_some(plan.working_directory.as_path());
        let places = places(&plan.projects, working_directory, &survey);
        let mut directories = Vec::new();
        for (path, found) in &survey.repositories {
            if places.contains(path) {
                continue;
            }
            pin_above(path, &plan.projects)?;
            match found.kind {
                Kind::Directory | Kind::Bare => directories.push(path),
                Kind::File => read_only(path)?,
                Kind::Link => return Err(replaceable(path)),
            }
        }
        let used = used(&survey);
        directories
            .into_iter()
            .try_for_each(|path| guard_directory(path, false, &used, plan))?;
        for place in &places {
            pin_above(place, &plan.projects)?;
            set_apart(place)?;
        }
        for path in &plan.named_above {
            pin_above(path, &plan.projects)?;
            read_only(path)?;
        }
    }
    if plan.guard_tools {
        survey.files.keys().try_for_each(|path| read_only(path))?;
    }
    Ok(())
}

/// Keeps these files of the projects as they are, under their names. A file that does not exist is
/// set aside if the command makes it ([`crate::after`]).
///
/// # Errors
/// As [`guard`].
pub fn keep(files: &[PathBuf], projects: &[PathBuf]) -> Result<(), Failure> {
    for path in files.iter().filter(|path| path.exists()) {
        pin_above(path, projects)?;
        read_only(path)?;
    }
    Ok(())
}

/// Guards a repository's directory, and those of its submodules and of its `used` worktrees.
///
/// `is_linked` means that it is a worktree's directory, which takes settings and hooks from its
/// `commondir`.
fn guard_directory(
    git: &Path,
    is_linked: bool,
    used: &BTreeMap<PathBuf, PathBuf>,
    plan: &MountPlan,
) -> Result<(), Failure> {
    let inner: Vec<Tree> = inner_directories(git, used)
        .iter()
        .map(|path| take(path, path))
        .collect::<Result<_, Failure>>()?;
    let kept = [git.parent().unwrap_or(git), git].map(Path::to_owned);
    let named = named_by(git, used, &plan.own_words)?;
    let named = words::present(&named, &plan.projects, &kept);
    bind(git, git, false)?;
    for guarded in GUARDED
        .iter()
        .filter(|guarded| !is_linked || guarded.in_linked)
    {
        let path = git.join(guarded.name);
        if is_there(&path)? || make_placeholder(&path, guarded.content)? {
            read_only(&path)?;
        }
    }
    for path in FIXED.iter().map(|name| git.join(name)) {
        if is_there(&path)? {
            pin_above(&path, &plan.projects)?;
            read_only(&path)?;
        }
    }
    // In a worktree's directory, this file tells git which folder is the worktree.
    read_only(&git.join("gitdir"))?;
    inner.iter().try_for_each(put)?;
    for path in &named {
        pin_above(path, &plan.projects)?;
        read_only(path)?;
    }
    let worktrees = git.join("worktrees");
    inner.iter().map(Tree::path).try_for_each(|path| {
        let is_linked = path.parent() == Some(&worktrees);
        guard_directory(path, is_linked, used, plan)
    })
}

/// Shows the command a directory inside `.git` as `.git`. Git outside does not recognise what the
/// command creates there as a repository.
fn set_apart(git: &Path) -> Result<(), Failure> {
    let apart = git.join(APART);
    for path in [git, &apart] {
        if fs::symlink_metadata(path).is_err() && !make_placeholder(path, None)? {
            return Ok(());
        }
    }
    put(&take(&apart, git)?)
}

/// Makes the directories above a repository mount points. Otherwise they could be moved away and
/// replaced.
fn pin_above(path: &Path, projects: &[PathBuf]) -> Result<(), Failure> {
    let Some(project) = projects.iter().find(|project| path.starts_with(project)) else {
        return Ok(());
    };
    let mut above: Vec<&Path> = path
        .ancestors()
        .skip(1)
        .take_while(|above| above.starts_with(project) && above != project)
        .collect();
    above.reverse();
    above.retain(|above| !is_mount_point(above));
    above
        .into_iter()
        .try_for_each(|above| put(&take(above, above)?))
}

/// Whether something is already mounted there. If that is unknown, one more mount does no harm.
fn is_mount_point(path: &Path) -> bool {
    let mount = |path: &Path| {
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        let mask = rustix::fs::StatxFlags::MNT_ID;
        let found = rustix::fs::statx(rustix::fs::CWD, path, flags, mask).ok()?;
        (found.stx_mask & mask.bits() != 0).then_some(found.stx_mnt_id)
    };
    match (mount(path), path.parent().and_then(mount)) {
        (Some(own), Some(above)) => own != above,
        _ => false,
    }
}

/// Takes the tree at `from`, with everything mounted below it, to be put at `path`.
fn take(from: &Path, path: &Path) -> Result<Tree, Failure> {
    Tree::take_from(from, path).at(Step::Git, from.display().to_string())
}

fn put(tree: &Tree) -> Result<(), Failure> {
    tree.put(Path::new("/"))
        .at(Step::Git, tree.path().display().to_string())
}

/// Whether a file or a folder of a repository's directory exists.
///
/// # Errors
/// Returns a [`Step::Git`] failure if it is something else, in which the command could put what git
/// obeys.
fn is_there(path: &Path) -> Result<bool, Failure> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Err(replaceable(path)),
        Ok(found) if !found.is_file() && !found.is_dir() => Err(no_file(path)),
        found => Ok(found.is_ok()),
    }
}

/// Makes what is at `path` read-only, and pins its place. For a link this means its target, since
/// the link itself contains nothing.
fn read_only(path: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Ok(()),
        Ok(_) => bind(path, path, true),
        Err(_) => Ok(()),
    }
}

/// Creates an empty placeholder, and returns whether it could. If this user may not create it, the
/// command may not either.
fn make_placeholder(path: &Path, content: Option<&[u8]>) -> Result<bool, Failure> {
    let make = || match content {
        None => fs::create_dir(path),
        Some(content) => fs::File::create_new(path).and_then(|mut file| file.write_all(content)),
    };
    let made = match make() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            with_leave_to_write(path, make)
        }
        made => made,
    };
    match made {
        Ok(()) => Ok(true),
        // Another sandbox has created it meanwhile.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(true),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied
                    | ErrorKind::ReadOnlyFilesystem
                    | ErrorKind::NotADirectory
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error).at(Step::Git, path.display().to_string()),
    }
}

/// Tries again with the folder made writable, if it is the user's own. The command could make it
/// writable, too.
fn with_leave_to_write(path: &Path, make: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().ok_or(ErrorKind::PermissionDenied)?;
    let found = fs::metadata(folder)?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    fs::set_permissions(
        folder,
        fs::Permissions::from_mode(found.mode() & 0o7777 | 0o700),
    )?;
    let made = make();
    fs::set_permissions(folder, fs::Permissions::from_mode(found.mode() & 0o7777))?;
    made
}

fn no_file(path: &Path) -> Failure {
    let why = format!("`{}` is neither a file nor a folder", path.display());
    Failure::new(Step::Git, why)
}

fn replaceable(path: &Path) -> Failure {
    let why = format!(
        "`{}` is a link, in whose place the command could put settings that your own git obeys; with `--writable-git` nothing of git's is guarded",
        path.display()
    );
    Failure::new(Step::Git, why)
}
