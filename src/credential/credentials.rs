//! The configured credentials: what each may be lent for, and where its secret comes from.

use std::sync::atomic::{AtomicU64, Ordering};
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
use crate::names::{CredentialName, SessionId};
use crate::session::phantom::PhantomKey;
use crate::session::{BindingMalformed, Bindings, Session};

/// The credentials that may be lent, by name.
pub struct Credentials {
    bindings: Arc<Bindings>,
    stores: Stores,
    slots: Vec<CredentialSlot>,
    holding: Holding,
    /// The sessions whose answers are searched for secrets.
    exposed_to: Mutex<Vec<Weak<Session>>>,
    /// The key for stand-ins of secrets that a session holds no phantom for; `None` if the system
    /// gave no randomness.
    strangers: Option<PhantomKey>,
}

/// The state of one binding: the source of its secret, and the field values built from the latest
/// one.
pub(super) struct CredentialSlot {
    pub(super) source: SecretSource,
    pub(super) ready: ArcSwapOption<Prepared>,
    pub(super) given: Given,
    /// How often its secret was had, and how often it was not.
    pub(super) fetches: [AtomicU64; 2],
    /// The highest nonce used so far, for signing schemes with increasing nonces.
    pub(super) last: AtomicU64,
}

impl CredentialSlot {
    /// Counts whether its secret was had.
    pub(super) fn count(&self, had: bool) {
        self.fetches[usize::from(!had)].fetch_add(1, Ordering::Relaxed);
    }

    /// The secrets that its store gave and that are still searched for.
    ///
    /// A secret issued to a session stays among them as long as its lease lives, however often it
    /// is renewed.
    pub(super) fn given_before(&self) -> Vec<Arc<Secret>> {
        for cached in self.source.issued() {
            self.given.add(&cached.secret, cached.expires);
        }
        self.given.all()
    }
}

impl Credentials {
    /// Makes the credentials of a configuration, each with its store.
    ///
    /// # Errors
    /// [`BindingMalformed`] by cause.
    pub fn new(stored: Vec<Stored>, stores: &Stores) -> Result<Self, BindingMalformed> {
        let slot = |stored: &Stored| CredentialSlot {
            source: stores.source(&stored.from),
            ready: ArcSwapOption::empty(),
            given: Given::default(),
            fetches: Default::default(),
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

    /// Replaces the limits for held content.
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

    /// Fetches the secret of the binding at `index` in the configuration.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if its store does not provide it.
    pub(super) async fn lease(
        &self,
        session: &SessionId,
        index: usize,
    ) -> Result<CachedSecret, Error> {
        let leased = self.slot(index)?.source.resolve(Some(session)).await;
        leased.map_err(|why| Error::Unavailable(Box::new(why)))
    }

    /// The source of a binding's secret, by its index in the configuration.
    pub(super) fn source(&self, at: usize) -> &SecretSource {
        &self.slots[at].source
    }

    /// Where a binding's secret is stored, by its index in the configuration.
    pub(super) fn reference(&self, at: usize) -> SecretRef {
        self.source(at).reference().clone()
    }

    /// How often the secret of each credential was had for a request, and how often it was not.
    pub fn fetches(&self) -> impl Iterator<Item = (&CredentialName, u64, u64)> {
        let names = self.bindings.all().map(|binding| &binding.credential);
        names.zip(&self.slots).map(|(name, slot)| {
            let [had, failed] = slot.fetches.each_ref().map(|n| n.load(Ordering::Relaxed));
            (name, had, failed)
        })
    }

    /// The stores. The caller must renew and end their leases.
    #[must_use]
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Revokes what was issued to a session when the session ends.
    pub async fn end(&self, session: &SessionId) {
        self.stores.end(session).await;
    }
}
