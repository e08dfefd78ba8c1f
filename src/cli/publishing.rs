//! Writes the files that a workload reads: the CA's certificate, and its phantoms.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::failure::Failure;
use crate::config::Config;
use crate::session::Session;

/// Writes what the workload of a session needs.
///
/// # Errors
/// Returns a [`Failure`] that names the file.
pub fn publish(config: &Config, session: &Session, certificate: &str) -> Result<(), Failure> {
    if let Some(path) = config.ca.certificate_of(session.id()) {
        write(&path, certificate.as_bytes(), 0o644)?;
    }
    if let Some(path) = config.phantoms.file_of(session.id()) {
        let lines: String = session
            .bindings()
            .environment(&session.phantoms())
            .map(|(name, phantom)| super::env::quoted(name, phantom))
            .collect();
        write(&path, lines.as_bytes(), 0o600)?;
    }
    Ok(())
}

/// Replaces a file atomically: a reader sees either the old one or the new one.
///
/// The new content is written to `NAME.new` first. What a killed gateway left there is replaced, so
/// that leftovers do not pile up. Only the gateway that has the listeners gets here.
fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), Failure> {
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
