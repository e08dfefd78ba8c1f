//! Writes files that other programs read.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::failure::Failure;

/// Replaces a file atomically: a reader sees either the old one or the new one.
///
/// The new content is written to `NAME.new` first. What a killed gateway left there is replaced, so
/// that leftovers do not pile up.
///
/// # Errors
/// Returns a [`Failure`] that names the file.
pub fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), Failure> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let written = (|| {
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Another's file or link of this name, made meanwhile, is refused.
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
