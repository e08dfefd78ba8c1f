//! Holds fetched secrets for as long as they may serve; one fetch at a time for each reference.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::command::{CommandStore, DEADLINE};
use super::file::FileStore;
use super::keyring::KeyringStore;
use super::{EnvStore, SecretStore, StoreError};
use crate::credential::secret::Secret;
use crate::session::{Keeper, Reference};

/// A secret, and until when it may be put into a request.
#[derive(Clone)]
pub struct Lease {
    /// The secret.
    pub secret: Arc<Secret>,
    /// When it may no longer be used; `None` is never.
    pub expires: Option<Instant>,
    /// Which run of a program it is of, where its other parts must be of the same.
    pub run: Option<u64>,
}

/// A reference had no usable secret; nothing is sent. Its text is for the operator's log, never for
/// the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no secret from `{reference}`: {cause}")]
pub struct Unavailable {
    /// Where it was looked for.
    pub reference: Reference,
    /// Why there is none.
    pub cause: StoreError,
}

/// All stores, and what was fetched from them.
pub struct Stores {
    env: Arc<dyn SecretStore>,
    file: Arc<dyn SecretStore>,
    keyring: Arc<dyn SecretStore>,
    command: Arc<dyn SecretStore>,
    slots: Mutex<HashMap<Reference, Source>>,
}

/// One reference's secret, fetched when first needed, refreshed before it expires, never used
/// after.
#[derive(Clone)]
pub struct Source(Arc<Slot>);

struct Slot {
    reference: Reference,
    store: Arc<dyn SecretStore>,
    held: ArcSwapOption<Held>,
    /// Whoever fetches holds it; it remembers the last failure, so that a broken store is asked
    /// once a second.
    flight: Arc<tokio::sync::Mutex<Option<(Instant, StoreError)>>>,
}

struct Held {
    lease: Lease,
    refresh_at: Option<Instant>,
}

impl Stores {
    /// The real stores. Variables are read now, for the references that name one.
    #[must_use]
    pub fn new<'r>(references: impl IntoIterator<Item = &'r Reference>) -> Self {
        Self {
            env: Arc::new(EnvStore::capture(references)),
            file: Arc::new(FileStore),
            keyring: Arc::new(KeyringStore::new()),
            command: Arc::new(CommandStore::new(DEADLINE)),
            slots: Mutex::default(),
        }
    }

    /// One store in place of all, whatever kind a reference names.
    #[must_use]
    pub fn with(store: Arc<dyn SecretStore>) -> Self {
        Self {
            env: Arc::clone(&store),
            file: Arc::clone(&store),
            keyring: Arc::clone(&store),
            command: store,
            slots: Mutex::default(),
        }
    }

    /// The source of a reference's secret. Sources of one reference share one fetch and one secret.
    #[must_use]
    pub fn source(&self, reference: &Reference) -> Source {
        // Every change leaves the map whole, so a panic elsewhere must not stop the gateway.
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let made = slots.entry(reference.clone()).or_insert_with(|| {
            let store = match reference.keeper {
                Keeper::Env(_) => &self.env,
                Keeper::File(_) => &self.file,
                Keeper::Keyring { .. } => &self.keyring,
                Keeper::Command(_) => &self.command,
            };
            Source(Arc::new(Slot {
                reference: reference.clone(),
                store: Arc::clone(store),
                held: ArcSwapOption::empty(),
                flight: Arc::default(),
            }))
        });
        made.clone()
    }

    /// Forgets the references that configuration no longer names.
    pub fn retain(&self, named: impl Fn(&Reference) -> bool) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|reference, _| named(reference));
    }

    /// Fetches what a reference names, or takes what is held.
    ///
    /// # Errors
    /// As [`Source::resolve`].
    pub async fn resolve(&self, reference: &Reference) -> Result<Lease, Unavailable> {
        self.source(reference).resolve().await
    }
}

impl Source {
    /// The reference.
    #[must_use]
    pub fn reference(&self) -> &Reference {
        &self.0.reference
    }

