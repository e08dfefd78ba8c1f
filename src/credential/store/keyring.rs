//! The operating system's key ring, through the Secret Service on the session bus.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gateway_names::SessionId;
use keyring_core::api::CredentialStoreApi as _;
use keyring_core::{Entry, Error};
use tokio::sync::{Semaphore, oneshot};
use zbus_secret_service_keyring_store::Store;
use zeroize::Zeroizing;

use super::material::{Lease, Material};
use super::{Backend, SecretStore, StoreError, StoreFuture};

/// The key ring. It runs on its own thread, because a locked ring prompts its user and may never
/// answer.
pub(super) struct KeyringStore {
    threads: Arc<Semaphore>,
}

impl KeyringStore {
    pub(super) fn new() -> Self {
        Self {
            threads: Arc::new(Semaphore::new(MAX_THREADS)),
        }
    }
}

impl SecretStore for KeyringStore {
    fn fetch<'a>(
        &'a self,
        from: &'a Backend,
        _: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Material> {
        Box::pin(async move {
            let Backend::Keyring(item) = from else {
                return Err(StoreError::Absent);
            };
            // The thread holds this permit, so that rings that never answer cannot pile up threads.
            let permit = Arc::clone(&self.threads).try_acquire_owned().map_err(|_| {
                StoreError::Unreachable("earlier questions to the key ring are unanswered")
            })?;
            let item = item.clone();
            let (sender, receiver) = oneshot::channel();
            std::thread::Builder::new()
                .name("key-ring".to_owned())
                .spawn(move || {
                    let _permit = permit;
                    // A failure means that the receiver is gone.
                    let _ = sender.send(blocking::get(&item.service, &item.name));
                })
                .map_err(|_| StoreError::Unreachable("no thread for the key ring"))?;
            let value = tokio::time::timeout(DEADLINE, receiver)
                .await
                .map_err(|_| StoreError::TimedOut(DEADLINE))?
                .map_err(|_| StoreError::Unreachable("the key ring's thread ended"))??;
            Ok(Material::single(value, Some(Lease::of(TTL))))
        })
    }
}

/// The blocking operations of the key ring.
pub(crate) mod blocking {
    use super::*;

    /// Reads an item.
    pub(crate) fn get(service: &str, name: &str) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        entry(service, name)?
            .get_secret()
            .map(Zeroizing::new)
            .map_err(|error| cause(&error))
    }

    /// Writes or replaces an item.
    pub(crate) fn set(service: &str, name: &str, value: &[u8]) -> Result<(), StoreError> {
        entry(service, name)?
            .set_secret(value)
            .map_err(|error| cause(&error))
    }

    /// Deletes an item.
    pub(crate) fn delete(service: &str, name: &str) -> Result<(), StoreError> {
        entry(service, name)?
            .delete_credential()
            .map_err(|error| cause(&error))
    }

    /// The names of a service's items, sorted.
    pub(crate) fn list(service: &str) -> Result<Vec<String>, StoreError> {
        let store = Store::new().map_err(|error| cause(&error))?;
        let found = store.search(&[("service", service)].into());
        let found = found.map_err(|error| cause(&error))?;
        let specifiers = found.iter().filter_map(Entry::get_specifiers);
        let names: BTreeSet<String> = specifiers.map(|(_, name)| name).collect();
        Ok(names.into_iter().collect())
    }

    fn entry(service: &str, name: &str) -> Result<Entry, StoreError> {
        let store = Store::new().map_err(|error| cause(&error))?;
        store
            .build(service, name, None)
            .map_err(|error| cause(&error))
    }
}

/// Returns the cause, without the crate's text, which can contain an item's bytes (`BadEncoding`).
fn cause(error: &Error) -> StoreError {
    match error {
        Error::NoEntry => StoreError::Absent,
        Error::NoStorageAccess(_) => {
            StoreError::Unreachable("the key ring is locked or refuses access")
        }
        Error::PlatformFailure(_) => {
            StoreError::Unreachable("no Secret Service answers on the session's bus")
        }
        Error::Ambiguous(_) => {
            StoreError::Unreachable("several items have this name; remove all but one")
        }
        _ => StoreError::Unreachable("the key ring refused the question"),
    }
}

/// The key ring service used if a reference names none.
pub const DEFAULT_SERVICE: &str = "gateway";
const TTL: Duration = Duration::from_secs(300);
const DEADLINE: Duration = Duration::from_secs(30);
const MAX_THREADS: usize = 4;
