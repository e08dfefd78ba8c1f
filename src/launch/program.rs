//! Resolves a program's name: where it is found, and every name that decides what runs.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
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
    let is_closed = |found: &Metadata| found.is_symlink() || found.mode() & 0o022 == 0;
    // Where root has no number, in a namespace of users, its files seem to be nobody's.
    let is_roots = |path: &Path| {
        std::fs::symlink_metadata(path).is_ok_and(|found| {
            is_closed(&found)
                && (found.uid() == 0
                    || found.uid() == NOBODY && rustix::fs::access(path, Access::WRITE_OK).is_err())
        })
    };
    let mut places = SYSTEM_PROGRAMS
        .iter()
        .map(|folder| Path::new(folder).join(name));
    let of_root = |path: &PathBuf| {
        path.is_file()
            && names(path)
                .iter()
                .flat_map(|name| name.ancestors())
                .all(is_roots)
    };
    places.find(of_root)
}

/// The number of users that a namespace does not know.
const NOBODY: u32 = 65534;
/// Where the system's programs are.
const SYSTEM_PROGRAMS: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];

/// Returns every name that decides what runs when `program` is run: its own, those of the links on
/// its path, and its interpreter's.
///
/// Anyone who can replace one of them decides what runs.
pub fn names(program: &Path) -> Vec<PathBuf> {
    let mut names = vec![program.to_owned()];
    let real = follow(program, &mut names);
    let interpreter = interpreter(&real).filter(|interpreter| interpreter.is_absolute());
    names.push(real);
    if let Some(interpreter) = interpreter {
        names.push(interpreter.clone());
        let real = follow(&interpreter, &mut names);
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

/// Returns the program that the first line of a script names.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    let file = std::fs::File::open(script).ok()?;
    file.take(LONGEST_FIRST_LINE).read_to_end(&mut head).ok()?;
    let line = head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let word = line
        .split(|byte| byte.is_ascii_whitespace())
        .find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

/// As many as the kernel follows.
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
        let names = names(&at.join("real/tool"));
        for name in ["real/tool", "current", "real/bin/tool", "python"] {
            assert!(names.contains(&at.join(name)), "{name} in {names:?}");
        }
        assert!(names.contains(&std::fs::canonicalize("/bin/sh").unwrap()));
    }

    #[test]
    fn a_circle_of_links_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        std::os::unix::fs::symlink(&two, &one).unwrap();
        std::os::unix::fs::symlink(&one, &two).unwrap();
        assert!(names(&one).len() > 2);
    }

    #[test]
    fn a_program_that_others_could_replace_is_not_roots_alone() {
        assert!(root_owned_program("sh").is_some());
        assert_eq!(root_owned_program("no-such-program"), None);
        // Everybody may write to `/tmp`.
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let link = folder.path().join("sh");
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        assert!(!is_roots_alone(&link));
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
