//! The visible part of the host's system: a closed list. Nothing else of the host is visible,
//! whatever appears on it later.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use gateway_names::real_path;

use super::list;

/// Directories and files of the system that are visible, read-only, if the host has them.
///
/// They contain only programs, libraries and their data: no sockets, state, logs or other people's
/// files. In `/nix` and `/var/guix`, for example, this excludes the sockets of the daemons that
/// build with the host's network.
static TREES: LazyLock<Vec<&str>> =
    LazyLock::new(|| list::lines(include_str!("data/trees.txt")).collect());

/// Fresh, empty and writable: memory replaces what the host has there.
pub const FRESH: &[&str] = &["/run", "/tmp", "/var/tmp"];

/// Directories that contain no user's files: they cannot be projects, nor be shown by name.
pub const KERNELS: &[&str] = &["/proc", "/sys", "/dev"];

/// Returns the real paths of the trees that the host has, none of them below another.
pub fn trees() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for path in TREES.iter() {
        let Ok(real) = real_path(path) else {
            continue;
        };
        if !found.iter().any(|other| real.starts_with(other)) {
            found.push(real);
        }
    }
    found
}

/// Returns the links that give the system's directories their other names: those at the top of the
/// host, such as `/bin` and, on some systems, `/home`, and the old names of directories in `/run`.
pub fn links() -> Vec<(PathBuf, PathBuf)> {
    let mut links: Vec<(PathBuf, PathBuf)> = fs::read_dir("/")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            entry.file_type().is_ok_and(|kind| kind.is_symlink()) && entry.path().is_dir()
        })
        .filter_map(|entry| Some((entry.path(), fs::read_link(entry.path()).ok()?)))
        .filter(|(path, _)| {
            !FRESH
                .iter()
                .chain(KERNELS)
                .any(|own| Path::new(own).starts_with(path))
        })
        .collect();
    for tree in TREES.iter().filter(|tree| tree.starts_with("/run/")) {
        // These are links to the directory in which such systems keep all programs.
        if let Ok(target) = fs::read_link(tree) {
            links.push((PathBuf::from(tree), target));
        }
    }
    links.push(("/var/run".into(), "/run".into()));
    links.push(("/var/lock".into(), "/run/lock".into()));
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tree_holds_a_place_of_sockets_state_or_homes() {
        for tree in TREES.iter().map(Path::new) {
            for other in [
                "/run",
                "/tmp",
                "/var/tmp",
                "/var/run",
                "/var/log",
                "/var/spool",
                "/home/ann",
                "/root",
                "/srv",
                "/mnt/c",
                "/media",
                "/nix/var/nix/daemon-socket",
                "/var/guix/daemon-socket",
                "/var/lib/docker",
                "/proc",
                "/sys",
                "/dev",
                "/boot",
            ] {
                assert!(
                    !Path::new(other).starts_with(tree),
                    "{} holds {other}",
                    tree.display()
                );
            }
        }
    }

    #[test]
    fn the_trees_of_this_system_are_real_and_apart() {
        let trees = trees();
        assert!(trees.contains(&PathBuf::from("/usr")) && trees.contains(&PathBuf::from("/etc")));
        for tree in &trees {
            assert_eq!(fs::canonicalize(tree).unwrap(), *tree);
            assert!(
                trees
                    .iter()
                    .all(|other| other == tree || !tree.starts_with(other))
            );
        }
    }
}
