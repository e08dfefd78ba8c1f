//! Credentials that systemd passes to its service: files in `$CREDENTIALS_DIRECTORY`
//! (systemd.exec(5), `LoadCredential=`).

use std::path::PathBuf;

use gateway_names::SessionId;

use super::file::{LEASE, blocking, read_shared};
use super::json::bytes;
use super::material::Material;
use super::{Backend, SecretStore, StoreError, StoreFuture};

/// The credentials of this service.
pub(super) struct SystemdStore {
    folder: Option<PathBuf>,
}

impl SystemdStore {
    /// Reads the variable, whose value is the same for the service's whole life.
    pub(super) fn new() -> Self {
        let folder = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        let folder = folder.filter(|folder| folder.is_absolute());
        Self { folder }
    }
}

impl SecretStore for SystemdStore {
    fn fetch<'a>(
        &'a self,
        from: &'a Backend,
        _: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Material> {
        Box::pin(async move {
            let Backend::Systemd(name) = from else {
                return Err(StoreError::Absent);
            };
            let folder = self.folder.as_ref().ok_or(StoreError::Unreachable(NONE))?;
            let path = folder.join(&**name);
            // The file is root's. Its access list lets us read; its mask shows as the group's.
            let text = blocking(move || read_shared(&path)).await?;
            Ok(Material::single(bytes(&text), Some(LEASE)))
        })
    }
}

const NONE: &str = "systemd passed no credentials to this process; write `LoadCredential=` or \
                    `LoadCredentialEncrypted=` into its unit";
