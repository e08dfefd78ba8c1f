//! Overlays: the host's files without the hidden names, and with sockets of the overlay's own.
//!
//! A path socket of the host cannot be connected to below an overlay, no matter when or in which
//! network namespace it was created. The kernel finds sockets by inode, and an overlay has inodes
//! of its own. A name that an overlay leaves out stays absent, whatever the host puts there later.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use gateway_names::real_path;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::MountFlags;

use super::paths::c_string;

/// The in-memory folder for the overlays' own data: whiteouts, and files written through them.
#[derive(Debug)]
pub struct Layers {
    folder: PathBuf,
    count: u32,
    /// The hidden names, by their real paths.
    hidden: Vec<PathBuf>,
}

impl Layers {
    /// Takes an empty folder, and the absolute paths that no overlay may show.
    pub fn new(folder: PathBuf, hidden: &[PathBuf]) -> Self {
        Self {
            folder,
            count: 0,
            hidden: resolve(hidden),
        }
    }

    /// Whether a path of the host is hidden, or lies in a hidden directory.
    fn hide(&self, path: &Path) -> bool {
        self.hidden.iter().any(|hidden| path.starts_with(hidden))
    }

    /// Returns what a path of the home directory shows, and whether that is a directory: a link
    /// shows its target. `None` if it is hidden, or neither a file nor a directory.
    ///
    /// # Errors
    /// The error of looking at it.
    pub fn shown(&self, path: &Path) -> io::Result<Option<(PathBuf, bool)>> {
        let Ok(real) = real_path(path) else {
            return Ok(None);
        };
        let found = fs::metadata(&real)?;
        let is_shown = !self.hide(path) && !self.hide(&real) && (found.is_file() || found.is_dir());
        Ok(is_shown.then(|| (real, found.is_dir())))
    }

    /// Mounts `lower` at `at` without the hidden names, read-only.
    ///
    /// `real` is the path of `lower` on the host. The hidden names are matched against it.
    ///
    /// # Errors
    /// The kernel's error. [`unless_refused`] tells whether it means that this directory cannot be
    /// overlaid at all.
    pub fn read(&mut self, lower: &Path, real: &Path, at: &Path) -> io::Result<()> {
        let (upper, is_empty) = self.upper(real)?;
        // The first layer provides the directory's owner and mode; an overlay without an upper
        // layer needs two lower ones.
        let layers = if is_empty {
            [lower, &upper]
        } else {
            [&upper, lower]
        };
        let mut options = b"userxattr,lowerdir=".to_vec();
        append_escaped(&mut options, layers[0].as_os_str());
        options.push(b':');
        append_escaped(&mut options, layers[1].as_os_str());
        mount(at, &options, MountFlags::RDONLY)
    }

    /// Mounts `lower` at `at` without the hidden names; changes stay in memory.
    ///
    /// # Errors
    /// As [`Layers::read`].
    pub fn write(&mut self, lower: &Path, at: &Path) -> io::Result<()> {
        let (upper, _) = self.upper(lower)?;
        let work = upper.with_extension("work");
        fs::create_dir(&work)?;
        let mut options = b"userxattr,lowerdir=".to_vec();
        append_escaped(&mut options, lower.as_os_str());
        options.extend_from_slice(b",upperdir=");
        options.extend_from_slice(upper.as_os_str().as_bytes());
        options.extend_from_slice(b",workdir=");
        options.extend_from_slice(work.as_os_str().as_bytes());
        mount(at, &options, MountFlags::empty())
    }

    /// Creates the layer over `real` in which the hidden names are whited out; returns whether
    /// there are none.
    fn upper(&mut self, real: &Path) -> io::Result<(PathBuf, bool)> {
        self.count += 1;
        let upper = self.folder.join(self.count.to_string());
        let mode = fs::metadata(real).map_or(0o755, |found| found.mode() & 0o7777);
        fs::DirBuilder::new().mode(mode).create(&upper)?;
        let names = names_in(real, &self.hidden);
        for name in &names {
            white_out(real, &upper, name)?;
        }
        Ok((upper, names.is_empty()))
    }
}

/// Returns whether an overlay was mounted. It was not if the kernel cannot overlay this directory:
/// it may be an overlay over an overlay, its file system may not support it, or other mounts may
/// lie in it.
///
/// # Errors
/// Any other.
pub fn unless_refused(mounted: io::Result<()>) -> io::Result<bool> {
    use libc::{EINVAL, ELOOP, ENODEV, ENOSYS, EOPNOTSUPP, EPERM};
    match mounted.as_ref().err().and_then(io::Error::raw_os_error) {
        Some(EINVAL | ENODEV | EOPNOTSUPP | ELOOP | EPERM | ENOSYS) => Ok(false),
        _ => mounted.map(|()| true),
    }
}

