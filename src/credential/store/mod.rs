//! Stores: where secrets are kept, each behind one small trait.
//!
//! To add a store, write a file beside this one, and extend [`Backend`] and [`Backends`].

mod backend;
mod cache;
mod command;
mod env;
mod error;
mod file;
mod http;
mod interface;
mod keyring;
mod leased;
mod login;
mod material;
#[cfg(test)]
mod memory;
mod reference;
mod vault;

use std::sync::Arc;

pub use backend::variable_name;
pub use cache::{CachedSecret, SecretSource, Stores, Unavailable};
pub use env::unfit;
pub use error::{ReferenceMalformed, StoreError};
pub use http::{HttpAnswer, HttpClient};
pub use interface::StoreFuture;
pub use keyring::DEFAULT_SERVICE;
pub use login::{ForgetOutcome, KeySource, LoginSettings, Logins, RowLogin, UnreadRow};
pub use reference::SecretRef;
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
use keyring::KeyringStore;
use login::LoginStore;
use material::Material;

/// The store for each kind of reference.
#[derive(Clone)]
struct Backends {
    env: Arc<dyn SecretStore>,
    file: Arc<dyn SecretStore>,
    keyring: Arc<dyn SecretStore>,
    command: Arc<dyn SecretStore>,
    vault: Option<Arc<dyn SecretStore>>,
    login: Arc<LoginStore>,
}

/// The settings of a Vault, and the client that reaches its servers.
pub type Vault = (VaultSettings, Arc<dyn HttpClient>);

impl Backends {
    /// Creates the stores. Variables named by references are read now.
    fn new<'r>(references: impl IntoIterator<Item = &'r SecretRef>) -> Self {
        Self {
            env: Arc::new(EnvStore::capture(references)),
            file: Arc::new(FileStore),
            keyring: Arc::new(KeyringStore::new()),
            command: Arc::new(CommandStore::default()),
            vault: None,
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
            vault: Some(store.clone()),
            login: Arc::default(),
        }
    }

    fn each(&self) -> impl Iterator<Item = Arc<dyn SecretStore>> {
        let local = [&self.env, &self.file, &self.keyring, &self.command];
        let each = local.into_iter().chain(&self.vault).cloned();
        each.chain([self.login.clone() as Arc<dyn SecretStore>])
    }

    fn of(&self, backend: &Backend) -> Arc<dyn SecretStore> {
        let store = match backend {
            Backend::Env(_) => &self.env,
            Backend::File(_) => &self.file,
            Backend::Keyring(_) => &self.keyring,
            Backend::Command(_) => &self.command,
            Backend::Vault(_) => match &self.vault {
                Some(vault) => vault,
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
