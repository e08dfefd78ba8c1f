//! The real path of a file or folder.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Returns the real path of a file or folder in one lookup; `fs::canonicalize` has one per part.
///
/// # Errors
/// The error of opening the path.
pub fn real_path(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref();
    let mut options = File::options();
    let file = options.read(true).custom_flags(O_PATH).open(path)?;
    let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // Without /proc, part by part.
    real.or_else(|_| path.canonicalize())
}

/// `O_PATH` of Linux.
const O_PATH: i32 = 0o10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_standard_library_finds() {
        for path in ["/proc/self/exe", "/", "/bin/sh", "/usr/../etc", "."] {
            let expected = Path::new(path).canonicalize().unwrap();
            assert_eq!(real_path(path).unwrap(), expected, "{path}");
        }
        assert!(real_path("/nowhere").is_err() && real_path("/etc/passwd/x").is_err());
    }
}
