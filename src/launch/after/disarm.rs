//! Disarms a repository that the command made, so that it can run no program, and removes the
//! placeholders from existing ones.
//!
//! All of it goes through open directories and never through a link: another sandbox may still
//! write there.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gateway_names::hex;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use super::settings::harmless;
use crate::git::{APART, GUARDED};

/// Sets aside whatever git would obey in a repository's directory, and keeps what git stores.
///
/// # Errors
/// Returns the error of the call that failed. The repository may then be unchanged.
pub fn disarm(project: &Path, git: &Path) -> io::Result<()> {
    disarm_directory(&open(project, git)?)
}

/// Does the same in a directory that git treats as a bare repository. Fails if it also contains
/// other things.
///
/// # Errors
/// As [`disarm`].
pub fn disarm_bare(project: &Path, git: &Path) -> io::Result<()> {
    let directory = open(project, git)?;
    let known = |name: &CStr| {
        GUARDED
            .iter()
            .any(|guarded| guarded.name.as_bytes() == name.to_bytes())
            || is_kept(name)
    };
    if !names(&directory)?.iter().all(|name| known(name)) {
        return Err(Errno::NOTEMPTY.into());
    }
    disarm_directory(&directory)
}

/// Renames a `.git` entry, so that git does not find it.
///
/// # Errors
/// Returns the kernel's error. The entry is then unchanged.
pub fn set_aside(project: &Path, path: &Path) -> io::Result<OsString> {
    let (parent, _leave, name) = to_change(project, path)?;
    let mut new = name.to_owned();
    new.push(".set-aside");
    for _ in 0..100 {
        match rustix::fs::renameat_with(&parent, name, &parent, &new, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(new),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // A name that the command cannot take beforehand.
        let mut bytes = [0_u8; 8];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        new = name.to_owned();
        new.push(format!(".set-aside-{}", hex(&bytes)));
    }
    Err(Errno::EXIST.into())
}

/// Opens the folder of what is to be changed, with leave to write to it; and its name there.
fn to_change<'p>(project: &Path, path: &'p Path) -> io::Result<(OwnedFd, LeaveToWrite, &'p OsStr)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL.into());
    };
    let parent = open_with(project, parent, OFlags::PATH | OFlags::DIRECTORY)?;
    let leave = LeaveToWrite::in_folder(&parent);
    Ok((parent, leave, name))
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
    let (parent, _leave, name) = to_change(project, path)?;
    let found = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) != kind {
        return Err(Errno::INVAL.into());
    }
    Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty())?)
}

/// Moves what the command created instead of a missing `.git` to that path, disarmed.
///
/// Returns whether there was anything to move.
///
/// # Errors
/// Returns the error of the call that failed. What was not moved stays where git does not find it.
pub fn bring_out(project: &Path, git: &Path) -> io::Result<bool> {
    let (outer, apart) = (open(project, git)?, open(project, &git.join(APART))?);
    let _leaves = [&outer, &apart].map(LeaveToWrite::in_folder);
    let is_new = !names(&apart)?.is_empty();
    if is_new {
        disarm_directory(&apart)?;
        for name in names(&apart)? {
            rustix::fs::renameat_with(&apart, &name, &outer, &name, RenameFlags::NOREPLACE)?;
        }
    }
    rustix::fs::unlinkat(&outer, APART, AtFlags::REMOVEDIR)?;
    if !is_new && let (Some(parent), Some(name)) = (git.parent(), git.file_name()) {
        let parent = open(project, parent)?;
        let _leave = LeaveToWrite::in_folder(&parent);
        rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?;
    }
    Ok(is_new)
}

/// Whether the command created anything instead of a missing `.git`.
pub fn is_apart(project: &Path, git: &Path) -> bool {
    open(project, &git.join(APART))
        .is_ok_and(|apart| names(&apart).is_ok_and(|names| !names.is_empty()))
}

