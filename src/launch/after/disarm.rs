//! Disarms a repository that the command made, so that it can run no program, and removes the
//! placeholders from existing ones.
//!
//! All of it goes through open directories and never through a link: another sandbox may still
//! write there.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::folder::{Folder, To, kind_of, path_in};
use super::settings::harmless;
use super::stored::{aside, folder_for_aside, is_index_of_objects, is_of_bare, is_stored};
use super::survey::{Kind, Mark, Survey};
use super::walk::is_part;
use crate::git::{APART, GUARDED};

/// Sets aside whatever git would obey in a repository's directory, and keeps what git stores.
///
/// # Errors
/// Returns the error of the call that failed. The repository may then be unchanged.
fn disarm(project: &Path, git: &Path) -> io::Result<()> {
    disarm_directory(&Folder::open(project, git, To::Change)?, |_| false)
}

/// Does the same in a `.git` that another sandbox uses as its place, or that only seems to be one.
/// Leaves the place in it. Returns whether there was anything else.
///
/// # Errors
/// As [`disarm`].
pub fn disarm_around_place(project: &Path, git: &Path) -> io::Result<bool> {
    let directory = Folder::open(project, git, To::Change)?;
    let is_place = |name: &CStr| name.to_bytes() == APART.as_bytes();
    if directory.has_only(is_place)? {
        return Ok(false);
    }
    disarm_directory(&directory, is_place).map(|()| true)
}

/// Does the same in a directory that git treats as a bare repository. Fails if it also contains
/// other things.
///
/// # Errors
/// As [`disarm`].
fn disarm_bare(project: &Path, git: &Path) -> io::Result<()> {
    let directory = Folder::open(project, git, To::Change)?;
    match directory.has_only(is_of_bare)? {
        true => disarm_directory(&directory, |_| false),
        false => Err(Errno::NOTEMPTY.into()),
    }
}

/// Disarms a repository of any kind, or sets aside the entry by which git finds it. Returns that
/// entry and its new name then.
///
/// # Errors
/// As [`set_aside`].
pub fn disarm_or_set_aside(
    project: &Path,
    git: &Path,
    kind: Kind,
) -> io::Result<Option<(PathBuf, OsString)>> {
    let done = match kind {
        Kind::Directory => disarm(project, git),
        Kind::Bare => disarm_bare(project, git),
        Kind::File | Kind::Link => Err(ErrorKind::NotADirectory.into()),
    };
    match done {
        Ok(()) => Ok(None),
        Err(_) => set_aside_entry(project, git, kind),
    }
}

/// Sets aside the entry by which git finds a repository. Returns that entry and its new name.
///
/// # Errors
/// As [`set_aside`].
pub fn set_aside_entry(
    project: &Path,
    git: &Path,
    kind: Kind,
) -> io::Result<Option<(PathBuf, OsString)>> {
    let entry = match kind {
        Kind::Bare => git.join("HEAD"),
        Kind::Directory | Kind::File | Kind::Link => git.to_owned(),
    };
    set_aside(project, &entry).map(|new| Some((entry, new)))
}

/// Returns what makes a folder a repository, of what `is_new`.
///
/// # Errors
/// The kernel's error.
pub fn new_parts(
    project: &Path,
    folder: &Path,
    is_new: impl Fn(&Path, Mark) -> bool,
) -> io::Result<Vec<PathBuf>> {
    let open = Folder::open(project, folder, To::Read)?;
    let parts = open.names(usize::MAX, is_part)?.into_iter();
    let found = parts.filter_map(|name| Some((path_in(folder, &name), open.look(&*name).ok()?)));
    let new = found.filter(|(path, found)| is_new(path, Mark::from(*found)));
    Ok(new.map(|(path, _)| path).collect())
}

