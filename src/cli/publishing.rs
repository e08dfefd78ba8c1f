//! Writes the files that a workload reads: the CA's certificate, and its phantoms.

use super::failure::Failure;
use super::write::write;
use crate::config::Config;
use crate::session::{Bindings, Session};

/// Writes what the workload of a session needs.
///
/// # Errors
/// Returns a [`Failure`] that names the file.
pub fn publish(
    config: &Config,
    bindings: &Bindings,
    session: &Session,
    certificate: &str,
) -> Result<(), Failure> {
    if let Some(path) = config.ca.certificate_of(session.id()) {
        write(&path, certificate.as_bytes(), 0o644)?;
    }
    phantoms(config, bindings, session)
}

/// Writes the phantoms of a session, if the configuration names a file and they changed.
///
/// # Errors
/// As [`publish`].
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