    /// The secret, from memory while it serves, else from its store.
    ///
    /// Past 80 per cent of its life the store is asked again in the background; what is held serves
    /// until then. Cancel safe: a dropped call leaves the fetch to the next.
    ///
    /// # Errors
    /// [`Unavailable`] where the store has none or fails and none that is held still serves.
    pub async fn resolve(&self) -> Result<Lease, Unavailable> {
        let slot = &self.0;
        let held = slot.held.load();
        let now = Instant::now();
        if let Some(held) = held.as_ref().filter(|held| held.serves(now)) {
            if held.refresh_at.is_some_and(|due| due <= now) {
                self.refresh();
            }
            return Ok(held.lease.clone());
        }
        drop(held);
        // Rare and large: boxed, so that the usual exchange does not carry room for it.
        let fetched = Box::pin(async {
            let flight = Arc::clone(&slot.flight).lock_owned().await;
            slot.fetch(flight).await
        });
        fetched.await.map_err(|cause| Unavailable {
            reference: slot.reference.clone(),
            cause,
        })
    }

    /// Forgets the secret, so that the next use asks the store.
    pub fn forget(&self) {
        self.0.held.store(None);
    }

    /// Asks the store in the background, unless somebody does. The task ends by the store's own
    /// deadline.
    fn refresh(&self) {
        let Ok(flight) = Arc::clone(&self.0.flight).try_lock_owned() else {
            return;
        };
        if failed_lately(&flight).is_none() {
            let slot = Arc::clone(&self.0);
            // Its failure is kept in the flight and met by whoever needs the secret once it has
            // expired.
            tokio::spawn(async move { slot.fetch_again(flight).await.map(drop) });
        }
    }
}

type Flight = OwnedMutexGuard<Option<(Instant, StoreError)>>;

impl Slot {
    /// Takes what another flight brought meanwhile, or its fresh failure, or fetches.
    async fn fetch(&self, flight: Flight) -> Result<Lease, StoreError> {
        let now = Instant::now();
        if let Some(held) = self.held.load().as_ref().filter(|held| held.serves(now)) {
            return Ok(held.lease.clone());
        }
        self.fetch_again(flight).await
    }

    async fn fetch_again(&self, mut flight: Flight) -> Result<Lease, StoreError> {
        if let Some(cause) = failed_lately(&flight) {
            return Err(cause);
        }
        let asked = Instant::now();
        match self.store.fetch(&self.reference).await {
            Ok(fetched) => {
                *flight = None;
                // An unchanged secret stays the same object, so that what was built from it is
                // still right.
                let secret = match self.held.load().as_ref() {
                    Some(held) if held.lease.secret.is(fetched.secret.expose()) => {
                        Arc::clone(&held.lease.secret)
                    }
                    _ => fetched.secret,
                };
                // Counted from the question, for the secret may have been made then.
                let lease = Lease {
                    secret,
                    expires: fetched.lifetime.map(|life| asked + life.expires_after),
                    run: fetched.run,
                };
                let refresh_at = fetched.lifetime.map(|life| asked + life.refresh_after);
                self.held.store(Some(Arc::new(Held {
                    lease: lease.clone(),
                    refresh_at,
                })));
                Ok(lease)
            }
            Err(cause) => {
                *flight = Some((Instant::now(), cause.clone()));
                Err(cause)
            }
        }
    }
}

fn failed_lately(flight: &Flight) -> Option<StoreError> {
    flight
        .as_ref()
        .filter(|(at, _)| at.elapsed() < RETRY_AFTER)
        .map(|(_, cause)| cause.clone())
}

impl Held {
    fn serves(&self, now: Instant) -> bool {
        self.lease.expires.is_none_or(|end| now < end)
    }
}