/// Removes the placeholders from a repository's directory, and from the repositories in it.
///
/// # Errors
/// Returns the error of opening or listing the directory.
pub fn tidy(project: &Path, git: &Path) -> io::Result<()> {
    let directory = open(project, git)?;
    let _leave = LeaveToWrite::in_folder(&directory);
    for folder in ["modules", "worktrees"] {
        tidy_below(project, &git.join(folder), 0);
    }
    for guarded in GUARDED {
        let removed = match guarded.content {
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
fn tidy_below(project: &Path, folder: &Path, depth: usize) {
    let Ok(directory) = open(project, folder) else {
        return;
    };
    for name in names(&directory).unwrap_or_default() {
        let path = folder.join(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let is_directory = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_dir());
        let is_git = is_directory
            && rustix::fs::statat(&directory, head_of(&name), AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if is_git {
            // A placeholder that cannot be removed stays, and has no effect.
            let _ = tidy(project, &path);
        } else if is_directory && depth < 16 {
            tidy_below(project, &path, depth + 1);
        }
    }
}

fn head_of(name: &CStr) -> CString {
    let path = [name.to_bytes(), b"/HEAD"].concat();
    CString::new(path).unwrap_or_default()
}

fn disarm_directory(directory: &OwnedFd) -> io::Result<()> {
    let _leave = LeaveToWrite::in_folder(directory);
    let settings = read(directory, "config", SETTINGS_BYTES).unwrap_or_default();
    let mut aside = None;
    for name in names(directory)? {
        if is_kept(&name) {
            continue;
        }
        if aside.is_none() {
            aside = Some(make_folder(directory)?);
        }
        if let Some(aside) = &aside {
            rustix::fs::renameat_with(directory, &name, aside, &name, RenameFlags::NOREPLACE)?;
        }
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, "config", flags, Mode::from_raw_mode(0o644))?;
    std::fs::File::from(file).write_all(harmless(&String::from_utf8_lossy(&settings)).as_bytes())
}

fn is_kept(name: &CStr) -> bool {
    let name = name.to_bytes();
    KEPT.iter().any(|kept| kept.as_bytes() == name)
        || KEPT_BEGINNINGS
            .iter()
            .any(|beginning| name.starts_with(beginning.as_bytes()))
}

fn make_folder(directory: &OwnedFd) -> io::Result<OwnedFd> {
    for number in 0..100 {
        let name = format!("set-aside-by-gateway-{number}");
        match rustix::fs::mkdirat(directory, &name, Mode::from_raw_mode(0o700)) {
            Ok(()) => {
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                return Ok(rustix::fs::openat(directory, &name, flags, Mode::empty())?);
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// Reads the start of a regular file; at most one byte more than `limit`.
fn read(directory: &OwnedFd, name: &str, limit: usize) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    if !FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode).is_file() {
        return Err(Errno::INVAL.into());
    }
    let mut content = Vec::new();
    std::fs::File::from(file)
        .take(limit as u64 + 1)
        .read_to_end(&mut content)?;
    Ok(content)
}

fn names(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

/// A folder that may be written to for as long as this lives, although its owner, or the command in
/// the owner's name, has taken that away.
struct LeaveToWrite(Option<(PathBuf, Mode)>);

impl LeaveToWrite {
    fn in_folder(folder: &OwnedFd) -> Self {
        // By its descriptor, which may have been opened without leave to read.
        let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        let taken = rustix::fs::fstat(folder).ok().and_then(|found| {
            let mode = Mode::from_raw_mode(found.st_mode & 0o7777);
            let is_taken = !mode.contains(Mode::RWXU);
            // Only the owner may do so. Without it, what follows fails and is reported.
            (is_taken && rustix::fs::chmod(&path, mode | Mode::RWXU).is_ok()).then_some(mode)
        });
        Self(taken.map(|mode| (path, mode)))
    }
}

impl Drop for LeaveToWrite {
    fn drop(&mut self) {
        if let Some((path, mode)) = &self.0 {
            let _ = rustix::fs::chmod(path, *mode);
        }
    }
}

fn open(project: &Path, path: &Path) -> io::Result<OwnedFd> {
    let known = open_with(project, path, OFlags::PATH | OFlags::DIRECTORY)?;
    let _leave = LeaveToWrite::in_folder(&known);
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&known, ".", flags, Mode::empty())?)
}

/// Opens a path in a project without following links.
fn open_with(project: &Path, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let top = rustix::fs::open(
        project,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let below = path.strip_prefix(project).map_err(|_| Errno::XDEV)?;
    let below = if below.as_os_str().is_empty() {
        Path::new(".")
    } else {
        below
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(
        top,
        below,
        flags | OFlags::CLOEXEC,
        Mode::empty(),
        resolve,
    )?)
}

/// What git stores and does not obey.
const KEPT: &[&str] = &[
    "HEAD",
    "index",
    "objects",
    "refs",
    "reftable",
    "logs",
    "packed-refs",
    "shallow",
    "description",
    "info",
    "branches",
    "COMMIT_EDITMSG",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "lfs",
];
const KEPT_BEGINNINGS: &[&str] = &["set-aside-by-gateway-", "sharedindex."];
const SETTINGS_BYTES: usize = 1 << 20;
