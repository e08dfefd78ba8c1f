//! Resolves a program's name: its path, and every name that decides what runs.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use gateway_names::real_path;
use rustix::fs::Access;

/// Finds a program as `execvp` does: by its path, or in the directories of `search`.
pub fn find(name: &OsStr, search: &OsStr, directory: &Path) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(directory.join(name)).filter(|path| path.is_file());
    }
    let mut places = std::env::split_paths(search).map(|folder| directory.join(folder).join(name));
    places.find(|path| path.is_file())
}

/// Finds a program of the system that only root can replace.
pub fn root_owned_program(name: &str) -> Option<PathBuf> {
    let mut places = SYSTEM.iter().map(|folder| Path::new(folder).join(name));
    places.find(|path| {
        path.is_file()
            && names(path, OsStr::new(""))
                .iter()
                .all(|name| is_roots(name))
    })
}

/// Whether only root can change the file of this name, and the folders above.
fn is_roots(path: &Path) -> bool {
    // The mode of a link has no meaning: its folder's mode counts.
    let is_closed = |found: &Metadata| found.is_symlink() || found.mode() & 0o022 == 0;
    // In a user namespace without root's number, root's files seem to belong to `nobody`.
    let is_nobodys = |found: &Metadata, at: &Path| {
        found.uid() == NOBODY && rustix::fs::access(at, Access::WRITE_OK).is_err()
    };
    path.ancestors().all(|at| {
        std::fs::symlink_metadata(at)
            .is_ok_and(|found| is_closed(&found) && (found.uid() == 0 || is_nobodys(&found, at)))
    })
}

/// The user number that stands for all users without a number in a namespace.
const NOBODY: u32 = 65534;

/// Returns every name that decides what runs when `program` is run: its own, those of the links on
/// its path, and those of its interpreters and theirs. `env` finds some of them in `search`.
///
/// Anyone who can replace one of them decides what runs.
pub fn names(program: &Path, search: &OsStr) -> Vec<PathBuf> {
    let mut names = Vec::new();
    let mut programs = vec![program.to_owned()];
    let mut left = MOST_PROGRAMS;
    while let Some(program) = programs.pop() {
        if names.contains(&program) || left == 0 {
            continue;
        }
        left -= 1;
        names.push(program.clone());
        let real = follow(&program, &mut names);
        programs.extend(interpreters(&real, search));
        names.push(real);
    }
    names
}

/// Returns the links on a path, each with its location.
pub fn links(path: &Path) -> Vec<PathBuf> {
    let mut links = Vec::new();
    follow(path, &mut links);
    links
}

/// Returns where a path leads, whether or not anything is there.
pub fn real(path: &Path) -> PathBuf {
    follow(path, &mut Vec::new())
}

/// Follows a path as the kernel does, and records each link.
fn follow(path: &Path, links: &mut Vec<PathBuf>) -> PathBuf {
    if real_path(path).is_ok_and(|real| real == path) {
        return path.to_owned();
    }
    let mut rest: Vec<PathBuf> = parts(path);
    let mut real = PathBuf::from("/");
    let mut left = MOST_LINKS;
    while let Some(part) = rest.pop() {
        if part == Path::new("..") {
            real.pop();
            continue;
        }
        let next = real.join(&part);
        match std::fs::read_link(&next) {
            Ok(target) if left > 0 => {
                left -= 1;
                links.push(next);
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                rest.extend(parts(&target));
            }
            _ => real = next,
        }
    }
    real
}

/// Returns the components of a path, in reverse order.
fn parts(path: &Path) -> Vec<PathBuf> {
    path.components()
        .rev()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| PathBuf::from(part.as_os_str()))
        .collect()
}

