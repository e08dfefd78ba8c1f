//! The files of a configuration: those that the gateway itself reads or writes, and those that hold
//! secrets.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::credential::{UpstreamLogin, VaultSettings};
use crate::files::Consent;
use crate::names::hex;

use super::credential::Credential;
use super::listener::ListenerKind;
use super::login::OwnLogin;
use super::state::real;
use super::{Config, state};

impl Config {
    /// Returns the folder of the audit log, with links resolved: that of the configured file, else
    /// that of the user's logs.
    #[must_use]
    pub fn audit_folder(&self) -> Option<PathBuf> {
        let named = self.audit.path.as_deref().map(real);
        let folder = named.map(|file| file.parent().map(Path::to_owned));
        folder.unwrap_or_else(|| state::audit_directory().map(|folder| real(&folder)))
    }

    /// Returns the folder of the state, with links resolved.
    #[must_use]
    pub fn state_folder(&self) -> Option<PathBuf> {
        let named = self.state.path.as_deref().map(real);
        let folder = named.map(|file| file.parent().map(Path::to_owned));
        folder.unwrap_or_else(|| state::sessions_folder().map(|folder| real(&folder)))
    }

    /// Returns the file of the state: the configured one, else one of `gateway exec` or of this
    /// configuration of `gateway serve`.
    #[must_use]
    pub fn state_file(&self, serves: bool) -> Option<PathBuf> {
        if let Some(path) = &self.state.path {
            return Some(path.clone());
        }
        let name = match &self.file {
            Some(file) if serves => {
                let digest = Sha256::digest(real(file).as_os_str().as_encoded_bytes());
                format!("serve-{}.db", hex(&digest[..8]))
            }
            _ => String::from("exec.db"),
        };
        state::sessions_folder().map(|folder| folder.join(name))
    }

    /// Returns the files that the gateway itself reads or writes, except those that hold secrets.
    /// No workload may see or change them.
    #[must_use]
    pub fn own_files(&self) -> Vec<PathBuf> {
        let origins = self.origins.iter().map(|origin| &origin.files);
        let roots = origins.chain([&self.defaults.files]).flatten().cloned();
        let single = [
            &self.file,
            &self.user,
            &self.audit.path,
            &self.state.path,
            &self.ca.certificate,
            &self.phantoms.env_file,
            &self.control.path,
            &self.control.policy,
            &self.granted,
        ];
        single
            .into_iter()
            .flatten()
            .cloned()
            .chain(self.policy.paths())
            .chain(roots)
            .chain(self.recipe_files())
            .chain(self.vault.iter().flat_map(|vault| vault.files.clone()))
            .chain(self.exports.iter().flat_map(|export| export.files.clone()))
            .collect()
    }

    /// Returns the files that the configuration is read from: its own, those that it names, and
    /// what a person decided about each.
    /// Secrets are read when they are needed, and are not among them.
    #[must_use]
    pub fn input_files(&self) -> Vec<PathBuf> {
        let written = [
            &self.audit.path,
            &self.state.path,
            &self.ca.certificate,
            &self.phantoms.env_file,
            &self.control.path,
        ];
        let mut files = self.own_files();
        files.retain(|file| !written.iter().any(|output| output.as_ref() == Some(file)));
        let identities = self.origins.iter();
        let identities = identities.filter_map(|origin| origin.rule.identity.as_ref());
        files.extend(identities.map(|identity| identity.key.clone()));
        files.extend(self.project.clone());
        let decisions = files.iter().map(|file| Consent::kept_at(&real(file)));
        let decisions: Vec<PathBuf> = decisions.flatten().collect();
        files.extend(decisions);
        files
    }

    fn recipe_files(&self) -> impl Iterator<Item = PathBuf> {
        let signing = self
            .credentials
            .iter()
            .filter_map(|one| one.signing.as_ref());
        signing.filter_map(|signing| signing.recipe_file.clone())
    }

    /// Returns the files that hold secrets.
    #[must_use]
    pub fn secret_files(&self) -> Vec<PathBuf> {
        let secrets = self.credentials.iter().flat_map(Credential::references);
        let logins = self.logins.iter().flat_map(OwnLogin::references);
        let passwords = self
            .listeners
            .iter()
            .filter_map(|listener| match &listener.kind {
                ListenerKind::Proxy { authentication } => authentication
                    .as_ref()
                    .map(|authentication| &authentication.password),
                ListenerKind::Tls { .. } => None,
            });
        let keys = self
            .origins
            .iter()
            .filter_map(|origin| Some(origin.rule.identity.as_ref()?.key.clone()));
        secrets
            .chain(logins)
            .chain(passwords)
            .chain(self.vault.iter().flat_map(VaultSettings::references))
            .chain(&self.state.key)
            .chain(self.upstream_logins().map(UpstreamLogin::reference))
            .chain(
                self.exports
                    .iter()
                    .filter_map(|export| export.token.as_ref()),
            )
            .filter_map(|reference| reference.path().map(Path::to_owned))
            .chain(keys)
            .chain(
                self.vault
                    .iter()
                    .flat_map(VaultSettings::secret_files)
                    .cloned(),
            )
            .collect()
    }
}

/// Returns whether a path leads into a folder.
pub(super) fn within(path: &Path, folder: &Path) -> bool {
    real(path).starts_with(real(folder))
}