/// Disarms each repository in a folder that is no project, and removes git's links there. One that
/// is disarmed stays as it is.
///
/// # Errors
/// The first error, or one that says that not all was searched.
pub fn disarm_all(folder: &Path) -> io::Result<()> {
    let folder = &folder.canonicalize()?;
    let found = Survey::of(&[folder.to_owned()]);
    if let Some(missed) = found.unsearched().next() {
        let missed = missed.display();
        return Err(io::Error::other(format!("`{missed}` was not searched")));
    }
    for (git, repository) in &found.repositories {
        match disarm_or_set_aside(folder, git, repository.kind) {
            // It was moved with what was around it.
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    for link in found.links.keys().filter(|link| found.is_of_git(link)) {
        let _ = unlink(folder, link); // It was set aside, or is no link any more.
    }
    Ok(())
}

/// Renames an entry, so that git, or the tool that would obey it, does not find it. The command
/// cannot know the new name before.
///
/// # Errors
/// Returns the kernel's error. The entry is then unchanged.
pub fn set_aside(project: &Path, path: &Path) -> io::Result<OsString> {
    let (folder, name) = Folder::around(project, path)?;
    let new = aside(name)?;
    folder.rename(name, &folder, &new)?;
    Ok(new)
}

/// Removes a link.
///
/// # Errors
/// Returns the kernel's error. The link is then unchanged.
pub fn unlink(project: &Path, path: &Path) -> io::Result<()> {
    remove(project, path, FileType::Symlink)
}

/// Removes a bar that [`crate::git::guard()`] made.
///
/// # Errors
/// As [`unlink`].
pub fn unbar(project: &Path, path: &Path) -> io::Result<()> {
    remove(project, path, FileType::Socket)
}

fn remove(project: &Path, path: &Path, kind: FileType) -> io::Result<()> {
    let (folder, name) = Folder::around(project, path)?;
    if kind_of(folder.look(name)?) != kind {
        return Err(Errno::INVAL.into());
    }
    Ok(rustix::fs::unlinkat(&folder, name, AtFlags::empty())?)
}

/// Moves what the command created instead of a missing `.git` to that path, disarmed.
///
/// Returns whether there was anything to move.
///
/// # Errors
/// Returns the error of the call that failed. What was not moved stays where git does not find it.
pub fn bring_out(project: &Path, git: &Path) -> io::Result<bool> {
    let outer = Folder::open(project, git, To::Change)?;
    let apart = outer.child(APART, To::Change)?;
    let is_new = !apart.has_only(|_| false)?;
    if is_new {
        move_out(&apart, &outer).inspect_err(|_| {
            // git finds no repository there then.
            let _ = aside(OsStr::new("HEAD")).map(|new| apart.rename(c"HEAD", &apart, &new));
        })?;
    }
    rustix::fs::unlinkat(&outer, APART, AtFlags::REMOVEDIR)?;
    if !is_new {
        let (parent, name) = Folder::around(project, git)?;
        rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?;
    }
    Ok(is_new)
}

fn move_out(apart: &Folder, outer: &Folder) -> io::Result<()> {
    disarm_directory(apart, |_| false)?;
    let names = few_names(apart, |_| true)?;
    names
        .iter()
        .try_for_each(|name| apart.rename(name, outer, name))
}

/// Whether the command created anything instead of a missing `.git`.
pub fn is_apart(project: &Path, git: &Path) -> bool {
    Folder::open(project, &git.join(APART), To::Read)
        .is_ok_and(|apart| apart.has_only(|_| false).is_ok_and(|is_empty| !is_empty))
}

/// Removes the placeholders from a repository's directory, and from the repositories in it.
/// A folder goes only if it `is_ours`.
///
/// # Errors
/// Returns the error of opening or listing the directory.
pub fn tidy(project: &Path, git: &Path, is_ours: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    let directory = Folder::open(project, git, To::Change)?;
    for folder in ["modules", "worktrees"] {
        tidy_below(project, &git.join(folder), 0, is_ours);
    }
    for guarded in GUARDED {
        let removed = match guarded.content {
            None if !is_ours(&git.join(guarded.name)) => Ok(()),
            None => rustix::fs::unlinkat(&directory, guarded.name, AtFlags::REMOVEDIR),
            Some(content) => match read(&directory, guarded.name, content.len()) {
                Ok(found) if found == content => {
                    rustix::fs::unlinkat(&directory, guarded.name, AtFlags::empty())
                }
                _ => Ok(()),
            },
        };
        match removed {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::NOTDIR | Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Removes placeholders from each repository in a folder of repositories. Names may contain
/// slashes.
fn tidy_below(project: &Path, folder: &Path, depth: usize, is_ours: &dyn Fn(&Path) -> bool) {
    let Ok(directory) = Folder::open(project, folder, To::Change) else {
        return;
    };
    for name in directory.names(usize::MAX, |_| true).unwrap_or_default() {
        let path = path_in(folder, &name);
        let is_directory = directory
            .look(&name)
            .is_ok_and(|found| kind_of(found).is_dir());
        if is_directory && directory.look(head_of(&name)).is_ok() {
            // A placeholder that cannot be removed stays, and has no effect.
            let _ = tidy(project, &path, is_ours);
        } else if is_directory && depth < 16 {
            tidy_below(project, &path, depth + 1, is_ours);
        }
    }
}

fn head_of(name: &CStr) -> CString {
    let path = [name.to_bytes(), b"/HEAD"].concat();
    CString::new(path).unwrap_or_default()
}

/// Goes on after an error, and returns the first.
fn disarm_directory(directory: &Folder, stays: impl Fn(&CStr) -> bool) -> io::Result<()> {
    let read = read(directory, "config", SETTINGS_BYTES);
    let settings = String::from_utf8_lossy(read.as_deref().unwrap_or_default());
    let harmless = harmless(&settings);
    let is_harmless = read.is_ok_and(|read| read == harmless.as_bytes());
    let done = set_aside_but(directory, |name| {
        stays(name) || is_stored(name) || is_harmless && name == c"config"
    });
    // If a link leads to it, that is removed with the others.
    let objects = directory.child("objects", To::Read);
    let info = objects.and_then(|objects| objects.child("info", To::Change));
    let done = done.and(match info {
        Ok(info) => set_aside_but(&info, is_index_of_objects),
        Err(_) => Ok(()),
    });
    match is_harmless {
        true => done,
        false => done.and(write_settings(directory, &harmless)),
    }
}

fn write_settings(directory: &Folder, settings: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, "config", flags, Mode::from_raw_mode(0o644))?;
    directory.give_owner_of(&file)?;
    std::fs::File::from(file).write_all(settings.as_bytes())
}

/// Moves all but what `stays` to a new folder in it. Goes on after an error, and returns the first.
/// Moves nothing if there are too many.
fn set_aside_but(directory: &Folder, stays: impl Fn(&CStr) -> bool) -> io::Result<()> {
    let going = few_names(directory, |name| !stays(name))?;
    if going.is_empty() {
        return Ok(());
    }
    let name = folder_for_aside()?;
    rustix::fs::mkdirat(directory, &name, Mode::RWXU)?;
    let aside = directory.child(&name, To::Change)?;
    directory.give_owner_of(&aside)?;
    let moved: Vec<_> = going
        .iter()
        .map(|name| directory.rename(name, &aside, name))
        .collect();
    moved.into_iter().collect()
}

/// Returns the names in a folder that are `wanted`, unless one by one they would take long.
fn few_names(folder: &Folder, wanted: impl Fn(&CStr) -> bool) -> io::Result<Vec<CString>> {
    let names = folder.names(NAMES + 1, wanted)?;
    match names.len() <= NAMES {
        true => Ok(names),
        false => Err(io::Error::other(format!("it has more than {NAMES} names"))),
    }
}

/// Reads a regular file. One of more than `limit` bytes is an error.
fn read(directory: &Folder, name: &str, limit: usize) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(Errno::INVAL.into());
    }
    let mut content = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut content)?;
    match content.len() <= limit {
        true => Ok(content),
        false => Err(Errno::FBIG.into()),
    }
}

/// The most bytes of settings that are looked through.
const SETTINGS_BYTES: usize = 1 << 20;
/// How many names of a folder are set aside one by one.
const NAMES: usize = 10_000;
