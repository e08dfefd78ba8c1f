//! Writes the files that a workload reads: the CA's certificate, and its phantoms.

use super::failure::Failure;
use super::login_files;
use super::write::WrittenFile;
use crate::config::Config;
use crate::credential::login::Login;
use crate::intercept::SessionCa;
use crate::session::phantom::Phantoms;
use crate::session::{Bindings, Session};

/// Files for workloads, written beside the ones that they replace. Nobody reads them yet.
#[derive(Default)]
pub(super) struct Publication(Vec<WrittenFile>);

impl Publication {
    /// Writes the CA's certificate of a session, if the configuration names a file for it.
    ///
    /// # Errors
    /// Returns a [`Failure`] that names the file.
    pub(super) fn certificate(
        &mut self,
        config: &Config,
        session: &Session,
        ca: &SessionCa,
    ) -> Result<(), Failure> {
        let file = config.ca.certificate_of(session.id());
        let Some(path) = file else { return Ok(()) };
        let written = WrittenFile::new(&path, ca.certificate_pem().as_bytes(), 0o644)?;
        self.0.extend(written);
        Ok(())
    }

    /// Writes the phantoms of a session, if the configuration names a file for them, and beside it
    /// the files of these logins.
    ///
    /// # Errors
    /// As [`Publication::certificate`].
    pub(super) fn phantoms(
        &mut self,
        config: &Config,
        (bindings, logins): (&Bindings, &[Login]),
        (session, phantoms): (&Session, &Phantoms),
    ) -> Result<(), Failure> {
        let file = config.phantoms.file_of(session.id());
        let Some(path) = file else { return Ok(()) };
        let lines: String = bindings
            .environment(phantoms)
            .map(|(name, phantom)| super::env::quoted(name, phantom))
            .collect();
        let written = WrittenFile::new(&path, lines.as_bytes(), 0o600)?;
        self.0.extend(written);
        let files = login_files::of(logins, phantoms)?;
        for file in &files {
            let beside = login_files::beside(&path, &file.path);
            self.0
                .extend(WrittenFile::new(&beside, &file.content, 0o600)?);
        }
        Ok(())
    }

    /// Puts all of them in place. Returns what could not be: its folder was written to a moment
    /// ago, so this is rare.
    pub(super) fn publish(self) -> Vec<Failure> {
        let replaced = self.0.into_iter().map(WrittenFile::replace);
        replaced.filter_map(Result::err).collect()
    }
}
