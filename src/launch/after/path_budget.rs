//! Bounds the memory that a search takes for paths.

use std::path::Path;

/// How many bytes of paths are kept. Those of unusual length have their own share, so that they
/// take nothing from the others.
pub struct PathBudget {
    usual: usize,
    long: usize,
}

impl PathBudget {
    /// Nothing is kept yet.
    pub fn full() -> Self {
        Self {
            usual: USUAL_BYTES,
            long: LONG_BYTES,
        }
    }

    /// Takes the bytes of a path. Returns whether there were enough left.
    pub fn spend(&mut self, path: &Path) -> bool {
        let bytes = path.as_os_str().len();
        let left = match bytes <= USUAL_LENGTH {
            true => &mut self.usual,
            false => &mut self.long,
        };
        let rest = left.checked_sub(bytes);
        *left = rest.unwrap_or(*left);
        rest.is_some()
    }
}

/// The path itself, or the longest of the folders above with a path of a usual length.
pub fn of_usual_length(path: &Path) -> &Path {
    let mut above = path.ancestors();
    above
        .find(|above| above.as_os_str().len() <= USUAL_LENGTH)
        .unwrap_or(path)
}

/// The longest path of a usual length, and the bytes of paths that are kept.
const USUAL_LENGTH: usize = 1024;
const USUAL_BYTES: usize = 64 << 20;
const LONG_BYTES: usize = 4 << 20;
