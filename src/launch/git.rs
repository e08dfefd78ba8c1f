//! Guards git repositories: the command cannot write what a person's own git reads and obeys
//! outside.
//!
//! git runs programs that its settings and hooks name, even at a mere `git status`. Each such name
//! in each repository of the projects becomes a read-only mount. Where the name does not exist yet,
//! an empty placeholder is created as the mount point, which [`super::after`] removes again. What a
//! commit writes stays writable.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::after::survey::{Kind, Survey};
use super::error::{At, Failure, Step};
use super::layout::Layout;
use super::mounts::{Tree, bind};
use super::named::{self, Named};

/// Guards every repository of the projects, and the place of one that the working directory does
/// not have yet.
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
        let used = used(&survey);
        directories
            .into_iter()
            .try_for_each(|path| guard_directory(path, false, &used, layout))?;
        if let Some(place) = new {
            set_apart(&place)?;
        }
        for path in &layout.named_above {
            pin_above(path, &layout.projects)?;
            read_only(path)?;
        }
    }
    if layout.guard_tools {
        survey.files.keys().try_for_each(|path| read_only(path))?;
    }
    Ok(())
}

/// The directory that a file `.git` names: that of a linked worktree or of a submodule.
pub fn directory_named_by(file: &Path) -> Option<PathBuf> {
    let content = line_of(file)?;
    let named = content.strip_prefix("gitdir:")?.trim();
    fs::canonicalize(file.parent()?.join(named)).ok()
}

/// The repository outside the `projects` that the file `.git` of one belongs to, if that repository
/// itself confirms it.
///
/// The command could have written the file, and anything else in places where a command once could
/// write. So what the file names counts only where git itself puts it: in the `worktrees` or the
/// `modules` of a repository that contains none of the projects. That repository is returned.
pub fn outside(project: &Path, projects: &[&Path]) -> Option<PathBuf> {
    let file = project.join(".git");
    let directory = directory_named_by(&file)?;
    let given = match line_of(&directory.join("gitdir")) {
        Some(back) => {
            let common =
                fs::canonicalize(directory.join(line_of(&directory.join("commondir"))?.trim()))
                    .ok()?;
            let is_ours = fs::canonicalize(directory.join(back.trim())).ok()?
                == fs::canonicalize(&file).ok()?;
            let is_in_place = directory.parent()? == common.join("worktrees");
            (is_ours && is_in_place && is_repository(&common)).then_some(common)?
        }
        None => {
            let settings = named::settings(&directory.join("config")).ok()?;
            let back = settings.iter().find(|setting| setting.key == "worktree")?;
            let is_ours = fs::canonicalize(directory.join(&back.value)).ok()? == project;
            let is_in_place = directory.ancestors().any(|above| {
                above.ends_with("modules")
                    && above != directory
                    && above.parent().is_some_and(is_repository)
            });
            (is_ours && is_in_place && is_repository(&directory)).then_some(directory.clone())?
        }
    };
    let is_apart =
        |project: &&Path| !directory.starts_with(project) && !project.starts_with(&given);
    projects.iter().all(is_apart).then_some(given)
}

/// Whether git treats a directory as a repository (`is_git_directory` in git's setup.c).
fn is_repository(directory: &Path) -> bool {
    has_head(directory)
        && ["objects", "refs"]
            .iter()
            .all(|name| directory.join(name).is_dir())
}

fn line_of(path: &Path) -> Option<String> {
    String::from_utf8(named::read(path).ok()?).ok()
}

