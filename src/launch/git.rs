//! Guards git repositories: what a person's own git reads and obeys outside is not the command's to write.
//!
//! git runs programs that its settings and hooks name, at a mere `git status`. Each such name in each repository of the
//! projects becomes a read-only mount; where there is no such name yet, an empty stand-in is made for the mount to lie on,
//! which [`super::after`] takes away again. What a commit writes stays writable.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MoveMountFlags, OpenTreeFlags};

use super::after::survey::{Kind, Survey};
use super::error::{At, Failure, Step};
use super::layout::Layout;
use super::mounts::bind;

/// Guards every repository of the projects, and the place of one that the working directory does not have yet.
///
/// # Errors
/// A [`Step::Git`] failure that names what cannot be guarded.
pub fn guard(layout: &Layout) -> Result<(), Failure> {
    let survey = Survey::of(&layout.projects);
    if layout.guard_git {
        let new = place_of_a_new_one(layout, &survey);
        let mut directories = Vec::new();
        for (path, found) in &survey.repositories {
            if new.as_ref() == Some(path) {
                continue;
            }
            pin_above(path, &layout.projects)?;
            match found.kind {
                Kind::Directory | Kind::Bare => directories.push(path),
                Kind::File => read_only(path)?,
                Kind::Link => return Err(replaceable(path)),
            }
        }
        let used: BTreeSet<PathBuf> = survey
            .repositories
            .iter()
            .filter(|(_, found)| found.kind == Kind::File)
            .filter_map(|(path, _)| directory_named_by(path))
            .collect();
        directories
            .into_iter()
            .try_for_each(|path| guard_directory(path, false, &used, layout))?;
        if let Some(place) = new {
            set_apart(&place)?;
        }
    }
    if layout.guard_tools {
        survey.files.keys().try_for_each(|path| read_only(path))?;
    }
    Ok(())
}

/// Gives the directory that a file `.git` names: that of a linked worktree or of a submodule.
pub fn directory_named_by(file: &Path) -> Option<PathBuf> {
    let content = line_of(file)?;
    let named = content.strip_prefix("gitdir:")?.trim();
    fs::canonicalize(file.parent()?.join(named)).ok()
}

/// Gives the repository outside the `projects` that the file `.git` of one belongs to, if that repository itself says so, too.
///
/// The command could have written the file, and whatever else lies where a command once could write. So what the file names
/// counts only in the place where git itself puts it: in the `worktrees` or the `modules` of a repository, which is what is
/// given, and which holds none of the projects.
pub fn outside(project: &Path, projects: &[&Path]) -> Option<PathBuf> {
    let file = project.join(".git");
    let directory = directory_named_by(&file)?;
    let given = match line_of(&directory.join("gitdir")) {
        Some(back) => {
            let common =
                fs::canonicalize(directory.join(line_of(&directory.join("commondir"))?.trim())).ok()?;
            let is_ours =
                fs::canonicalize(directory.join(back.trim())).ok()? == fs::canonicalize(&file).ok()?;
            let is_in_place = directory.parent()? == common.join("worktrees");
            (is_ours && is_in_place && is_repository(&common)).then_some(common)?
        }
        None => {
            let back = settings(&directory).ok()?;
            let back = &back.iter().find(|(key, _)| key == "worktree")?.1;
            let is_ours = fs::canonicalize(directory.join(back)).ok()? == project;
            let is_in_place = directory.ancestors().any(|above| {
                above.ends_with("modules") && above != directory && above.parent().is_some_and(is_repository)
            });
            (is_ours && is_in_place && is_repository(&directory)).then_some(directory.clone())?
        }
    };
    let is_apart = |project: &&Path| !directory.starts_with(project) && !project.starts_with(&given);
    projects.iter().all(is_apart).then_some(given)
}

/// Whether git takes a directory for a repository (`is_git_directory` in git's setup.c).
fn is_repository(directory: &Path) -> bool {
    has_head(directory)
        && ["objects", "refs"]
            .iter()
            .all(|name| directory.join(name).is_dir())
}

/// Reads a file that a command may have made: a regular one, no link, and no more than a bound.
///
/// # Errors
/// What opening it says, or that it is no such file.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let mut content = Vec::new();
    if file.metadata()?.is_file() {
        file.take(FILE_BYTES + 1).read_to_end(&mut content)?;
        if content.len() as u64 <= FILE_BYTES {
            return Ok(content);
        }
    }
    Err(ErrorKind::InvalidData.into())
}

fn line_of(path: &Path) -> Option<String> {
    String::from_utf8(read(path).ok()?).ok()
}

