//! Holds what was read from stores for as long as it may serve; one reading at a time of each
//! place.

mod place;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::vault::VaultStore;
use super::{Backend, Backends, SecretRef, SecretStore, StoreError, Vault};
use crate::credential::secret::Secret;
use crate::names::SessionId;
use place::{Place, Reading, Slot};

/// A secret, and until when it may be put into a request.
#[derive(Clone)]
pub struct CachedSecret {
    /// The secret.
    pub secret: Arc<Secret>,
    /// When it may no longer be used; `None` is never.
    pub expires: Option<Instant>,
    place: Arc<Place>,
    reading: Arc<Reading>,
}

/// A reference had no usable secret; nothing is sent. Its text is for the operator's log, never for
/// the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no secret from `{reference}`: {cause}")]
pub struct Unavailable {
    /// Where it was looked for.
    pub reference: Box<SecretRef>,
    /// Why there is none.
    pub cause: StoreError,
}

/// All stores, and what was read from them.
#[derive(Clone)]
pub struct Stores(Arc<Inner>);

struct Inner {
    backends: Backends,
    places: Mutex<HashMap<Backend, Arc<Place>>>,
}

/// One reference's secret, fetched when first needed, refreshed before it expires, never used
/// after.
#[derive(Clone)]
pub struct Source {
    reference: SecretRef,
    /// Which of its place's references it is.
    at: usize,
    place: Arc<Place>,
}

