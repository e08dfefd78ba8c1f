//! One reference's secret: from memory while it serves, else from its store.

use std::sync::Arc;

use tokio::time::Instant;

use super::super::{SecretRef, StoreError};
use super::place::{CacheSlot, Place, Reading};
use crate::credential::secret::Secret;
use crate::names::SessionId;

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

/// One reference's secret, fetched when first needed, refreshed before it expires, never used
/// after.
#[derive(Clone)]
pub struct SecretSource {
    reference: SecretRef,
    /// Which of its place's references it is.
    at: usize,
    place: Arc<Place>,
}

impl SecretSource {
    pub(super) fn new(reference: &SecretRef, place: &Arc<Place>) -> Self {
        Self {
            at: place.wants(reference),
            reference: reference.clone(),
            place: place.clone(),
        }
    }

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

    fn slot(&self, session: Option<&SessionId>) -> Result<Arc<CacheSlot>, StoreError> {
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