/// Guards a repository's directory, and those of the submodules and of the `used` worktrees in it.
///
/// `is_linked` says that it is a worktree's, which takes settings and hooks from where its `commondir` leads.
fn guard_directory(
    git: &Path,
    is_linked: bool,
    used: &BTreeSet<PathBuf>,
    layout: &Layout,
) -> Result<(), Failure> {
    let inner: Vec<Place> = inner_directories(git, used)
        .into_iter()
        .map(Place::take)
        .collect::<Result<_, Failure>>()?;
    let named = named_by_settings(git, layout)?;
    bind(git, git, false)?;
    for guarded in GUARDED.iter().filter(|guarded| !is_linked || guarded.in_linked) {
        let path = git.join(guarded.name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => return Err(replaceable(&path)),
            Ok(_) => {}
            Err(_) => {
                if !stand_in(&path, guarded.content)? {
                    continue;
                }
            }
        }
        read_only(&path)?;
    }
    for place in &inner {
        place.put()?;
    }
    for path in &named {
        pin_above(path, &layout.projects)?;
        read_only(path)?;
    }
    let worktrees = git.join("worktrees");
    inner.iter().try_for_each(|Place { path, .. }| {
        let is_linked = path.parent() == Some(&worktrees);
        guard_directory(path, is_linked, used, layout)
    })
}

/// The repositories in a repository's directory that stay writable: submodules', and worktrees that the projects have.
fn inner_directories(git: &Path, used: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut stack = vec![git.join("modules")];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            // A submodule's name may have slashes; its own submodules are found when it is guarded itself.
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && has_head(&path) => found.push(path),
                Ok(kind) if kind.is_dir() => stack.push(path),
                _ => {}
            }
        }
    }
    let worktrees = git.join("worktrees");
    found.extend(
        used.iter()
            .filter(|path| path.parent() == Some(&worktrees))
            .cloned(),
    );
    found
}

/// What the settings name by a path in the projects: hooks, included settings, filters.
fn named_by_settings(git: &Path, layout: &Layout) -> Result<BTreeSet<PathBuf>, Failure> {
    let top = git.parent().unwrap_or(git);
    let mut words: Vec<PathBuf> = settings(git)?
        .into_iter()
        .filter(|(key, _)| !UNOBEYED.contains(&key.as_str()))
        .filter_map(|(_, value)| Some(value.split_whitespace().next()?.trim_matches('"').into()))
        .collect();
    // A hook may be a link to a program of the project.
    let hooks = fs::read_dir(git.join("hooks")).into_iter().flatten().flatten();
    words.extend(
        hooks
            .filter(|hook| hook.path().is_symlink())
            .map(|hook| hook.path()),
    );
    let mut found = BTreeSet::new();
    for word in words {
        for base in [top, git] {
            let Ok(path) = fs::canonicalize(base.join(&word)) else {
                continue;
            };
            // husky's hooks in `.husky/_` run those beside that folder.
            let path = match path.parent() {
                Some(above) if path.ends_with("_") => above.to_owned(),
                _ => path,
            };
            let in_project = layout.projects.iter().any(|project| {
                path.starts_with(project) && !top.starts_with(&path) && !git.starts_with(&path)
            });
            if in_project && !path.starts_with(git) {
                found.insert(path);
            }
        }
    }
    Ok(found)
}

/// The keys and values of a repository's settings, as far as they stand on one line each.
fn settings(git: &Path) -> Result<Vec<(String, String)>, Failure> {
    let mut found = Vec::new();
    for path in ["config", "config.worktree"].map(|name| git.join(name)) {
        let text = match read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            text => text.at(Step::Git, path.display().to_string())?,
        };
        found.extend(
            String::from_utf8_lossy(&text)
                .lines()
                .filter_map(|line| line.rsplit(']').next()?.split_once('='))
                .map(|(key, value)| (key.trim().to_ascii_lowercase(), value.trim().to_owned())),
        );
    }
    Ok(found)
}

/// Where a repository would be made by `git init` in the working directory; `None` if a project's own holds it.
fn place_of_a_new_one(layout: &Layout, survey: &Survey) -> Option<PathBuf> {
    let directory = &layout.working_directory;
    let project = layout
        .projects
        .iter()
        .find(|project| layout.persistent && directory.starts_with(project))?;
    let covered = directory
        .ancestors()
        .take_while(|above| above.starts_with(project))
        .any(|above| {
            let own = above.join(".git");
            (survey.repositories.contains_key(&own) && !is_set_apart(&own))
                || survey.repositories.contains_key(above)
        });
    (!covered && directory.is_dir()).then(|| directory.join(".git"))
}

/// Whether a directory `.git` is one that [`guard`] made, in which a launch that was killed left a new repository.
pub fn is_set_apart(git: &Path) -> bool {
    git.join(APART).is_dir() && !has_head(git)
}

/// Whether a directory may be a repository's; a link to a reference that is not there yet is a head, too.
fn has_head(git: &Path) -> bool {
    fs::symlink_metadata(git.join("HEAD")).is_ok()
}

