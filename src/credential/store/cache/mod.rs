//! Caches the reads of stores while they are usable, with one read at a time per place.

mod place;
mod source;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

#[cfg(test)]
use super::SecretStore;
use super::leased::Moment;
use super::login::{LoginSettings, LoginStore};
use super::settings::ConfiguredStore;
use super::{Backend, Backends, SecretRef};
use gateway_names::SessionId;
use parking_lot::{Mutex, MutexGuard};
use place::{CacheSlot, CachedPlace};
pub use source::{CachedSecret, SecretSource, Unavailable};

/// All stores, and the latest reads from them.
#[derive(Clone)]
pub struct Stores(Arc<Inner>);

struct Inner {
    backends: Backends,
    places: Mutex<HashMap<Backend, Arc<CachedPlace>>>,
}

impl Stores {
    /// Creates the real stores. Variables named by references are read now.
    pub fn new<'r>(references: impl IntoIterator<Item = &'r SecretRef>) -> Self {
        Self::of(Backends::new(references))
    }

    /// Adds logins. A login that the previous generation renewed in the same way keeps its reads,
    /// and sessions keep the logins that they made.
    #[must_use]
    pub fn with_logins(self, logins: LoginSettings, before: Option<&Self>) -> Self {
        let mut login = LoginStore::new(logins, |reference| self.source(reference));
        let mut places = self.places().clone();
        if let Some(before) = before {
            let theirs = &before.0.backends.login;
            login = login.after(theirs);
            let before = before.places();
            let kept = before.iter().filter(|(backend, _)| match backend {
                Backend::Login(name) => login.is_same(theirs, name),
                _ => false,
            });
            places.extend(kept.map(|(backend, place)| (backend.clone(), place.clone())));
        }
        let backends = Backends {
            login: Arc::new(login),
            ..self.0.backends.clone()
        };
        let places = Mutex::new(places);
        Self(Arc::new(Inner { backends, places }))
    }

    /// Creates the real stores and those of the configuration, whose own logins are in this
    /// machine's stores.
    pub fn with_stores<'r>(
        references: impl IntoIterator<Item = &'r SecretRef>,
        stores: Vec<ConfiguredStore>,
    ) -> Self {
        let local = Self::new(stores.iter().flat_map(|(store, _)| store.references()));
        let made = stores.into_iter().map(|(settings, client)| {
            let store = settings.store(client, |reference| local.source(reference));
            (settings.name, store)
        });
        Self::of(Backends {
            named: made.collect(),
            ..Backends::new(references)
        })
    }

    /// Takes over the reads of the previous generation, for the places that these references name:
    /// no secret is fetched again, and no lease is lost. The stores with the names in `same` are
    /// kept too, with their logins.
    #[must_use]
    pub fn after<'r>(
        self,
        before: &Self,
        references: impl IntoIterator<Item = &'r SecretRef>,
        same: &[Box<str>],
    ) -> Self {
        let (mine, theirs) = (&self.0.backends, &before.0.backends);
        let mut named = mine.named.clone();
        let kept = theirs.named.iter().filter(|(name, _)| same.contains(name));
        named.extend(kept.map(|(name, store)| (name.clone(), store.clone())));
        let backends = Backends {
            // Variables were read anew.
            env: mine.env.clone(),
            named,
            ..theirs.clone()
        };
        let known = before.places();
        let kept = references.into_iter().filter_map(|reference| {
            let backend = &reference.backend;
            let place = known.get(backend)?;
            let is_same = match backend {
                Backend::Store(place) => same.contains(&place.store),
                Backend::Login(_) => false,
                _ => true,
            };
            is_same.then(|| (backend.clone(), place.clone()))
        });
        let places = Mutex::new(kept.collect());
        Self(Arc::new(Inner { backends, places }))
    }

    /// Revokes the leases of places that `next` no longer has, and ends stores' logins that `next`
    /// does not use. Must be called once `next` is in force.
    pub async fn give_back(&self, next: &Self) {
        let kept: Vec<Arc<CachedPlace>> = next.places().values().cloned().collect();
        let is_kept = |place: &Arc<CachedPlace>| kept.iter().any(|kept| Arc::ptr_eq(kept, place));
        // An exchange that began before may still fetch: its lease would never be revoked.
        let gone: Vec<_> = self.places().values().cloned().collect();
        gone.iter()
            .filter(|place| !is_kept(place))
            .for_each(|place| place.close());
        let mut gone = self.issued(|_| true);
        gone.retain(|(place, _)| !is_kept(place));
        for (place, slot) in gone {
            slot.end(&place).await;
        }
        for store in self.0.backends.named.values() {
            if !next.0.backends.each().any(|kept| Arc::ptr_eq(&kept, store))
                && let Err(cause) = store.close().await
            {
                tracing::warn!(%cause, "a store's login was not ended");
            }
        }
    }

    /// Uses one store for all references.
    #[cfg(test)]
    pub(crate) fn with(store: Arc<dyn SecretStore>) -> Self {
        Self::of(Backends::all(&store))
    }

    fn of(backends: Backends) -> Self {
        let places = Mutex::default();
        Self(Arc::new(Inner { backends, places }))
    }

    /// Returns the source of a reference's secret. Sources of one place share each read of it.
    pub fn source(&self, reference: &SecretRef) -> SecretSource {
        let backend = &reference.backend;
        let mut places = self.places();
        let made = places.entry(backend.clone()).or_insert_with(|| {
            let store = self.0.backends.of(backend);
            Arc::new(CachedPlace::new(backend.clone(), store))
        });
        SecretSource::new(reference, made)
    }

    /// Allows issuing to a new session. The leases of an ended session with the same id are revoked
    /// in the background.
    pub fn begin(&self, session: &SessionId) {
        for place in self.places().values() {
            let Some(slot) = place.slots().remove(session) else {
                continue;
            };
            let place = place.clone();
            tokio::spawn(async move { slot.end(&place).await });
        }
    }

    /// Revokes the leases issued to a session, and prevents new ones.
    pub async fn end(&self, session: &SessionId) {
        // Needed even if there is no lease: a request that began before the end may still fetch.
        for place in self.places().values().filter(|place| place.is_issued()) {
            place.slot(session);
        }
        self.end_where(|id| id == session).await;
        self.0.backends.login.end(session);
    }

    /// Revokes the leases of all sessions, and ends the stores' own logins, when the process ends.
    pub async fn close(&self) {
        self.end_where(|_| true).await;
        for store in self.0.backends.each() {
            if let Err(cause) = store.close().await {
                tracing::warn!(%cause, "a store's login was not ended");
            }
        }
    }

    /// Whether a store issues leases that must be renewed, or logins that end with a session.
    pub fn must_be_tended(&self) -> bool {
        !self.0.backends.named.is_empty() || self.0.backends.login.is_any()
    }

    /// Renews leases that end soon. Must be called about every second.
    pub async fn tend(&self) {
        // A store that hangs keeps the others from nothing; each renews its login once at a time.
        for store in self.0.backends.each() {
            tokio::spawn(async move {
                if let Err(cause) = store.tend().await {
                    tracing::warn!(%cause, "a store's login was not renewed");
                }
            });
        }
        let now = Moment::now();
        for (place, slot) in self.issued(|_| true) {
            // An unused login is renewed at its next use.
            let is_login = matches!(place.backend(), Backend::Login(_));
            if !is_login && slot.serving(0, now).is_some_and(|held| held.is_due(now)) {
                place.refresh(&slot);
            }
        }
    }

    /// Returns the store of logins, with the logins that sessions made.
    pub(super) fn login_store(&self) -> &Arc<LoginStore> {
        &self.0.backends.login
    }

    /// Drops a session's read of a place, so that its next use reads the store.
    pub(super) async fn forget(&self, backend: &Backend, session: &SessionId) {
        let place = self.places().get(backend).cloned();
        if let Some(place) = place {
            place.slot(session).leased.forget().await;
        }
    }

    async fn end_where(&self, is_over: impl Fn(&SessionId) -> bool) {
        let mut ends = tokio::task::JoinSet::new();
        for (place, slot) in self.issued(is_over) {
            ends.spawn(async move { slot.end(&place).await });
        }
        ends.join_all().await;
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Backend, Arc<CachedPlace>>> {
        // Every change leaves the map intact, so it can be used after a panic under the lock.
        self.0.places.lock()
    }

    /// Returns the slots of sessions, with their places.
    fn issued(&self, of: impl Fn(&SessionId) -> bool) -> Vec<(Arc<CachedPlace>, Arc<CacheSlot>)> {
        let mut issued = Vec::new();
        for place in self.places().values() {
            let slots = place.slots();
            let slots = slots.iter().filter(|(session, _)| of(session));
            issued.extend(slots.map(|(_, slot)| (place.clone(), slot.clone())));
        }
        issued
    }
}
