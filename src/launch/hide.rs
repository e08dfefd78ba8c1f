//! Names of files that are known to contain credentials. They are hidden even inside a visible
//! directory.
//!
//! This is the second barrier. The first is that only the paths in `mount_plan` and
//! [`super::tools`] are visible.

use std::sync::LazyLock;

use super::list;

/// Below the home directory: visible only if a person names the exact path, and never part of a
/// project.
pub static IN_HOME: LazyLock<Vec<&str>> =
    LazyLock::new(|| list::lines(include_str!("data/hidden_in_home.txt")).collect());

/// Elsewhere, below the visible parts of the system.
pub fn elsewhere() -> impl Iterator<Item = &'static str> {
    list::lines(include_str!("data/hidden_elsewhere.txt"))
}