fn mount(at: &Path, options: &[u8], flags: MountFlags) -> io::Result<()> {
    let options = c_string(OsStr::from_bytes(options))?;
    let flags = flags | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("overlay", at, "overlay", flags, Some(options.as_c_str()))?;
    Ok(())
}

/// Returns the real paths of hidden names: each by the name in its real directory and, for a link,
/// by its target.
fn resolve(hidden: &[PathBuf]) -> Vec<PathBuf> {
    let mut known = HashMap::new();
    let mut found = Vec::new();
    for path in hidden {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            continue;
        };
        let (parent, is_there) = real(parent, &mut known);
        let named = parent.join(name);
        found.extend(is_there.then(|| target(&named)).flatten());
        found.push(named);
    }
    found.sort();
    found.dedup();
    found
}

/// Follows links in a directory's path as far as its parts exist; returns whether all do. Many
/// paths lie in the same few directories, so each is looked at once.
fn real<'p>(path: &'p Path, known: &mut HashMap<&'p Path, (PathBuf, bool)>) -> (PathBuf, bool) {
    if let Some(found) = known.get(path) {
        return found.clone();
    }
    let found = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let (parent, is_there) = real(parent, known);
            let named = parent.join(name);
            match is_there.then(|| target(&named)).flatten() {
                Some(target) => (target, true),
                None => {
                    let is_there = is_there && named.is_dir();
                    (named, is_there)
                }
            }
        }
        _ => (path.to_owned(), true),
    };
    known.insert(path, found.clone());
    found
}

/// Returns where a link leads, if it is one that leads somewhere.
fn target(path: &Path) -> Option<PathBuf> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    is_link.then(|| real_path(path).ok()).flatten()
}

/// Returns the hidden names below `directory`, relative to it, without those below other hidden
/// names.
fn names_in(directory: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = hidden
        .iter()
        .filter_map(|path| path.strip_prefix(directory).ok())
        .filter(|name| name.components().next().is_some())
        .filter(|name| {
            name.components()
                .all(|part| matches!(part, Component::Normal(_)))
        })
        .map(Path::to_owned)
        .collect();
    names.sort();
    names.dedup_by(|later, earlier| later.starts_with(earlier));
    names
}

/// Creates the whiteout of one name. Also creates its parent directories, with the attributes of
/// those in the lower layer.
fn white_out(lower: &Path, upper: &Path, name: &Path) -> io::Result<()> {
    let mut so_far = PathBuf::new();
    for part in name.parent().into_iter().flat_map(Path::components) {
        so_far.push(part);
        let mode = match fs::symlink_metadata(lower.join(&so_far)) {
            Ok(found) if found.is_dir() => found.mode() & 0o7777,
            // There is a file instead of a directory, so nothing of that name can exist.
            Ok(_) => return Ok(()),
            Err(_) => 0o700,
        };
        match fs::DirBuilder::new().mode(mode).create(upper.join(&so_far)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    // This device means "nothing is here" to overlayfs.
    let device = FileType::CharacterDevice;
    Ok(mknodat(CWD, upper.join(name), device, Mode::empty(), 0)?)
}

fn append_escaped(options: &mut Vec<u8>, path: &OsStr) {
    for byte in path.as_bytes() {
        if matches!(byte, b',' | b':' | b'\\') {
            options.push(b'\\');
        }
        options.push(*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_links_and_leave_out_what_lies_below_others() {
        let home = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(home.path()).unwrap();
        fs::create_dir_all(path.join("dotfiles/config/gh")).unwrap();
        std::os::unix::fs::symlink("dotfiles/config", path.join(".config")).unwrap();
        let hidden =
            [".config/gh", ".ssh", ".ssh/keys", ".later/token"].map(|name| path.join(name));
        let expected = [".later/token", ".ssh", "dotfiles/config/gh"].map(PathBuf::from);
        assert_eq!(names_in(&path, &resolve(&hidden)), expected);
    }

    #[test]
    fn a_link_and_what_it_leads_to_are_both_hidden() {
        let home = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(home.path()).unwrap();
        fs::create_dir(path.join("keys")).unwrap();
        std::os::unix::fs::symlink("keys", path.join(".ssh")).unwrap();
        assert_eq!(
            names_in(&path, &resolve(&[path.join(".ssh")])),
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
