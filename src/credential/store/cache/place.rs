//! A place in a store, and the latest read of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use gateway_names::SessionId;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;

use super::super::leased::{Failure, Held, Leased, Moment, Turn};
use super::super::material::{Lease, Material};
use super::super::{Backend, SecretRef, SecretStore, StoreError};
use crate::secret::Secret;

/// A place in a store, with the latest reads of it.
pub(super) struct CachedPlace {
    backend: Backend,
    store: Arc<dyn SecretStore>,
    /// All references to it. The secrets of a read are in this order. References of a refused
    /// change or of a former generation have no owner any more and are not read.
    wanted: Mutex<Vec<Weak<SecretRef>>>,
    /// The read for all sessions.
    pub(super) shared: Arc<CacheSlot>,
    /// The reads for one session each, if the store issues secrets per session.
    of_sessions: Mutex<HashMap<SessionId, Arc<CacheSlot>>>,
    /// Whether no generation in force names it, so that no secret is issued there any more.
    is_gone: AtomicBool,
}

/// The latest read of a place.
#[derive(Default)]
pub(super) struct CacheSlot {
    /// The session that it was read for; `None` for all sessions.
    session: Option<SessionId>,
    pub(super) leased: Arc<Leased<SecretRead>>,
    /// The leases to revoke at the end, and when each ends by itself.
    leases: Mutex<Vec<(Lease, Moment)>>,
    /// Whether a request waited in vain for a read since the last successful one.
    waited: AtomicBool,
}

/// The secrets of one read, which belong together.
pub(super) struct SecretRead {
    pub(super) secrets: Vec<Result<Arc<Secret>, StoreError>>,
    /// The secrets that they replaced without being lent, by the indexes of the references.
    pub(super) former: Vec<(usize, Arc<Secret>)>,
}

impl CachedPlace {
    pub(super) fn new(backend: Backend, store: Arc<dyn SecretStore>) -> Self {
        Self {
            backend,
            store,
            wanted: Mutex::default(),
            shared: Arc::default(),
            of_sessions: Mutex::default(),
            is_gone: AtomicBool::new(false),
        }
    }

    /// Registers a reference, and returns the index of its secret in reads.
    pub(super) fn wants(&self, reference: &SecretRef) -> (usize, Arc<SecretRef>) {
        let mut wanted = self.wanted.lock();
        let known = wanted.iter().map(Weak::upgrade).enumerate();
        let mut known = known.filter_map(|(at, known)| Some((at, known?)));
        if let Some(known) = known.find(|(_, known)| **known == *reference) {
            return known;
        }
        drop(known);
        let reference = Arc::new(reference.clone());
        wanted.push(Arc::downgrade(&reference));
        (wanted.len() - 1, reference)
    }

    /// Whether its store issues a new secret for each session.
    pub(super) fn is_issued(&self) -> bool {
        self.backend.is_issued()
    }

    /// Returns where it is.
    pub(super) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Issues no more secrets. When this returns, the slots contain all issued ones.
    pub(super) fn close(&self) {
        if self.is_issued() {
            self.is_gone.store(true, Ordering::Release);
        }
    }

