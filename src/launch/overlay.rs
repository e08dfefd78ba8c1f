//! Overlays that make names vanish: the home directory without its secrets, and others without theirs.

use std::ffi::{CStr, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

use super::bounds::{self, Room, Share};
use super::error::{At, Failure, Step};
use super::mounts::{Tree, bind, c_string, make_directories};
use super::syscall;

/// Lays an overlay over the home directory: reads see the host's files but the hidden ones, writes stay in memory.
///
/// Where the kernel refuses an overlay (inside another one), the home becomes an empty one in memory, with the
/// directories of tools bound read-only.
///
/// # Errors
/// A [`Step::Home`] failure that names the path.
pub fn cover_home(home: &Path, hidden: &[PathBuf], room: Room) -> Result<(), Failure> {
    let options = room.options(Share::Home, 0o755);
    match cover(home, hidden, &options) {
        Ok(()) => Ok(()),
        Err(failure)
            if matches!(
                failure.errno,
                libc::EINVAL | libc::ENODEV | libc::EOPNOTSUPP | libc::ELOOP | libc::EPERM
            ) =>
        {
            bare_home(home, room)
        }
        Err(failure) => Err(failure),
    }
}

/// Lays an overlay over a directory outside the home, in which the hidden names are not.
///
/// Sockets of the host below it cannot be connected to either, whenever they were made: an overlay's sockets are its own.
///
/// # Errors
/// As [`cover_home`]; here there is nothing to fall back to.
pub fn cover_directory(directory: &Path, hidden: &[PathBuf]) -> Result<(), Failure> {
    cover(directory, hidden, &bounds::small(0o755))
}

/// The options are those of the file system in memory that holds what is written.
fn cover(home: &Path, hidden: &[PathBuf], memory: &CStr) -> Result<(), Failure> {
    let at = |path: &Path| path.display().to_string();
    // The upper layer needs a place for a moment, which must not be in the way of the lower one.
    let stage = Path::new(if home.starts_with("/run") { "/tmp" } else { "/run" });
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", stage, "tmpfs", flags, Some(memory)).at(Step::Home, at(stage))?;
    let (upper, work) = (stage.join("upper"), stage.join("work"));
    let mode = fs::metadata(home).at(Step::Home, at(home))?.mode() & 0o7777;
    fs::DirBuilder::new()
        .mode(mode)
        .create(&upper)
        .at(Step::Home, at(&upper))?;
    fs::create_dir(&work).at(Step::Home, at(&work))?;
    for name in names_in(home, hidden) {
        white_out(home, &upper, &name).at(Step::Home, format!("hide {}", home.join(&name).display()))?;
    }
    let mut options = b"userxattr,lowerdir=".to_vec();
    append_escaped(&mut options, home.as_os_str());
    options.extend_from_slice(b",upperdir=");
    options.extend_from_slice(upper.as_os_str().as_bytes());
    options.extend_from_slice(b",workdir=");
    options.extend_from_slice(work.as_os_str().as_bytes());
    let options = c_string(OsStr::from_bytes(&options)).at(Step::Home, at(home))?;
    let mounted = rustix::mount::mount("overlay", home, "overlay", flags, Some(options.as_c_str()));
    // The overlay holds its layers itself; without the stage, nothing inside can touch them past it.
    rustix::mount::unmount(stage, UnmountFlags::DETACH).at(Step::Home, at(stage))?;
    mounted.at(Step::Home, at(home))
}

/// Gives the hidden names below `home`, by name and by where links lead, without those below others.
fn names_in(home: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = Vec::new();
    for path in hidden {
        let real = resolve_parent(path);
        for candidate in [Some(real.clone()), fs::canonicalize(&real).ok()]
            .into_iter()
            .flatten()
        {
            if let Ok(name) = candidate.strip_prefix(home)
                && name.components().next().is_some()
                && name.components().all(|part| matches!(part, Component::Normal(_)))
            {
                names.push(name.to_owned());
            }
        }
    }
    names.sort();
    names.dedup_by(|later, earlier| later.starts_with(earlier));
    names
}

/// Follows links in all but the last part of a path, as far as the parts exist.
fn resolve_parent(path: &Path) -> PathBuf {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return path.to_owned();
    };
    match fs::canonicalize(parent) {
        Ok(real) => real.join(name),
        Err(_) => resolve_parent(parent).join(name),
    }
}

