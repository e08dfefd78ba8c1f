//! The files of a configuration: the gateway's own, and those that hold secrets.

use std::path::{Path, PathBuf};

use gateway_credential::{SecretRef, StoreSettings, UpstreamLogin};
use gateway_names::hex;
use sha2::{Digest as _, Sha256};

use super::credential::Credential;
use super::listener::ListenerTls;
use super::login::ConfiguredLogin;
use super::state::real;
use super::{Config, NotifySettings, WebhookSettings, state};

impl Config {
    /// Returns the folder of the audit log, with links resolved: the one of the configured file,
    /// else the user's.
    pub fn audit_folder(&self) -> Option<PathBuf> {
        let named = self.audit.path.as_deref().map(real);
        let folder = named.map(|file| file.parent().map(Path::to_owned));
        folder.unwrap_or_else(|| state::audit_directory().map(|folder| real(&folder)))
    }

    /// Returns the folder of the state, with links resolved.
    pub fn state_folder(&self) -> Option<PathBuf> {
        let named = self.state.path.as_deref().map(real);
        let folder = named.map(|file| file.parent().map(Path::to_owned));
        folder.unwrap_or_else(|| state::sessions_folder().map(|folder| real(&folder)))
    }

    /// Returns the file of the state: the configured one, else the one of `gateway exec`, or of
    /// `gateway serve` with this configuration.
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

    /// Whether the state is kept by a server of this machine at a port.
    pub(super) fn keeps_state_at(&self, port: u16) -> bool {
        let fleet = self.state.fleet.as_ref();
        fleet.is_some_and(|fleet| fleet.url.is_at(port))
    }

    fn fleet_password(&self) -> Option<&SecretRef> {
        self.state.fleet.as_ref()?.password.as_ref()
    }

    /// Returns the servers whose answers decide.
    pub(super) fn webhooks(&self) -> impl Iterator<Item = &WebhookSettings> {
        self.notify.iter().filter_map(|one| match one {
            NotifySettings::Webhook(webhook) => Some(webhook),
            _ => None,
        })
    }

    /// Returns the files that the gateway writes.
    fn written_files(&self) -> Vec<PathBuf> {
        let written = [
            &self.audit.path,
            &self.state.path,
            &self.ca.certificate,
            &self.phantoms.env_file,
            &self.control.path,
        ];
        written.into_iter().flatten().cloned().collect()
    }

    /// Returns the files that the gateway itself reads or writes, except those that hold secrets.
    /// No workload may see or change them.
    pub fn own_files(&self) -> Vec<PathBuf> {
        let mut files = self.written_files();
        let single = [&self.file, &self.user, &self.control.policy, &self.granted];
        files.extend(single.into_iter().flatten().cloned());
        files.extend(self.policy.paths());
        files.extend(self.recipe_files());
        files.extend(self.own_presets.iter().map(|(file, _)| file.clone()));
        let origins = self.origins.iter().map(|origin| &origin.files);
        let stores = self.stores.iter().map(|store| &store.files);
        let exports = self.exports.iter().map(|export| &export.files);
        let webhooks = self.webhooks().map(|webhook| &webhook.files);
        let fleet = self.state.fleet.iter().map(|fleet| &fleet.roots.0);
        let roots = origins
            .chain([&self.defaults.files])
            .chain(stores)
            .chain(fleet);
        files.extend(roots.chain(exports).chain(webhooks).flatten().cloned());
        files.extend(self.doors().flat_map(|tls| &tls.files).cloned());
        let jwts = self.listeners.iter().filter_map(|one| one.jwt.as_ref());
        files.extend(jwts.filter_map(|jwt| jwt.file()).map(Path::to_owned));
        files
    }

    /// Returns the files that the configuration is read from: its own, and those that it names.
    /// Secrets are read at their use, and are not among them.
    pub fn input_files(&self) -> Vec<PathBuf> {
        let written = self.written_files();
        let mut files = self.own_files();
        files.retain(|file| !written.contains(file));
        files.extend(self.identity_keys());
        files.extend(self.project.clone());
        files
    }

    /// Returns the TLS of each server of the gateway.
    fn doors(&self) -> impl Iterator<Item = &ListenerTls> {
        let listeners = self.listeners.iter().filter_map(|one| one.tls.as_ref());
        listeners.chain(self.control.port.as_ref().map(|(_, tls)| tls))
    }

    /// Returns the keys of client certificates, and those of proxies.
    fn identity_keys(&self) -> impl Iterator<Item = PathBuf> {
        let identities = self.origins.iter();
        let identities = identities.filter_map(|origin| origin.rule.identity.as_ref());
        let keys = identities.map(|identity| &identity.key);
        keys.chain(self.doors().map(|tls| &tls.key)).cloned()
    }

    fn recipe_files(&self) -> impl Iterator<Item = PathBuf> {
        let signing = self.credentials.iter();
        let signing = signing.filter_map(|one| one.signing.as_ref());
        signing.filter_map(|signing| signing.recipe_file.clone())
    }

    /// Returns the secrets that the gateway itself uses, each with its use.
    pub fn own_references(&self) -> impl Iterator<Item = (&'static str, &SecretRef)> {
        let stores = self.stores.iter().flat_map(StoreSettings::references);
        let exports = self.exports.iter().flat_map(|export| &export.token);
        let logins = self.logins.iter().flat_map(ConfiguredLogin::references);
        let proxies = self.upstream_logins().map(UpstreamLogin::reference);
        stores
            .map(|one| ("logs in to a store", one))
            .chain(exports.map(|one| ("exports its records", one)))
            .chain(logins.map(|one| ("gets tokens", one)))
            .chain(self.webhooks().map(|one| ("asks a webhook", &one.key)))
            .chain(self.fleet_password().map(|one| ("keeps its state", one)))
            .chain(proxies.map(|one| ("logs in to a proxy", one)))
    }

    /// Returns the files that hold secrets.
    pub fn secret_files(&self) -> Vec<PathBuf> {
        let secrets = self.credentials.iter().flat_map(Credential::references);
        let passwords = self.listeners.iter().flat_map(|one| &one.passwords);
        let all = secrets
            .chain(passwords.map(|(_, password)| password))
            .chain(self.own_references().map(|(_, one)| one))
            .chain(&self.state.key)
            .chain(self.state.fleet.iter().flat_map(|fleet| &fleet.password));
        let files = all.filter_map(|reference| reference.path().map(Path::to_owned));
        let stores = self.stores.iter().flat_map(StoreSettings::secret_files);
        files
            .chain(self.identity_keys())
            .chain(stores.cloned())
            .collect()
    }
}

/// Returns whether a path leads into a folder.
pub(super) fn within(path: &Path, folder: &Path) -> bool {
    real(path).starts_with(real(folder))
}
