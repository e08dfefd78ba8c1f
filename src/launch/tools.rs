//! The visible parts of a home directory: named sets that programs need to run, nothing else.
//!
//! A set contains programs, libraries and package caches. It contains no history, no credential,
//! and no settings that may hold a token. Where such files lie among its paths, they are hidden by
//! name.

use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use super::list;

/// Returns the paths, relative to the home directory, for one item that the user asked for.
///
/// An item is a set's name, or a path below the home directory (relative, `~/…` or absolute). A
/// path that could be mistaken for a set's name is written with `./`.
///
/// # Errors
/// Returns the fault, as text that follows its name.
pub fn named(text: &str, home: &Path) -> Result<Vec<PathBuf>, &'static str> {
    let of_the_set = SETS.iter().filter(|(set, _)| *set == text);
    let paths: Vec<_> = of_the_set.map(|(_, path)| PathBuf::from(path)).collect();
    if !paths.is_empty() {
        return Ok(paths);
    }
    let path = Path::new(
        text.strip_prefix("~/")
            .unwrap_or(if text == "~" { "" } else { text }),
    );
    let relative = if path.is_absolute() {
        path.strip_prefix(home)
            .map_err(|_| "is not below the home directory; `--see` names other paths")?
    } else {
        path
    };
    let mut clean = PathBuf::new();
    for part in relative.components() {
        match part {
            Component::Normal(part) => clean.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err("leads out of the home directory");
            }
        }
    }
    if clean.as_os_str().is_empty() {
        return Err("is the whole home directory; name what is needed of it");
    }
    Ok(vec![clean])
}

/// Returns the paths of the sets that are visible by default.
pub fn unasked() -> impl Iterator<Item = PathBuf> {
    let listed = SETS.iter().filter(|(set, _)| UNASKED.contains(set));
    listed.map(|(_, path)| PathBuf::from(path))
}

/// Returns the names of the sets that contain at least one of these paths.
pub fn names_of(paths: &[PathBuf]) -> Vec<&'static str> {
    let has = |(_, own): &&(&str, &str)| paths.iter().any(|path| path == Path::new(own));
    let mut names: Vec<_> = SETS.iter().filter(has).map(|(set, _)| *set).collect();
    names.dedup();
    names
}

/// Whether a path belongs to some set.
pub fn is_of_a_set(path: &Path) -> bool {
    SETS.iter().any(|(_, own)| path == Path::new(own))
}

/// The sets that are visible by default: they merely let programs run.
const UNASKED: [&str; 11] = [
    "programs", "rust", "node", "python", "go", "java", "ruby", "php", "dotnet", "haskell",
    "elixir",
];

/// Every set, by the name that `--see-home` takes, with each of its paths relative to the home
/// directory.
pub static SETS: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| list::pairs(include_str!("data/sets.txt")).collect());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hide;

    const HOME: &str = "/home/ann";

    fn asked(text: &str) -> Result<Vec<PathBuf>, &'static str> {
        named(text, Path::new(HOME))
    }

    #[test]
    fn a_set_is_named_by_its_name_and_a_path_by_any_of_its_forms() {
        assert!(
            asked("rust")
                .unwrap()
                .contains(&PathBuf::from(".cargo/bin"))
        );
        for text in ["x/y", "./x/y", "~/x/y", "/home/ann/x/y", "x//./y"] {
            assert_eq!(asked(text).unwrap(), [PathBuf::from("x/y")], "{text}");
        }
        assert_eq!(asked("./go").unwrap(), [PathBuf::from("go")]);
    }

    #[test]
    fn what_leads_out_of_the_home_or_is_all_of_it_is_refused() {
        for text in [
            "",
            ".",
            "~",
            "~/",
            "/home/ann",
            "/home/bob/x",
            "../bob",
            "x/../../bob",
            "/etc",
        ] {
            assert!(asked(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_set_is_or_lies_in_a_credential_store() {
        for (set, path) in SETS.iter() {
            let path = Path::new(path);
            let store = hide::IN_HOME.iter().find(|store| path.starts_with(store));
            assert!(store.is_none(), "{set}: {path:?} lies in {store:?}");
            let mut parts = path.components();
            assert!(parts.all(|part| matches!(part, Component::Normal(_))));
        }
    }

    #[test]
    fn every_set_has_a_name_of_its_own_that_is_no_path() {
        let mut names: Vec<_> = SETS.iter().map(|(set, _)| *set).collect();
        assert!(names.iter().all(|name| !name.contains(['/', '.', '~'])));
        names.dedup();
        let sets = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), sets);
        assert!(UNASKED.iter().all(|set| names.contains(set)));
    }
}
