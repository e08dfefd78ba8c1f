//! The credentials of a configuration: what each may be lent for, and where its secret comes from.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, MutexGuard};

use super::error::Error;
use super::given::Given;
use super::holding::Holding;
use super::inject::Prepared;
use super::secret::Secret;
use super::store::{CachedSecret, SecretRef, SecretSource, Stores};
use super::stored::Stored;
use crate::names::SessionId;
use crate::session::phantom::PhantomKey;
use crate::session::{BindingMalformed, Bindings, Session};

/// The credentials that may be lent, by name.
pub struct Credentials {
    bindings: Arc<Bindings>,
    stores: Stores,
    slots: Vec<CredentialSlot>,
    holding: Holding,
    /// The sessions whose answers are searched for something.
    exposed_to: Mutex<Vec<Weak<Session>>>,
    /// From it stand-ins are drawn for secrets that a session holds no phantom of; `None` where
    /// there was no randomness.
    strangers: Option<PhantomKey>,
}

/// What belongs to one binding: where its secret comes from, and the field values that were built
/// from the last one.
pub(super) struct CredentialSlot {
    pub(super) source: SecretSource,
    pub(super) ready: ArcSwapOption<Prepared>,
    pub(super) given: Given,
    /// The greatest number that was used once, where signing with it takes such.
    pub(super) last: AtomicU64,
}

impl CredentialSlot {
    /// What its store gave and is still looked for. What is issued to sessions is as long as its
    /// lease lives, however often that was renewed.
    pub(super) fn given_before(&self) -> Vec<Arc<Secret>> {
        for cached in self.source.issued() {
            self.given.add(&cached.secret, cached.expires);
        }
        self.given.all()
    }
}

impl Credentials {
    /// The credentials of a configuration, each from its store.
    ///
    /// # Errors
    /// [`BindingMalformed`] by cause.
    pub fn new(stored: Vec<Stored>, stores: &Stores) -> Result<Self, BindingMalformed> {
        let slot = |stored: &Stored| CredentialSlot {
            source: stores.source(&stored.from),
            ready: ArcSwapOption::empty(),
            given: Given::default(),
            last: AtomicU64::new(0),
        };
        let slots = stored.iter().map(slot).collect();
        let bindings = stored.into_iter().map(|stored| stored.binding).collect();
        Ok(Self {
            bindings: Arc::new(Bindings::new(bindings)?),
            stores: stores.clone(),
            slots,
            holding: Holding::default(),
            exposed_to: Mutex::default(),
            strangers: PhantomKey::random().ok(),
        })
    }

    /// The same, with other bounds for content that is held.
    #[must_use]
    pub fn with_holding(self, holding: Holding) -> Self {
        Self { holding, ..self }
    }

    pub(super) fn exposed_to(&self) -> MutexGuard<'_, Vec<Weak<Session>>> {
        self.exposed_to.lock()
    }

    pub(super) fn strangers(&self) -> Option<&PhantomKey> {
        self.strangers.as_ref()
    }

    pub(super) fn slot(&self, index: usize) -> Result<&CredentialSlot, Error> {
        self.slots.get(index).ok_or(Error::Unknown)
    }

    pub(crate) fn holding(&self) -> &Holding {
        &self.holding
    }

    /// What may be lent, and where.
    #[must_use]
    pub fn bindings(&self) -> &Arc<Bindings> {
        &self.bindings
    }

    /// The secret of a binding, by its place in the configuration.
    ///
    /// # Errors
    /// [`Error::Unavailable`], where its store does not give it.
    pub(super) async fn lease(
        &self,
        session: &SessionId,
        index: usize,
    ) -> Result<CachedSecret, Error> {
        let leased = self.slot(index)?.source.resolve(Some(session)).await;
        leased.map_err(|why| Error::Unavailable(Box::new(why)))
    }

    /// Where the secret of a binding comes from, by its place in the configuration.
    pub(super) fn source(&self, at: usize) -> &SecretSource {
        &self.slots[at].source
    }

    /// Where the secret of a binding is kept, by its place in the configuration.
    pub(super) fn reference(&self, at: usize) -> SecretRef {
        self.source(at).reference().clone()
    }

    /// The stores, whose leases somebody must renew and end.
    #[must_use]
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Revokes what was issued to a session, with the session.
    pub async fn end(&self, session: &SessionId) {
        self.stores.end(session).await;
    }
}
