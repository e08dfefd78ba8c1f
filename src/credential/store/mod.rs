//! Stores: where secrets are kept, each behind one small trait.
//!
//! To add a store of this machine, write a file beside this one, and extend [`Backend`] and
//! [`Backends`]; one of the configuration, [`StoreKind`].

mod aws;
mod azure;
mod backend;
mod bearer;
mod cache;
mod command;
mod env;
mod error;
mod file;
mod gcp;
mod http;
mod interface;
mod json;
mod kernel;
mod keyring;
mod leased;
mod login;
mod material;
#[cfg(test)]
mod memory;
mod op;
mod reference;
mod settings;
mod systemd;
mod vault;

use std::collections::HashMap;
use std::sync::Arc;

pub use aws::{AwsService, AwsSettings};
pub use backend::{is_store_name, variable_name};
pub use cache::{CachedSecret, SecretSource, Stores, Unavailable};
pub use env::unfit;
pub use error::{ReferenceMalformed, StoreError};
pub use http::{HttpAnswer, HttpClient};
pub use interface::StoreFuture;
pub use keyring::DEFAULT_SERVICE;
pub use login::{ForgetOutcome, KeySource, LoginSettings, Logins, RowLogin, UnreadRow};
pub use op::OpSettings;
pub use reference::SecretRef;
pub use settings::{ConfiguredStore, StoreKind, StoreSettings};
pub use vault::{LoginMethod, VaultLogin, VaultSettings};

pub(super) use keyring::blocking as blocking_keyring;
#[cfg(test)]
pub(super) use {material::Lease, memory::MemoryStore};

use backend::Backend;
use command::CommandStore;
pub use command::tell;
use env::EnvStore;
use file::FileStore;
use gateway_names::SessionId;
use interface::SecretStore;
use kernel::KernelStore;
use keyring::KeyringStore;
use login::LoginStore;
use material::Material;
use systemd::SystemdStore;

/// The store for each kind of reference.
#[derive(Clone)]
struct Backends {
    env: Arc<dyn SecretStore>,
    file: Arc<dyn SecretStore>,
    keyring: Arc<dyn SecretStore>,
    command: Arc<dyn SecretStore>,
    kernel: Arc<dyn SecretStore>,
    systemd: Arc<dyn SecretStore>,
    /// Those of the configuration, by name.
    named: HashMap<Box<str>, Arc<dyn SecretStore>>,
    login: Arc<LoginStore>,
}

impl Backends {
    /// Creates the stores. Variables named by references are read now.
    fn new<'r>(references: impl IntoIterator<Item = &'r SecretRef>) -> Self {
        Self {
            env: Arc::new(EnvStore::capture(references)),
            file: Arc::new(FileStore),
            keyring: Arc::new(KeyringStore::new()),
            command: Arc::new(CommandStore::default()),
            kernel: Arc::new(KernelStore),
            systemd: Arc::new(SystemdStore::new()),
            named: HashMap::new(),
            login: Arc::default(),
        }
    }

    /// Uses one store for all references.
    #[cfg(test)]
    fn all(store: &Arc<dyn SecretStore>) -> Self {
        Self {
            env: store.clone(),
            file: store.clone(),
            keyring: store.clone(),
            command: store.clone(),
            kernel: store.clone(),
            systemd: store.clone(),
            named: HashMap::from([("vault".into(), store.clone())]),
            login: Arc::default(),
        }
    }

    fn each(&self) -> impl Iterator<Item = Arc<dyn SecretStore>> {
        let [env, file, keyring] = [&self.env, &self.file, &self.keyring];
        let local = [
            env,
            file,
            keyring,
            &self.command,
            &self.kernel,
            &self.systemd,
        ];
        let each = local.into_iter().chain(self.named.values()).cloned();
        each.chain([self.login.clone() as Arc<dyn SecretStore>])
    }

    fn of(&self, backend: &Backend) -> Arc<dyn SecretStore> {
        let store = match backend {
            Backend::Env(_) => &self.env,
            Backend::File(_) => &self.file,
            Backend::Keyring(_) => &self.keyring,
            Backend::Command(_) => &self.command,
            Backend::Kernel(_) => &self.kernel,
            Backend::Systemd(_) => &self.systemd,
            Backend::Store(place) => match self.named.get(&place.store) {
                Some(store) => store,
                None => return Arc::new(NotConfigured),
            },
            Backend::Login(_) => return self.login.clone(),
        };
        store.clone()
    }
}

/// Stands in for a store that is not configured.
struct NotConfigured;

impl SecretStore for NotConfigured {
    fn fetch<'a>(&'a self, _: &'a Backend, _: Option<&'a SessionId>) -> StoreFuture<'a, Material> {
        Box::pin(std::future::ready(Err(StoreError::NotConfigured)))
    }
}
