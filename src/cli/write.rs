//! Writes files that other programs read.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::failure::Failure;

/// Replaces a file atomically: a reader sees either the old one or the new one.
///
/// # Errors
/// Returns a [`Failure`] that names the file.
pub fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), Failure> {
    let mut random = [0; 8];
    let mut beside = path.as_os_str().to_owned();
    let written = (|| {
        // A random name, so that a leftover of an earlier process with the same number is not in
        // the way. In a container, process numbers repeat.
        getrandom::fill(&mut random).map_err(|error| std::io::Error::other(error.to_string()))?;
        beside.push(format!(".{:016x}", u64::from_le_bytes(random)));
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&beside)?;
        file.write_all(content)?;
        std::fs::rename(&beside, path)
    })();
    written.map_err(|error: std::io::Error| {
        // The file may not exist. The failure below says more than an error here would.
        let _ = std::fs::remove_file(&beside);
        Failure::new(format!("`{}` cannot be written", path.display())).because(error.to_string())
    })
}