/// Returns the programs and scripts that the first line of a script names.
fn interpreters(script: &Path, search: &OsStr) -> Vec<PathBuf> {
    let line = first_line(script).unwrap_or_default();
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace() || b"\"'=".contains(byte))
        .filter(|word| !word.is_empty());
    let root = Path::new("/");
    let Some(interpreter) = words.next().map(OsStr::from_bytes) else {
        return Vec::new();
    };
    let is_env = Path::new(interpreter).file_name() == Some(OsStr::new("env"));
    let named = words.filter_map(|word| {
        let word = OsStr::from_bytes(word.strip_prefix(b"-S").unwrap_or(word));
        if word.as_bytes().contains(&b'/') {
            Some(root.join(word))
        } else {
            find(word, search, root).filter(|_| is_env)
        }
    });
    std::iter::once(root.join(interpreter))
        .chain(named)
        .collect()
}

/// Returns the first line of a script, after `#!`.
fn first_line(script: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    // Non-blocking, so that a pipe cannot block the reader.
    let mut opening = std::fs::File::options();
    opening.read(true).custom_flags(libc::O_NONBLOCK);
    let file = opening.open(script).ok()?;
    file.take(LONGEST_FIRST_LINE).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n');
    line.take(1).next().map(<[u8]>::to_vec)
}

/// Where the programs of a system are.
const SYSTEM: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];
/// How many programs and interpreters are followed. The kernel follows fewer.
const MOST_PROGRAMS: usize = 64;
/// The kernel's own limit.
const MOST_LINKS: usize = 40;
/// The kernel reads no more of the line.
const LONGEST_FIRST_LINE: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_and_the_interpreter_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir_all(at.join("real/bin")).unwrap();
        std::fs::write(
            at.join("real/bin/tool"),
            format!("#! {}/python -u\n", at.display()),
        )
        .unwrap();
        std::os::unix::fs::symlink("/bin/sh", at.join("python")).unwrap();
        std::os::unix::fs::symlink("real", at.join("current")).unwrap();
        std::os::unix::fs::symlink("../current/bin/tool", at.join("real/tool")).unwrap();
        let names = names(&at.join("real/tool"), OsStr::new(""));
        for name in ["real/tool", "current", "real/bin/tool", "python"] {
            assert!(names.contains(&at.join(name)), "{name} in {names:?}");
        }
        assert!(names.contains(&std::fs::canonicalize("/bin/sh").unwrap()));
    }

    #[test]
    fn interpreters_are_named_through_env_and_through_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let at = std::fs::canonicalize(folder.path()).unwrap();
        let write = |name: &str, text: String| std::fs::write(at.join(name), text).unwrap();
        write("tool", "#!/usr/bin/env -S A=b inner --flag\n".to_owned());
        write("inner", format!("#!{}/deepest -x\n", at.display()));
        write("deepest", format!("#!/bin/sh {}/script\n", at.display()));
        let names = names(&at.join("tool"), at.as_os_str());
        for name in ["inner", "deepest", "script"] {
            assert!(names.contains(&at.join(name)), "{name} in {names:?}");
        }
    }

    #[test]
    fn a_program_of_the_system_is_roots_alone() {
        assert!(root_owned_program("sh").is_some_and(|sh| sh.is_absolute()));
        assert_eq!(root_owned_program("no-such-program"), None);
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_roots(&folder.path().join("sh")));
    }

    #[test]
    fn a_circle_of_links_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        std::os::unix::fs::symlink(&two, &one).unwrap();
        std::os::unix::fs::symlink(&one, &two).unwrap();
        assert!(names(&one, OsStr::new("")).len() > 2);
    }

    #[test]
    fn a_program_is_found_by_its_path_or_by_the_search_path() {
        let find = |name: &str| {
            find(
                OsStr::new(name),
                OsStr::new("/nowhere:/bin"),
                Path::new("/"),
            )
        };
        assert_eq!(find("sh"), Some("/bin/sh".into()));
        assert_eq!(find("bin/sh"), Some("/bin/sh".into()));
        assert_eq!(find("no-such-program"), None);
    }
}