/// Makes the whiteout of one name, with the directories above it as they are below.
fn white_out(home: &Path, upper: &Path, name: &Path) -> io::Result<()> {
    let mut so_far = PathBuf::new();
    for part in name.parent().into_iter().flat_map(Path::components) {
        so_far.push(part);
        let mode = match fs::symlink_metadata(home.join(&so_far)) {
            Ok(found) if found.is_dir() => found.mode() & 0o7777,
            // A file stands where a directory would be: nothing of that name can be there.
            Ok(_) => return Ok(()),
            Err(_) => 0o700,
        };
        match fs::DirBuilder::new().mode(mode).create(upper.join(&so_far)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    syscall::whiteout(&c_string(upper.join(name).as_os_str())?)
}

fn append_escaped(options: &mut Vec<u8>, path: &OsStr) {
    for byte in path.as_bytes() {
        if matches!(byte, b',' | b':' | b'\\') {
            options.push(b'\\');
        }
        options.push(*byte);
    }
}

fn bare_home(home: &Path, room: Room) -> Result<(), Failure> {
    let tools: Vec<Tree> = TOOLS
        .iter()
        .filter_map(|name| Tree::take(&home.join(name)).ok())
        .collect();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(
        "tmpfs",
        home,
        "tmpfs",
        flags,
        Some(&*room.options(Share::Home, 0o700)),
    )
    .at(Step::Home, home.display().to_string())?;
    for (tree, name) in tools.iter().zip(TOOLS) {
        tree.put().at(Step::Home, format!("keep {name}"))?;
    }
    for name in TOOLS {
        let path = home.join(name);
        if path.is_dir() {
            bind(&path, &path, true)?;
        }
    }
    make_directories(home).at(Step::Home, home.display().to_string())
}

/// Directories under the home that hold programs, and no secrets.
const TOOLS: &[&str] = &[
    ".local/bin",
    ".local/lib",
    ".cargo/bin",
    ".rustup",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".sdkman",
    ".bun/bin",
    ".deno/bin",
    "go/bin",
    "bin",
    ".volta",
    ".asdf",
    ".local/share/mise",
    ".local/share/uv",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_links_and_leave_out_what_lies_below_others() {
        let home = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(home.path()).unwrap();
        fs::create_dir_all(path.join("dotfiles/config/gh")).unwrap();
        std::os::unix::fs::symlink("dotfiles/config", path.join(".config")).unwrap();
        let hidden = [".config/gh", ".ssh", ".ssh/keys", ".later/token"].map(|name| path.join(name));
        let expected = [".later/token", ".ssh", "dotfiles/config/gh"].map(PathBuf::from);
        assert_eq!(names_in(&path, &hidden), expected);
    }

    #[test]
    fn a_link_and_what_it_leads_to_are_both_hidden() {
        let home = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(home.path()).unwrap();
        fs::create_dir(path.join("keys")).unwrap();
        std::os::unix::fs::symlink("keys", path.join(".ssh")).unwrap();
        assert_eq!(
            names_in(&path, &[path.join(".ssh")]),
            [".ssh", "keys"].map(PathBuf::from)
        );
    }

    #[test]
    fn separators_in_a_path_are_escaped() {
        let mut options = Vec::new();
        append_escaped(&mut options, OsStr::new("/home/a:b,c\\d"));
        assert_eq!(options, b"/home/a\\:b\\,c\\\\d");
    }
}