    pub(super) fn slots(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<CacheSlot>>> {
        self.of_sessions.lock()
    }

    /// Returns the slot of a session.
    pub(super) fn slot(&self, session: &SessionId) -> Arc<CacheSlot> {
        let mut slots = self.slots();
        let slot = slots
            .entry(session.clone())
            .or_insert_with(|| CacheSlot::of(session));
        slot.clone()
    }

    /// Returns the held read if it is usable and has this reference's secret; otherwise reads
    /// again.
    ///
    /// If the caller has a value that `suffices`, waits only a moment, and only once for each read.
    pub(super) async fn read(
        self: &Arc<Self>,
        slot: &Arc<CacheSlot>,
        at: usize,
        suffices: impl FnOnce() -> bool,
    ) -> Result<Arc<Held<SecretRead>>, StoreError> {
        let now = Moment::now();
        let held = slot.serving(at, now);
        if let Some(held) = &held {
            if held.is_due(now) {
                self.refresh(slot);
            }
            if held.is_fresh(now) || slot.waited.load(Ordering::Relaxed) {
                return Ok(held.clone());
            }
        }
        // Boxed because it is large and rare.
        Box::pin(self.read_again(slot, at, held, suffices())).await
    }

    async fn read_again(
        self: &Arc<Self>,
        slot: &Arc<CacheSlot>,
        at: usize,
        held: Option<Arc<Held<SecretRead>>>,
        suffices: bool,
    ) -> Result<Arc<Held<SecretRead>>, StoreError> {
        if held.is_some() || suffices {
            // The store may have a newer secret. If it does not answer soon, the held secret is
            // used until it expires, and no request waits for the store again.
            self.refresh(slot);
            let is_first = !slot.waited.load(Ordering::Relaxed);
            let is_late = is_first && timeout(WAIT, slot.leased.turn()).await.is_err();
            let now = slot.serving(at, Moment::now());
            if is_late || now.as_ref().map(Arc::as_ptr) == held.as_ref().map(Arc::as_ptr) {
                slot.waited.store(true, Ordering::Relaxed);
            }
            match now {
                Some(now) => return Ok(now),
                None if suffices => return Err(StoreError::TimedOut(WAIT)),
                None => {}
            }
        }
        let turn = slot.leased.turn().await;
        // Another task may have read it meanwhile.
        if let Some(held) = slot.serving(at, Moment::now()) {
            return Ok(held);
        }
        if !self.is_issued() {
            return self.fetch(slot, turn).await;
        }
        // Spawned, so that a client that disconnects does not lose a lease that the store has
        // issued.
        let (place, slot) = (self.clone(), slot.clone());
        tokio::spawn(async move { place.fetch(&slot, turn).await })
            .await
            .map_err(|_| StoreError::Unreachable("the reading task ended"))?
    }

    /// Reads the present secret without keeping it.
    pub(super) async fn look(&self, session: Option<&SessionId>) -> Result<Material, StoreError> {
        self.store.look(&self.backend, session).await
    }

    /// Reads in the background, unless a read is in progress. The task ends at the store's own
    /// deadline.
    pub(super) fn refresh(self: &Arc<Self>, slot: &Arc<CacheSlot>) {
        if let Some(turn) = slot.leased.open_turn() {
            let (place, slot) = (self.clone(), slot.clone());
            // A failure is kept, and reported to whoever needs the secret after it has expired.
            tokio::spawn(async move {
                if let Err(cause) = place.fetch(&slot, turn).await {
                    tracing::warn!(from = %place.backend, %cause, "a secret could not be read");
                }
            });
        }
    }

    /// Reads again, or returns the last failure if it is recent.
    async fn fetch(
        &self,
        slot: &CacheSlot,
        turn: Turn<SecretRead>,
    ) -> Result<Arc<Held<SecretRead>>, StoreError> {
        if self.is_gone.load(Ordering::Acquire) {
            return Err(StoreError::Ended);
        }
        let reading = turn.obtain(async {
            let read = self.ask(slot).await;
            read.map_err(Failure::from)
        });
        let reading = reading.await.inspect_err(|cause| {
            if cause.is_final() {
                slot.leased.clear();
            }
        })?;
        slot.waited.store(false, Ordering::Relaxed);
        Ok(reading)
    }

    /// Renews the held lease at the store, or reads again.
    async fn ask(&self, slot: &CacheSlot) -> Result<Held<SecretRead>, StoreError> {
        // Lifetimes count from the request, because the secret may have been issued then.
        let asked = Moment::now();
        let before = slot.leased.held();
        if let Some(held) = before.as_ref().filter(|held| held.serves(asked))
            // A reload may have named further fields, which only a new read has.
            && held.secrets.len() == self.wanted.lock().len()
            && let Some(lease) = held.lease().filter(|lease| lease.is_renewable())
            && let Ok(lease) = self.store.renew(lease).await
        {
            slot.note(&lease, asked);
            let reading = SecretRead {
                secrets: held.secrets.clone(),
                former: Vec::new(),
            };
            return Ok(Held::new(reading, Some(lease), asked));
        }
        let material = self
            .store
            .fetch(&self.backend, slot.session.as_ref())
            .await?;
        let lease = material.lease.as_ref();
        let usable = if lease.is_some_and(|lease| lease.expires_after.is_zero()) {
            Err(StoreError::Unreachable("what it gives has ended already"))
        } else {
            self.admit(&material, before.as_deref().map(|held| &**held))
        };
        if let Some(lease) = lease.filter(|lease| lease.id.is_some()) {
            // An unusable secret is revoked now; the next request gets another one issued.
            if usable.is_ok() || self.store.revoke(lease).await.is_err() {
                slot.note(lease, asked);
            }
        }
        let reading = SecretRead {
            former: self.former(&material),
            secrets: usable?,
        };
        Ok(Held::new(reading, material.lease, asked))
    }

    /// Returns the secrets that the read replaced. Origins may know them, so they are searched for.
    fn former(&self, material: &Material) -> Vec<(usize, Arc<Secret>)> {
        let wanted = self.wanted.lock();
        let one = |(at, reference): (usize, &Weak<SecretRef>)| {
            let reference = reference.upgrade()?;
            let value = material.former(reference.field.as_deref())?;
            Some((at, Arc::new(reference.admit(value).ok()?)))
        };
        wanted.iter().enumerate().filter_map(one).collect()
    }

    /// Makes the secret of each reference. If one is unusable, the read fails, so the earlier read
    /// stays in use.
    fn admit(
        &self,
        material: &Material,
        before: Option<&SecretRead>,
    ) -> Result<Vec<Result<Arc<Secret>, StoreError>>, StoreError> {
        let wanted = self.wanted.lock();
        let one = |(at, reference): (usize, &Weak<SecretRef>)| {
            let Some(reference) = reference.upgrade() else {
                return Ok(Err(StoreError::Absent));
            };
            let Some(value) = material.field(reference.field.as_deref()) else {
                return Ok(Err(reference.lacking(&material.names())));
            };
            // An unchanged secret stays the same object, so values built from it stay valid.
            let known = before.and_then(|before| before.secrets.get(at)?.as_ref().ok());
            Ok(Ok(match known.filter(|known| known.is(value)) {
                Some(known) => known.clone(),
                None => Arc::new(reference.admit(value)?),
            }))
        };
        wanted.iter().enumerate().map(one).collect()
    }
}

impl CacheSlot {
    fn of(session: &SessionId) -> Arc<Self> {
        Arc::new(Self {
            session: Some(session.clone()),
            ..Self::default()
        })
    }

    /// Returns the held read, if it is usable and has this reference's secret.
    pub(super) fn serving(&self, at: usize, now: Moment) -> Option<Arc<Held<SecretRead>>> {
        let held = self.leased.serving(now);
        held.filter(|held| at < held.secrets.len())
    }

    /// Remembers a lease that must be revoked.
    fn note(&self, lease: &Lease, asked: Moment) {
        let mut leases = self.leases.lock();
        leases.retain(|(known, end)| known.id != lease.id && !end.has_come(asked));
        leases.push((lease.clone(), asked.after(lease.expires_after)));
    }

    /// Revokes the leases, and prevents new ones.
    pub(super) async fn end(&self, place: &CachedPlace) {
        self.leased.end().await;
        let leases = std::mem::take(&mut *self.leases.lock());
        for (lease, _) in leases {
            if let Err(cause) = place.store.revoke(&lease).await {
                tracing::warn!(store = %place.backend, %cause, "a lease was not revoked");
            }
        }
    }
}

/// How long a request waits for a newer secret when it could use the held one.
pub(super) const WAIT: Duration = Duration::from_secs(2);
