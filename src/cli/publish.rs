//! Writes what a workload of `gateway serve` needs: the CA's certificate, and its phantoms.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::failure::Failure;
use crate::config::Config;
use crate::names::SessionId;
use crate::session::{Bindings, Session};

/// Writes the certificate of a session's CA, if the configuration names a file.
///
/// # Errors
/// Returns a [`Failure`] that names the file.
pub fn certificate(config: &Config, session: &SessionId, pem: &str) -> Result<(), Failure> {
    match config.ca.certificate_of(session) {
        Some(path) => write(&path, pem.as_bytes(), 0o644),
        None => Ok(()),
    }
}

/// Writes the phantoms of a session, if the configuration names a file and they changed.
///
/// # Errors
/// Returns a [`Failure`] that names the file.
pub fn phantoms(config: &Config, bindings: &Bindings, session: &Session) -> Result<(), Failure> {
    let Some(path) = config.phantoms.file_of(session.id()) else {
        return Ok(());
    };
    let lines: String = bindings
        .environment(&session.phantoms())
        .map(|(name, phantom)| super::env::quoted(name, phantom))
        .collect();
    if std::fs::read(&path).is_ok_and(|known| known == lines.as_bytes()) {
        return Ok(());
    }
    write(&path, lines.as_bytes(), 0o600)
}

/// Replaces a file atomically: a reader sees either the old one or the new one.
fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), Failure> {
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