/// Guards a repository's directory, and those of its submodules and of its `used` worktrees.
///
/// `is_linked` means that it is a worktree's directory, which takes settings and hooks from where
/// its `commondir` leads.
fn guard_directory(
    git: &Path,
    is_linked: bool,
    used: &BTreeMap<PathBuf, PathBuf>,
    layout: &Layout,
) -> Result<(), Failure> {
    let inner: Vec<Tree> = inner_directories(git, used)
        .iter()
        .map(|path| take(path, path))
        .collect::<Result<_, Failure>>()?;
    let kept = [git.parent().unwrap_or(git), git].map(Path::to_owned);
    let mut named = named::present(&named_by(git, used)?, &layout.projects, &kept);
    named.retain(|path| !path.starts_with(git));
    bind(git, git, false)?;
    for guarded in GUARDED
        .iter()
        .filter(|guarded| !is_linked || guarded.in_linked)
    {
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
    // It tells git which folder is the worktree, if this directory is a worktree's.
    read_only(&git.join("gitdir"))?;
    inner.iter().try_for_each(put)?;
    for path in &named {
        pin_above(path, &layout.projects)?;
        read_only(path)?;
    }
    let worktrees = git.join("worktrees");
    inner.iter().map(Tree::path).try_for_each(|path| {
        let is_linked = path.parent() == Some(&worktrees);
        guard_directory(path, is_linked, used, layout)
    })
}

/// The repositories in a repository's directory that stay writable: those of submodules, and
/// worktrees that the projects contain.
fn inner_directories(git: &Path, used: &BTreeMap<PathBuf, PathBuf>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut stack = vec![git.join("modules")];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            // A submodule's name may have slashes; its own submodules are found when it is guarded
            // itself.
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
        used.keys()
            .filter(|path| path.parent() == Some(&worktrees))
            .cloned(),
    );
    found
}

/// What the settings of a repository's directory name, and its hooks that are links to programs of
/// the project.
fn named_by(git: &Path, used: &BTreeMap<PathBuf, PathBuf>) -> Result<Vec<Named>, Failure> {
    let trees = used
        .iter()
        .filter(|(directory, _)| directory.starts_with(git));
    let bases: Vec<PathBuf> = [git.parent().unwrap_or(git), git]
        .into_iter()
        .chain(trees.map(|(_, tree)| tree.as_path()))
        .map(Path::to_owned)
        .collect();
    let files = ["config", "config.worktree"].map(|name| git.join(name));
    let mut found = named::named(&files, &bases)?;
    let hooks = fs::read_dir(git.join("hooks"))
        .into_iter()
        .flatten()
        .flatten();
    found.extend(
        hooks
            .filter(|hook| hook.path().is_symlink())
            .map(|hook| Named {
                path: hook.path(),
                is_whole: true,
            }),
    );
    Ok(found)
}