/// Whether a file of a repository's directory says no more than a stand-in of [`guard`] does.
pub fn is_stand_in(path: &Path) -> bool {
    GUARDED
        .iter()
        .filter(|guarded| path.ends_with(guarded.name))
        .filter_map(|guarded| guarded.content)
        .any(|content| {
            let fits = fs::symlink_metadata(path)
                .is_ok_and(|found| found.is_file() && found.len() == content.len() as u64);
            fits && fs::read(path).is_ok_and(|found| found == content)
        })
}

/// Lets the command see a directory inside `.git` as `.git`: what it makes there is no repository for git outside.
fn set_apart(git: &Path) -> Result<(), Failure> {
    let apart = git.join(APART);
    for path in [git, &apart] {
        if fs::symlink_metadata(path).is_err() && !stand_in(path, None)? {
            return Ok(());
        }
    }
    Place {
        path: git.to_owned(),
        ..Place::take(apart)?
    }
    .put()
}

/// Makes the directories above a repository mount points: they could be moved away, and others put in their places.
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
        .try_for_each(|above| Place::take(above.to_owned())?.put())
}

/// Whether something is mounted there already; where that cannot be told, one mount more does no harm.
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

/// A copy of a mount tree, and where it belongs.
struct Place {
    tree: OwnedFd,
    path: PathBuf,
}

impl Place {
    /// Takes what is at `path`, with all that is mounted below it.
    fn take(path: PathBuf) -> Result<Self, Failure> {
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let tree = rustix::mount::open_tree(CWD, &path, flags).at(Step::Git, path.display().to_string())?;
        Ok(Self { tree, path })
    }

    fn put(&self) -> Result<(), Failure> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&self.tree, c"", CWD, &self.path, flags)
            .at(Step::Git, self.path.display().to_string())
    }
}

/// Makes what is at `path` read-only, and its place its own. What a link names is meant: a link itself holds nothing.
fn read_only(path: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Ok(()),
        Ok(_) => bind(path, path, true),
        Err(_) => Ok(()),
    }
}

/// Makes an empty stand-in, and tells whether it could: where this user may not, neither may the command.
fn stand_in(path: &Path, content: Option<&[u8]>) -> Result<bool, Failure> {
    let make = || match content {
        None => fs::create_dir(path),
        Some(content) => fs::File::create_new(path).and_then(|mut file| file.write_all(content)),
    };
    let made = match make() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => with_leave_to_write(path, make),
        made => made,
    };
    match made {
        Ok(()) => Ok(true),
        // Another sandbox has made it meanwhile.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(true),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotADirectory
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error).at(Step::Git, path.display().to_string()),
    }
}

/// Does it again with the folder made writable, where it is the user's own: the command could make it so, too.
fn with_leave_to_write(path: &Path, make: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().ok_or(ErrorKind::PermissionDenied)?;
    let found = fs::metadata(folder)?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(found.mode() & 0o7777 | 0o700))?;
    let made = make();
    fs::set_permissions(folder, fs::Permissions::from_mode(found.mode() & 0o7777))?;
    made
}

fn replaceable(path: &Path) -> Failure {
    let why = format!(
        "`{}` is a link, in whose place the command could put settings that your own git obeys; with `--writable-git` nothing of git's is guarded",
        path.display()
    );
    Failure::new(Step::Git, why)
}

/// A name in a repository's directory that git obeys.
pub struct Guarded {
    /// The name.
    pub name: &'static str,
    /// What a stand-in file says, to no effect; `None` for a directory.
    pub content: Option<&'static [u8]>,
    /// Whether it has a meaning in the directory of a linked worktree.
    in_linked: bool,
}

/// What git obeys. `commondir` and `worktrees` lead it to other settings, `modules` holds those of submodules.
pub const GUARDED: &[Guarded] = &[
    Guarded {
        name: "config",
        content: Some(b""),
        in_linked: false,
    },
    Guarded {
        name: "config.worktree",
        content: Some(b""),
        in_linked: true,
    },
    Guarded {
        // git adds this to the directory's own path: it leads nowhere else.
        name: "commondir",
        content: Some(b"./\n"),
        in_linked: true,
    },
    Guarded {
        name: "hooks",
        content: None,
        in_linked: false,
    },
    Guarded {
        name: "modules",
        content: None,
        in_linked: true,
    },
    Guarded {
        name: "worktrees",
        content: None,
        in_linked: false,
    },
];

/// The directory in a new `.git` that the command sees as `.git`.
pub const APART: &str = "gateway";
/// How much of a file is read: settings are smaller, and what is larger is none.
const FILE_BYTES: u64 = 1 << 20;
/// Settings whose values may name a folder of the project that git does not obey.
const UNOBEYED: &[&str] = &[
    "url", "pushurl", "worktree", "fetch", "push", "merge", "remote", "name", "email",
];
