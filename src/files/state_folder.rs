//! The folder for state that outlives a session, following the XDG specification.

use std::path::{Component, Path, PathBuf};

/// Returns the state folder: `$XDG_STATE_HOME/gateway`, else `~/.local/state/gateway`.
///
/// Returns `None` if neither variable holds an absolute path.
pub fn state_directory() -> Option<PathBuf> {
    let usual = || home().map(|home| home.join(".local/state"));
    let state = absolute("XDG_STATE_HOME").or_else(usual)?;
    Some(state.join("gateway"))
}

/// Returns the folder for data of projects, with links resolved: a person's decisions about files,
/// and the grants of operators.
pub fn granted_directory() -> Option<PathBuf> {
    state_directory().map(|state| real(&state.join("projects")))
}

/// Returns the user's home, if it is an absolute path.
pub fn home() -> Option<PathBuf> {
    absolute("HOME")
}

/// Returns the path in an environment variable, if it is absolute.
pub fn absolute(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    path.filter(|path| path.is_absolute())
}

/// Resolves the links and `..` of a path. Components that do not exist yet are appended by name.
pub fn real(path: &Path) -> PathBuf {
    for there in path.ancestors() {
        if let Ok(found) = std::fs::canonicalize(there)
            && let Ok(rest) = path.strip_prefix(there)
        {
            return rest.components().fold(found, |mut at, part| {
                match part {
                    Component::ParentDir => drop(at.pop()),
                    part => at.push(part),
                }
                at
            });
        }
    }
    path.to_owned()
}
