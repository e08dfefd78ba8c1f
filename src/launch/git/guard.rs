//! The mounts that guard git repositories.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};

use super::named::{inner_directories, named_by, used};
use super::places::{absent_submodules, place_of_a_new_one};
use super::repository::{APART, FIXED, GUARDED};
use super::seal::{Seal, put, take};
use super::words;
use crate::after::survey::{Kind, Survey};
use crate::failure::{At, Failure, Step};
use crate::mount_plan::MountPlan;
use crate::tree::{Tree, bind};

/// Guards every repository of the projects, the places where git outside would find a new one at
/// once, and the files that stay as they are.
///
/// # Errors
/// Returns a [`Step::Git`] failure that names what cannot be guarded.
pub fn guard(plan: &MountPlan) -> Result<(), Failure> {
    let survey = Survey::of(&plan.projects);
    let mut guard = Guard {
        plan,
        used: used(&survey),
        seal: Seal::of(&plan.projects),
    };
    if plan.guard_git {
        guard.git(&survey)?;
    }
    if plan.guard_tools {
        let mut files = survey.files_of_tools();
        files.try_for_each(|path| guard.seal.put_on_target(path))?;
    }
    // One that does not exist is set aside if the command makes it.
    let mut kept = plan.read_only.iter().filter(|path| path.exists());
    kept.try_for_each(|path| guard.seal.put_on(path))?;
    guard.seal.put_on_other_names()
}

struct Guard<'a> {
    plan: &'a MountPlan,
    /// The directories that `.git` files name, with the folders of these.
    used: BTreeMap<PathBuf, PathBuf>,
    seal: Seal<'a>,
}

impl Guard<'_> {
    fn git(&mut self, survey: &Survey) -> Result<(), Failure> {
        let plan = self.plan;
        let working_directory = plan.persistent.then_some(plan.working_directory.as_path());
        let place =
            working_directory.and_then(|one| place_of_a_new_one(&plan.projects, one, survey));
        let barred = absent_submodules(&plan.projects, survey);
        let mut directories = Vec::new();
        for (path, found) in &survey.repositories {
            if place.as_ref() == Some(path) || barred.contains(path) {
                continue;
            }
            self.seal.pin_above(path)?;
            match found.kind {
                Kind::Directory | Kind::Bare => directories.push(path),
                Kind::File => self.seal.put_on(path)?,
                Kind::Link => return Err(replaceable(path)),
            }
        }
        let mut directories = directories.into_iter();
        directories.try_for_each(|path| self.directory(path, false))?;
        if let Some(place) = &place {
            self.seal.pin_above(place)?;
            set_apart(place)?;
        }
        barred.iter().try_for_each(|git| self.bar(git))?;
        let mut named = plan.named_above.iter();
        named.try_for_each(|path| self.seal.put_on(path))
    }

    /// Puts something in the place of a missing `.git`, so that the command can make none.
    fn bar(&mut self, git: &Path) -> Result<(), Failure> {
        let socket = || {
            let mode = Mode::RUSR | Mode::WUSR;
            Ok(rustix::fs::mknodat(CWD, git, FileType::Socket, mode, 0)?)
        };
        match make(git, socket)? {
            true => self.seal.put_on(git),
            false => Ok(()),
        }
    }

    /// Guards a repository's directory, and those of its submodules and of its worktrees in use.
    ///
    /// `is_linked` means that it is a worktree's directory, which takes settings and hooks from its
    /// `commondir`.
    fn directory(&mut self, git: &Path, is_linked: bool) -> Result<(), Failure> {
        let inner: Vec<Tree> = inner_directories(git, &self.used)
            .iter()
            .map(|path| take(path, path))
            .collect::<Result<_, Failure>>()?;
        let kept = [git.parent().unwrap_or(git), git].map(Path::to_owned);
        let named = named_by(git, &self.used, &self.plan.own_words)?;
        let named = words::present(&named, &self.plan.projects, &kept);
        bind(git, git, false)?;
        for guarded in GUARDED
            .iter()
            .filter(|guarded| !is_linked || guarded.in_linked)
        {
            let path = git.join(guarded.name);
            if is_there(&path)? || make_placeholder(&path, guarded.content)? {
                self.seal.put_on(&path)?;
            }
        }
        for path in FIXED.iter().map(|name| git.join(name)) {
            if is_there(&path)? {
                self.seal.put_on(&path)?;
            }
        }
        // In a worktree's directory, this file tells git which folder is the worktree.
        self.seal.put_on(&git.join("gitdir"))?;
        inner.iter().try_for_each(put)?;
        named.iter().try_for_each(|path| self.seal.put_on(path))?;
        let worktrees = git.join("worktrees");
        inner.iter().map(Tree::path).try_for_each(|path| {
            let is_linked = path.parent() == Some(&worktrees);
            self.directory(path, is_linked)
        })
    }
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

/// Creates an empty placeholder, and returns whether it is there.
fn make_placeholder(path: &Path, content: Option<&[u8]>) -> Result<bool, Failure> {
    make(path, || match content {
        None => fs::create_dir(path),
        Some(content) => fs::File::create_new(path).and_then(|mut file| file.write_all(content)),
    })
}

/// Creates a path, and returns whether it is there. If this user may not create it, the command may
/// not either.
fn make(path: &Path, make: impl Fn() -> io::Result<()>) -> Result<bool, Failure> {
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
