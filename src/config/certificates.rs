//! Files of certificates: roots, and those of clients.

use std::path::PathBuf;

use gateway_files as files;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::diagnostic::Hint;

/// Certificates, and the file they were read from.
pub type Certificates = (PathBuf, Vec<CertificateDer<'static>>);

/// Reads a file that contains at least one certificate and nothing else. Anyone who can change this
/// file decides whom the gateway trusts.
///
/// # Errors
/// Returns a [`Hint`] if the file cannot be read or holds something else.
pub fn certificates(path: PathBuf) -> Result<Certificates, Hint> {
    let read = files::read(&path, MOST_MIB).map_err(|unfit| Hint::of(&unfit, &path))?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(read.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| hint!("the file is damaged PEM"; "write the certificates as PEM"))?;
    if found.is_empty() {
        return refused!("the file holds no certificate"; "write the certificates as PEM");
    }
    Ok((path, found))
}

/// A bundle of every public root takes less than a quarter of this.
pub(super) const MOST_MIB: u64 = 1;
