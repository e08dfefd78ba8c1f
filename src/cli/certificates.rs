//! Files of certificates and keys that flags name.

use std::path::Path;

use rustls::pki_types::CertificateDer;

use crate::app::Failure;
use crate::config::{Hint, certificates};
use crate::credential::SecretRef;
use crate::origin::ClientIdentity;

/// Returns the certificates of a file that a flag names.
pub(super) fn read(flag: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = certificates(path.to_owned());
    let read = read.map_err(|hint| unusable(flag, hint));
    read.map(|(_, found)| found)
}

/// Returns the certificate to show, and its key. Its file must be as private as any secret.
pub(super) fn identity(
    (flag, certificate): (&str, &Path),
    (key_flag, key): (&str, &Path),
) -> Result<ClientIdentity, Failure> {
    private(key_flag, &SecretRef::file(key))?;
    Ok(ClientIdentity {
        chain: read(flag, certificate)?,
        key: key.to_owned(),
    })
}

/// Checks that only this user can read a secret that a flag names.
pub(super) fn private(flag: &str, reference: &SecretRef) -> Result<(), Failure> {
    let checked = reference.check();
    checked.map_err(|malformed| unusable(flag, malformed.into()))
}

fn unusable(flag: &str, Hint { why, remedy }: Hint) -> Failure {
    let what = format!("`{flag}` cannot be used");
    Failure::usage(what).because(why).next(remedy)
}