const RETRY_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::super::{Lifetime, MemoryStore};
    use super::*;

    const NAME: &str = "env:TOKEN";

    fn stage() -> (Arc<MemoryStore>, Source) {
        let store = Arc::new(MemoryStore::default());
        let stores = Stores::with(Arc::<MemoryStore>::clone(&store));
        let source = stores.source(&Reference::env("TOKEN"));
        (store, source)
    }

    fn millis(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    async fn holds(source: &Source, value: &[u8]) -> bool {
        source.resolve().await.ok().unwrap().secret.is(value)
    }

    #[tokio::test]
    async fn a_hundred_at_once_are_one_fetch() {
        let (store, source) = stage();
        store.put(NAME, b"CANARY-0001", None).unwrap();
        store.slow(NAME, millis(50));
        let asked: Vec<_> = (0..100)
            .map(|_| {
                let source = source.clone();
                tokio::spawn(async move { holds(&source, b"CANARY-0001").await })
            })
            .collect();
        for one in asked {
            assert!(one.await.unwrap());
        }
        assert_eq!(store.fetches(), 1);
    }

    #[tokio::test]
    async fn a_secret_is_never_used_past_its_end() {
        let (store, source) = stage();
        store
            .put(NAME, b"CANARY-0001", Some(Lifetime::of(millis(100))))
            .unwrap();
        assert!(holds(&source, b"CANARY-0001").await);
        store.fail(NAME, StoreError::Absent, Duration::ZERO);
        assert!(holds(&source, b"CANARY-0001").await);
        tokio::time::sleep(millis(120)).await;
        let unavailable = source.resolve().await.err().unwrap();
        assert_eq!(unavailable.cause, StoreError::Absent);
        assert!(!format!("{unavailable} {unavailable:?}").contains("CANARY"));
    }

    #[tokio::test]
    async fn a_rotated_secret_is_taken_before_the_old_one_ends_and_nobody_waits() {
        let (store, source) = stage();
        let life = Lifetime {
            refresh_after: millis(20),
            expires_after: Duration::from_secs(60),
        };
        store.put(NAME, b"CANARY-0001", Some(life)).unwrap();
        assert!(holds(&source, b"CANARY-0001").await);
        store.put(NAME, b"CANARY-0002", Some(life)).unwrap();
        store.slow(NAME, millis(50));
        tokio::time::sleep(millis(30)).await;
        let before = Instant::now();
        assert!(holds(&source, b"CANARY-0001").await);
        assert!(before.elapsed() < millis(40));
        tokio::time::sleep(millis(80)).await;
        assert!(holds(&source, b"CANARY-0002").await);
    }

    #[tokio::test]
    async fn an_unchanged_secret_stays_the_same_object() {
        let (store, source) = stage();
        let life = Lifetime {
            refresh_after: millis(5),
            expires_after: millis(10),
        };
        store.put(NAME, b"CANARY-0001", Some(life)).unwrap();
        let first = source.resolve().await.ok().unwrap();
        tokio::time::sleep(millis(20)).await;
        store.put(NAME, b"CANARY-0001", Some(life)).unwrap();
        let second = source.resolve().await.ok().unwrap();
        assert!(Arc::ptr_eq(&first.secret, &second.secret));
        assert_eq!(store.fetches(), 2);
    }

    #[tokio::test]
    async fn a_broken_store_is_asked_once_a_second() {
        let (store, source) = stage();
        for _ in 0..50 {
            assert_eq!(
                source.resolve().await.err().unwrap().cause,
                StoreError::Absent
            );
        }
        assert_eq!(store.fetches(), 1);
        store.put(NAME, b"CANARY-0001", None).unwrap();
        tokio::time::sleep(RETRY_AFTER).await;
        assert!(holds(&source, b"CANARY-0001").await);
    }

    #[tokio::test]
    async fn a_dropped_call_leaves_the_fetch_to_the_next() {
        let (store, source) = stage();
        store.put(NAME, b"CANARY-0001", None).unwrap();
        store.slow(NAME, millis(200));
        assert!(
            tokio::time::timeout(millis(20), source.resolve())
                .await
                .is_err()
        );
        store.slow(NAME, Duration::ZERO);
        assert!(holds(&source, b"CANARY-0001").await);
    }

    #[tokio::test]
    async fn a_forgotten_secret_is_fetched_anew() {
        let (store, source) = stage();
        store.put(NAME, b"CANARY-0001", None).unwrap();
        assert!(holds(&source, b"CANARY-0001").await);
        store.put(NAME, b"CANARY-0002", None).unwrap();
        assert!(holds(&source, b"CANARY-0001").await);
        source.forget();
        assert!(holds(&source, b"CANARY-0002").await);
    }

    #[tokio::test]
    async fn a_rotated_file_is_seen_without_a_restart() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(file.path(), "CANARY-0001\n").unwrap();
        let reference = Reference::file(file.path());
        let stores = Stores::new([&reference]);
        assert!(
            stores
                .resolve(&reference)
                .await
                .ok()
                .unwrap()
                .secret
                .is(b"CANARY-0001")
        );
        std::fs::write(file.path(), "CANARY-0002\n").unwrap();
        tokio::time::sleep(millis(1050)).await;
        stores.resolve(&reference).await.ok().unwrap();
        tokio::time::sleep(millis(100)).await;
        assert!(
            stores
                .resolve(&reference)
                .await
                .ok()
                .unwrap()
                .secret
                .is(b"CANARY-0002")
        );
    }
}