/// What settings from outside name: those of repositories above the projects, and the user's own
/// for every repository.
fn named_above(projects: &[PathBuf]) -> Result<Vec<Named>, Failure> {
    let mut found = Vec::new();
    let mut tops: BTreeSet<PathBuf> = projects.iter().cloned().collect();
    for top in projects
        .iter()
        .flat_map(|project| project.ancestors().skip(1))
    {
        let file = top.join(".git");
        let mut directories: Vec<PathBuf> = match fs::metadata(&file) {
            Ok(found) if found.is_dir() => vec![file],
            Ok(_) => directory_named_by(&file).into_iter().collect(),
            Err(_) => continue,
        };
        tops.insert(top.to_owned());
        let common = directories.first().and_then(|directory| {
            Some(directory.join(line_of(&directory.join("commondir"))?.trim()))
        });
        directories.extend(common);
        let used = directories
            .iter()
            .map(|directory| (directory.clone(), top.to_owned()));
        let used: BTreeMap<PathBuf, PathBuf> = used.collect();
        for directory in &directories {
            found.extend(named_by(directory, &used)?);
        }
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let own = home
        .iter()
        .flat_map(|home| OWN_SETTINGS.map(|name| home.join(name)));
    let files: Vec<PathBuf> = own.chain([PathBuf::from("/etc/gitconfig")]).collect();
    let tops: Vec<PathBuf> = tops.into_iter().collect();
    found.extend(named::named(&files, &tops)?);
    Ok(found)
}

/// What already exists in the projects and is named by settings outside, which the sandbox itself
/// does not see.
///
/// # Errors
/// A [`Step::Git`] failure if such settings cannot be read.
pub fn present_above(projects: &[PathBuf]) -> Result<BTreeSet<PathBuf>, Failure> {
    Ok(named::present(&named_above(projects)?, projects, &[]))
}

/// What settings name that does not exist yet: if it appears, it must not be obeyed.
pub fn absent(projects: &[PathBuf], survey: &Survey) -> BTreeSet<PathBuf> {
    // If these cannot be read, the command was not started.
    let mut found = named_above(projects).unwrap_or_default();
    let used = used(survey);
    let is_directory = |kind| matches!(kind, Kind::Directory | Kind::Bare);
    let mut stack: Vec<PathBuf> = survey
        .repositories
        .iter()
        .filter(|(_, found)| is_directory(found.kind))
        .map(|(path, _)| path.clone())
        .collect();
    while let Some(git) = stack.pop() {
        found.extend(named_by(&git, &used).unwrap_or_default());
        stack.extend(inner_directories(&git, &used));
    }
    named::absent(&found, projects)
}

/// The directories that files `.git` in the projects name, each with the folder of that file.
fn used(survey: &Survey) -> BTreeMap<PathBuf, PathBuf> {
    survey
        .repositories
        .iter()
        .filter(|(_, found)| found.kind == Kind::File)
        .filter_map(|(path, _)| Some((directory_named_by(path)?, path.parent()?.to_owned())))
        .collect()
}

/// Where `git init` in the working directory would create a repository; `None` if a repository of a
/// project already contains it.
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

/// Whether a directory `.git` is one that [`guard`] created, in which a killed launch left a new
/// repository.
pub fn is_set_apart(git: &Path) -> bool {
    git.join(APART).is_dir() && !has_head(git)
}

/// Whether a directory may be a repository's. A link to a reference that does not exist yet counts
/// as a head, too.
fn has_head(git: &Path) -> bool {
    fs::symlink_metadata(git.join("HEAD")).is_ok()
}

/// Whether a file of a repository's directory says no more than a placeholder of [`guard`].
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

/// Shows the command a directory inside `.git` as `.git`: to git outside, what it creates there is
/// not a repository.
fn set_apart(git: &Path) -> Result<(), Failure> {
    let apart = git.join(APART);
    for path in [git, &apart] {
        if fs::symlink_metadata(path).is_err() && !stand_in(path, None)? {
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

/// Whether something is already mounted there. If that cannot be determined, one more mount does no
/// harm.
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

/// Takes what is at a path, with everything mounted below it, to be put where it belongs.
fn take(from: &Path, path: &Path) -> Result<Tree, Failure> {
    Tree::take_from(from, path).at(Step::Git, from.display().to_string())
}

fn put(tree: &Tree) -> Result<(), Failure> {
    tree.put(Path::new("/"))
        .at(Step::Git, tree.path().display().to_string())
}

/// Makes what is at `path` read-only, and pins its place. For a link, this means its target: the
/// link itself contains nothing.
fn read_only(path: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Ok(()),
        Ok(_) => bind(path, path, true),
        Err(_) => Ok(()),
    }
}

/// Creates an empty placeholder, and returns whether it could: where this user may not, the command
/// may not either.
fn stand_in(path: &Path, content: Option<&[u8]>) -> Result<bool, Failure> {
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

/// Tries again with the folder made writable, if it is the user's own: the command could make it
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
    /// What a placeholder file contains, to no effect; `None` for a directory.
    pub content: Option<&'static [u8]>,
    /// Whether it has a meaning in the directory of a linked worktree.
    in_linked: bool,
}

/// What git obeys. `commondir` and `worktrees` lead it to other settings, `modules` contains those
/// of submodules.
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
/// Where a user's own settings are, in the home directory.
const OWN_SETTINGS: [&str; 2] = [".gitconfig", ".config/git/config"];