impl Stores {
    /// The real stores. Variables are read now, for the references that name one.
    #[must_use]
    pub fn new<'r>(references: impl IntoIterator<Item = &'r SecretRef>) -> Self {
        Self::of(Backends::new(references))
    }

    /// The same with a Vault, whose own login is kept in the stores of this machine.
    #[must_use]
    pub fn with_vault<'r>(
        references: impl IntoIterator<Item = &'r SecretRef>,
        (settings, client): Vault,
    ) -> Self {
        let local = Self::new(settings.references());
        let vault = VaultStore::new(&settings, client, |reference| local.source(reference));
        Self::of(Backends {
            vault: Some(Arc::new(vault)),
            ..Backends::new(references)
        })
    }

    /// One store in place of all, whatever a reference names.
    #[must_use]
    pub fn with(store: Arc<dyn SecretStore>) -> Self {
        Self::of(Backends::all(&store))
    }

    fn of(backends: Backends) -> Self {
        let places = Mutex::default();
        Self(Arc::new(Inner { backends, places }))
    }

    /// The source of a reference's secret. Sources of one place share each reading of it.
    #[must_use]
    pub fn source(&self, reference: &SecretRef) -> Source {
        let backend = &reference.backend;
        let mut places = self.places();
        let made = places
            .entry(backend.clone())
            .or_insert_with(|| Arc::new(Place::new(backend.clone(), self.0.backends.of(backend))));
        Source {
            at: made.wants(reference),
            reference: reference.clone(),
            place: made.clone(),
        }
    }

    /// Ends what was issued to a session: its leases are revoked, and there are no new ones.
    pub async fn end(&self, session: &SessionId) {
        // Also where nothing was issued yet: a request that began before the end may still ask.
        for place in self.places().values().filter(|place| place.is_issued()) {
            place.slots().entry(session.clone()).or_default();
        }
        self.end_where(|id| id == session).await;
    }

    /// Ends what was issued to any session, and the stores' own logins, with the process.
    pub async fn close(&self) {
        self.end_where(|_| true).await;
        for store in self.0.backends.each() {
            if let Err(cause) = store.close().await {
                tracing::warn!(%cause, "a store's login was not ended");
            }
        }
    }

    /// Whether a store issues what ends unless it is renewed.
    #[must_use]
    pub fn must_be_tended(&self) -> bool {
        self.0.backends.vault.is_some()
    }

    /// Renews what ends soon; to be called about every second.
    pub async fn tend(&self) {
        for store in self.0.backends.each() {
            if let Err(cause) = store.tend().await {
                tracing::warn!(%cause, "a store's login was not renewed");
            }
        }
        let now = Instant::now();
        for (place, slot) in self.issued(|_| true) {
            if slot.serving(0).is_some_and(|held| held.is_due(now)) {
                place.refresh(&slot);
            }
        }
    }

    async fn end_where(&self, is_over: impl Fn(&SessionId) -> bool) {
        let mut ends = tokio::task::JoinSet::new();
        for (place, slot) in self.issued(is_over) {
            ends.spawn(async move { slot.end(&place).await });
        }
        ends.join_all().await;
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Backend, Arc<Place>>> {
        // Every change leaves the map whole, so a panic elsewhere must not stop the gateway.
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was issued to sessions.
    fn issued(&self, of: impl Fn(&SessionId) -> bool) -> Vec<(Arc<Place>, Arc<Slot>)> {
        let mut issued = Vec::new();
        for place in self.places().values() {
            let slots = place.slots();
            let slots = slots.iter().filter(|(session, _)| of(session));
            issued.extend(slots.map(|(_, slot)| (place.clone(), slot.clone())));
        }
        issued
    }
}

impl Source {
    /// The reference.
    #[must_use]
    pub fn reference(&self) -> &SecretRef {
        &self.reference
    }

    /// Whether the store makes a new secret for each session.
    #[must_use]
    pub fn is_issued(&self) -> bool {
        self.reference.backend.is_issued()
    }

    /// What is issued to sessions, and serves them now.
    #[must_use]
    pub(in crate::credential) fn issued(&self) -> Vec<CachedSecret> {
        let slots = self.place.slots();
        let readings = slots.values().filter_map(|slot| slot.serving(self.at));
        readings.filter_map(|one| self.of(one).ok()).collect()
    }

    /// The secret, from memory while it serves, else from its store; what a store issues to each
    /// session is this session's.
    ///
    /// Past 80 per cent of its life the store is asked again in the background; what is held serves
    /// until then. Cancel safe: a dropped call leaves the fetch to the next.
    ///
    /// # Errors
    /// [`Unavailable`] where the store has none or fails and none that is held still serves.
    pub async fn resolve(&self, session: Option<&SessionId>) -> Result<CachedSecret, Unavailable> {
        let reading = match self.slot(session) {
            Ok(slot) => self.place.read(&slot, self.at).await,
            Err(cause) => Err(cause),
        };
        reading
            .and_then(|reading| self.of(reading))
            .map_err(|cause| self.unavailable(cause))
    }

    /// The secret of the very reading that another is of, where both are kept in one place.
    ///
    /// # Errors
    /// [`Unavailable`] where that reading has none.
    pub fn beside(&self, other: &CachedSecret) -> Option<Result<CachedSecret, Unavailable>> {
        let is_known = self.at < other.reading.secrets.len();
        (is_known && Arc::ptr_eq(&self.place, &other.place)).then(|| {
            let reading = other.reading.clone();
            self.of(reading).map_err(|cause| self.unavailable(cause))
        })
    }

    /// Forgets the secret, so that the next use asks the store.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.place.shared.held.store(None);
    }

    fn slot(&self, session: Option<&SessionId>) -> Result<Arc<Slot>, StoreError> {
        if !self.is_issued() {
            return Ok(self.place.shared.clone());
        }
        let session = session.ok_or(StoreError::NoSession)?;
        Ok(self
            .place
            .slots()
            .entry(session.clone())
            .or_default()
            .clone())
    }

    fn of(&self, reading: Arc<Reading>) -> Result<CachedSecret, StoreError> {
        Ok(CachedSecret {
            secret: reading.secrets[self.at].clone()?,
            expires: reading.expires,
            place: self.place.clone(),
            reading,
        })
    }

    fn unavailable(&self, cause: StoreError) -> Unavailable {
        Unavailable {
            reference: Box::new(self.reference.clone()),
            cause,
        }
    }
}
