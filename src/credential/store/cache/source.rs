//! One reference's secret: from memory while it is usable, otherwise from its store.

use std::sync::Arc;

use gateway_names::{CredentialName, SessionId};
use tokio::time::Instant;

use super::super::leased::{Held, Moment};
use super::super::{Backend, SecretRef, StoreError};
use super::place::{CacheSlot, CachedPlace, SecretRead};
use crate::secret::Secret;

/// A secret, and the end of its use.
#[derive(Clone)]
pub struct CachedSecret {
    /// The secret.
    pub secret: Arc<Secret>,
    /// When it may no longer be used; `None` means never.
    pub expires: Option<Instant>,
    place: Arc<CachedPlace>,
    reading: Arc<Held<SecretRead>>,
}

/// A reference had no usable secret. The request is not sent.
///
/// The text is for the operator's log, never for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no secret from `{reference}`: {cause}")]
pub struct Unavailable {
    /// The reference.
    pub reference: Box<SecretRef>,
    /// The cause.
    pub cause: StoreError,
}

/// One reference's secret: fetched on first use, refreshed before it expires, never used after.
#[derive(Clone)]
pub struct SecretSource {
    reference: Arc<SecretRef>,
    /// Its index among its place's references.
    at: usize,
    place: Arc<CachedPlace>,
}

impl CachedSecret {
    /// The login that it is a token of, if it is.
    pub(crate) fn login(&self) -> Option<&CredentialName> {
        match self.place.backend() {
            Backend::Login(name) => Some(name),
            _ => None,
        }
    }
}

impl SecretSource {
    pub(super) fn new(reference: &SecretRef, place: &Arc<CachedPlace>) -> Self {
        let (at, reference) = place.wants(reference);
        Self {
            reference,
            at,
            place: place.clone(),
        }
    }

    /// Returns the reference.
    pub fn reference(&self) -> &SecretRef {
        &self.reference
    }

    /// Whether the secret is a token of a login.
    pub fn is_of_login(&self) -> bool {
        matches!(self.reference.backend, Backend::Login(_))
    }

    /// Whether the store issues a new secret for each session.
    pub fn is_issued(&self) -> bool {
        self.reference.backend.is_issued()
    }

    /// The usable secrets issued to sessions.
    pub(crate) fn issued(&self) -> Vec<CachedSecret> {
        let (slots, now) = (self.place.slots(), Moment::now());
        let readings = slots.values().filter_map(|slot| slot.serving(self.at, now));
        readings.filter_map(|one| self.of(one).ok()).collect()
    }

    /// What was read for sessions and replaced before it was lent, with the reads that are held.
    pub(crate) fn former(&self) -> Vec<Arc<Secret>> {
        let slots = self.place.slots();
        let held = slots.values().filter_map(|slot| slot.leased.held());
        let former = held.flat_map(|reading| reading.former.clone());
        let own = former.filter(|(at, _)| *at == self.at);
        own.map(|(_, secret)| secret).collect()
    }

    /// Returns the secret from memory while it is usable, otherwise from its store.
    ///
    /// If the store issues secrets per session, this is the session's own. After 80 per cent of its
    /// lifetime, the store is read in the background while the held secret stays in use.
    ///
    /// Cancel safe: the next call repeats a dropped fetch.
    ///
    /// # Errors
    /// [`Unavailable`] if the store has no secret or fails, and no held one is usable.
    pub async fn resolve(&self, session: Option<&SessionId>) -> Result<CachedSecret, Unavailable> {
        let reading = match self.slot(session) {
            Ok(slot) => self.place.read(&slot, self.at, || false).await,
            Err(cause) => Err(cause),
        };
        self.settled(reading)
    }

    /// Returns the present secret, usable or not, to see its form. No request is sent to the issuer
    /// of a login, because a session may have chosen the issuer.
    ///
    /// # Errors
    /// [`Unavailable`] if nothing is there.
    pub(crate) async fn look(
        &self,
        session: Option<&SessionId>,
    ) -> Result<Arc<Secret>, Unavailable> {
        let seen = self.place.look(session).await.and_then(|material| {
            let field = material.field(self.reference.field.as_deref());
            let value = field.ok_or_else(|| self.reference.lacking(&material.names()))?;
            Ok(Arc::new(self.reference.admit(value)?))
        });
        seen.map_err(|cause| self.unavailable(cause))
    }

    /// As [`SecretSource::resolve`], for a secret that all sessions share. If the caller has a
    /// value that `suffices`, a store that hangs is awaited only for a moment, and not again until
    /// it has answered.
    ///
    /// # Errors
    /// [`Unavailable`] if there is no usable secret by then.
    pub(crate) async fn resolve_soon(
        &self,
        suffices: impl FnOnce() -> bool,
    ) -> Result<CachedSecret, Unavailable> {
        let place = &self.place;
        let reading = place.read(&place.shared, self.at, suffices).await;
        self.settled(reading)
    }

    /// Returns this reference's secret from the same read as `other`; `None` if that read does not
    /// cover this reference.
    ///
    /// # Errors
    /// [`Unavailable`] if that read lacks the secret.
    pub fn beside(&self, other: &CachedSecret) -> Option<Result<CachedSecret, Unavailable>> {
        let is_known = self.at < other.reading.secrets.len();
        (is_known && Arc::ptr_eq(&self.place, &other.place))
            .then(|| self.settled(Ok(other.reading.clone())))
    }

    /// Discards the secret, so that the next use reads the store.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.place.shared.leased.clear();
    }

    fn slot(&self, session: Option<&SessionId>) -> Result<Arc<CacheSlot>, StoreError> {
        if !self.is_issued() {
            return Ok(self.place.shared.clone());
        }
        let session = session.ok_or(StoreError::NoSession)?;
        Ok(self.place.slot(session))
    }

    fn of(&self, reading: Arc<Held<SecretRead>>) -> Result<CachedSecret, StoreError> {
        Ok(CachedSecret {
            secret: match reading.secrets.get(self.at) {
                Some(secret) => secret.clone()?,
                None => return Err(self.reference.lacking("")),
            },
            expires: reading.ends(),
            place: self.place.clone(),
            reading,
        })
    }

    /// Returns this reference's secret in a reading, or the reason why there is none.
    fn settled(
        &self,
        reading: Result<Arc<Held<SecretRead>>, StoreError>,
    ) -> Result<CachedSecret, Unavailable> {
        reading
            .and_then(|reading| self.of(reading))
            .map_err(|cause| self.unavailable(cause))
    }

    fn unavailable(&self, cause: StoreError) -> Unavailable {
        Unavailable {
            reference: Box::new(SecretRef::clone(&self.reference)),
            cause,
        }
    }
}
