//! Stores: where secrets are kept, each behind one small trait.
//!
//! A new store is a file beside this one, and its lines in [`Backend`] and [`Backends`].

mod cache;
mod command;
mod env;
mod error;
mod file;
mod http;
mod keyring;
mod material;
mod memory;
mod reference;
mod vault;

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

pub use self::Answer as StoreAnswer;
pub use cache::{CachedSecret, Source, Stores, Unavailable};
pub use env::{EnvStore, variable_name};
pub use error::StoreError;
pub use http::{HttpAnswer, HttpClient};
pub use keyring::DEFAULT_SERVICE;
pub use material::{Lease, Material};
pub use memory::MemoryStore;
pub use reference::{Malformed, SecretRef};
pub use vault::{Login, LoginMethod, VaultSettings};

pub(super) use keyring::blocking as blocking_keyring;

use command::{CommandLine, CommandStore};
use file::{FileStore, SecretFile};
use keyring::{Item, KeyringStore};
pub use vault::VaultPath;

/// A place from which secrets are fetched.
pub trait SecretStore: Send + Sync {
    /// Reads everything that is kept in one place, as one reading, within the store's own deadline.
    ///
    /// Dropping the future ends the work: nothing that it started outlives it but a key ring's own
    /// answer.
    fn fetch<'a>(&'a self, from: &'a Backend) -> Answer<'a, Material>;

    /// Extends a lease; what was read under it serves on.
    ///
    /// # Errors
    /// [`StoreError::NotRenewable`] where the store does not do that: the secret is fetched anew.
    fn renew<'a>(&'a self, _lease: &'a Lease) -> Answer<'a, Lease> {
        Box::pin(std::future::ready(Err(StoreError::NotRenewable)))
    }

    /// Keeps alive what the store itself needs; called about every second.
    fn tend(&self) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Ends the store's own login, with the process.
    fn close(&self) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Ends a lease: the store makes what was read under it worthless.
    fn revoke<'a>(&'a self, _lease: &'a Lease) -> Answer<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A store's answer, under way.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Where a secret is kept, in the words of its store.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Backend {
    /// A variable of the gateway's own environment.
    Env(String),
    /// A file that holds nothing else, and that its owner alone can read.
    File(SecretFile),
    /// An item of the operating system's key ring.
    Keyring(Item),
    /// What a program prints.
    Command(CommandLine),
    /// What a Vault or OpenBao keeps or issues.
    Vault(VaultPath),
}

impl Backend {
    /// Whether the store makes a new secret for each session, which ends with it.
    fn is_issued(&self) -> bool {
        match self {
            Self::Vault(path) => path.issued,
            Self::Env(_) | Self::File(_) | Self::Keyring(_) | Self::Command(_) => false,
        }
    }

    /// Reads what stands behind the scheme of a reference, and which field is meant there; `path`
    /// makes a path of its text.
    fn parse<E: From<Malformed>>(
        scheme: &str,
        rest: &str,
        path: impl FnOnce(&str) -> Result<PathBuf, E>,
    ) -> Result<(Self, Option<Box<str>>), E> {
        let vault = |(path, field)| (Self::Vault(path), Some(field));
        let whole = match scheme {
            "vault" => return Ok(vault(VaultPath::parse(rest)?)),
            "vault-lease" => return Ok(vault(VaultPath::parse_issued(rest)?)),
            "env" => Self::Env(variable_name(rest)?.to_owned()),
            "file" => Self::File(SecretFile::checked(path(rest)?)?),
            "keyring" => Self::Keyring(Item::parse(rest)?),
            "command" => return Err(CommandLine::not_a_text().into()),
            _ => return Err(reference::unknown_scheme().into()),
        };
        Ok((whole, None))
    }
}

/// Shows the store and the name; of a command the program alone, for arguments can be private.
impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(file) => write!(f, "file:{file}"),
            Self::Keyring(item) => write!(f, "keyring:{item}"),
            Self::Command(line) => write!(f, "command:{line}"),
            Self::Vault(path) => path.fmt(f),
        }
    }
}

/// The stores at work.
struct Backends {
    env: Arc<dyn SecretStore>,
    file: Arc<dyn SecretStore>,
    keyring: Arc<dyn SecretStore>,
    command: Arc<dyn SecretStore>,
    vault: Option<Arc<dyn SecretStore>>,
}

/// A Vault by its settings, and the client that reaches its servers.
pub type Vault = (VaultSettings, Arc<dyn HttpClient>);

impl Backends {
    /// Variables are read now, for the references that name one.
    fn new<'r>(references: impl IntoIterator<Item = &'r SecretRef>) -> Self {
        Self {
            env: Arc::new(EnvStore::capture(references)),
            file: Arc::new(FileStore),
            keyring: Arc::new(KeyringStore::new()),
            command: Arc::new(CommandStore::default()),
            vault: None,
        }
    }

    /// One store in place of all, whatever a reference names.
    fn all(store: &Arc<dyn SecretStore>) -> Self {
        Self {
            env: store.clone(),
            file: store.clone(),
            keyring: store.clone(),
            command: store.clone(),
            vault: Some(store.clone()),
        }
    }

    fn each(&self) -> impl Iterator<Item = &Arc<dyn SecretStore>> {
        let local = [&self.env, &self.file, &self.keyring, &self.command];
        local.into_iter().chain(&self.vault)
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
        };
        store.clone()
    }
}

/// What stands for a store without settings.
struct NotConfigured;

impl SecretStore for NotConfigured {
    fn fetch<'a>(&'a self, _: &'a Backend) -> Answer<'a, Material> {
        Box::pin(std::future::ready(Err(StoreError::NotConfigured)))
    }
}
