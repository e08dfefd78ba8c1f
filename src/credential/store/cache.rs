//! Holds what was read from stores for as long as it may serve; one reading at a time of each place.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout};

use super::vault::VaultStore;
use super::{Backend, Backends, Lease, Material, SecretRef, SecretStore, StoreError, Vault};
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

/// A place in a store, with what was read there.
struct Place {
    backend: Backend,
    store: Arc<dyn SecretStore>,
    /// Each reference to it. A reading's secrets are in this order.
    wanted: Mutex<Vec<SecretRef>>,
    /// What was read there for all sessions.
    shared: Arc<Slot>,
    /// What was read there for one session, where the store issues secrets to each.
    of_sessions: Mutex<HashMap<SessionId, Arc<Slot>>>,
}

/// The latest reading of a place.
#[derive(Default)]
struct Slot {
    held: ArcSwapOption<Reading>,
    /// Whoever reads holds it.
    flight: Arc<tokio::sync::Mutex<Flight>>,
    /// What must be revoked at the end, and when each ends by itself.
    leases: Mutex<Vec<(Lease, Instant)>>,
}

#[derive(Default)]
struct Flight {
    /// The last failure, so that a broken store is asked once a second.
    failed: Option<(Instant, StoreError)>,
    /// Whether its session is over.
    ended: bool,
}

/// The secrets of one reading, which belong together.
struct Reading {
    secrets: Vec<Result<Arc<Secret>, StoreError>>,
    lease: Option<Lease>,
    asked: Instant,
    expires: Option<Instant>,
    /// Whether somebody waited in vain for a newer one.
    waited: AtomicBool,
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
        // Every change leaves the map whole, so a panic elsewhere must not stop the gateway.
        let mut places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
        let backend = &reference.backend;
        let made = places.entry(backend.clone()).or_insert_with(|| {
            Arc::new(Place {
                backend: backend.clone(),
                store: self.0.backends.of(backend),
                wanted: Mutex::default(),
                shared: Arc::default(),
                of_sessions: Mutex::default(),
            })
        });
        Source {
            at: made.wants(reference),
            reference: reference.clone(),
            place: made.clone(),
        }
    }

    /// Ends what was issued to a session: its leases are revoked, and there are no new ones.
    pub async fn end(&self, session: &SessionId) {
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

    /// What was issued to sessions.
    fn issued(&self, of: impl Fn(&SessionId) -> bool) -> Vec<(Arc<Place>, Arc<Slot>)> {
        let places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut issued = Vec::new();
        for place in places.values() {
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

type InFlight = OwnedMutexGuard<Flight>;

impl Place {
    /// Notes that a reference reads there; gives where its secret stands in readings.
    fn wants(&self, reference: &SecretRef) -> usize {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let known = wanted.iter().position(|known| known == reference);
        known.unwrap_or_else(|| {
            wanted.push(reference.clone());
            wanted.len() - 1
        })
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Arc<Slot>>> {
        self.of_sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What is held, where it serves and has the secret of that reference, else a new reading.
    async fn read(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        at: usize,
    ) -> Result<Arc<Reading>, StoreError> {
        if let Some(held) = slot.serving(at) {
            let now = Instant::now();
            if held.is_due(now) {
                self.refresh(slot);
            }
            if held.is_fresh(now) || held.waited.load(Ordering::Relaxed) {
                return Ok(held);
            }
            // The store may have something newer. Where it cannot say so soon, what is held serves
            // until its end, and nobody waits for it again.
            if timeout(WAIT, slot.flight.lock()).await.is_err() || slot.holds(&held) {
                held.waited.store(true, Ordering::Relaxed);
            }
            if let Some(held) = slot.serving(at) {
                return Ok(held);
            }
        }
        let flight = slot.flight.clone().lock_owned().await;
        // Another flight may have brought it meanwhile.
        if let Some(held) = slot.serving(at) {
            return Ok(held);
        }
        if !self.backend.is_issued() {
            return self.fetch(slot, flight).await;
        }
        // A client that goes away must not lose a lease that the store has made.
        let (place, slot) = (self.clone(), slot.clone());
        tokio::spawn(async move { place.fetch(&slot, flight).await })
            .await
            .map_err(|_| StoreError::Unreachable("the reading task ended"))?
    }

    /// Asks the store in the background, unless somebody does. The task ends by the store's own
    /// deadline.
    fn refresh(self: &Arc<Self>, slot: &Arc<Slot>) {
        if let Ok(flight) = slot.flight.clone().try_lock_owned()
            && flight.failed_lately().is_none()
        {
            let (place, slot) = (self.clone(), slot.clone());
            // Its failure is kept in the flight and met by whoever needs the secret once it has
            // expired.
            tokio::spawn(async move { place.fetch(&slot, flight).await.map(drop) });
        }
    }

    /// A new reading, or the last failure where that is fresh.
    async fn fetch(&self, slot: &Slot, mut flight: InFlight) -> Result<Arc<Reading>, StoreError> {
        if flight.ended {
            return Err(StoreError::Ended);
        }
        if let Some(cause) = flight.failed_lately() {
            return Err(cause);
        }
        match self.ask(slot).await {
            Ok(reading) => {
                flight.failed = None;
                let reading = Arc::new(reading);
                slot.held.store(Some(reading.clone()));
                Ok(reading)
            }
            Err(cause) => {
                if cause.is_final() {
                    slot.held.store(None);
                }
                tracing::warn!(from = %self.backend, %cause, "a secret could not be read");
                flight.failed = Some((Instant::now(), cause.clone()));
                Err(cause)
            }
        }
    }

    /// Has the store extend what is held, or asks it for a new reading.
    async fn ask(&self, slot: &Slot) -> Result<Reading, StoreError> {
        // Counted from the question, for the secret may have been made then.
        let asked = Instant::now();
        let before = slot.held.load_full();
        if let Some(held) = before.as_ref().filter(|held| held.serves(asked))
            && let Some(lease) = held.lease.as_ref().filter(|lease| lease.is_renewable())
            && let Ok(lease) = self.store.renew(lease).await
        {
            slot.note(&lease, asked);
            return Ok(Reading::new(held.secrets.clone(), Some(lease), asked));
        }
        let material = self.store.fetch(&self.backend).await?;
        if let Some(lease) = &material.lease {
            slot.note(lease, asked);
        }
        let secrets = self.admit(&material, before.as_deref())?;
        Ok(Reading::new(secrets, material.lease, asked))
    }

    /// The secret of each reference. One that cannot be used fails the reading, so that what was
    /// read before serves on.
    fn admit(
        &self,
        material: &Material,
        before: Option<&Reading>,
    ) -> Result<Vec<Result<Arc<Secret>, StoreError>>, StoreError> {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |(at, reference): (usize, &SecretRef)| {
            let Some(value) = material.field(reference.field.as_deref()) else {
                return Ok(Err(reference.lacking()));
            };
            // An unchanged secret stays the same object, so that what was built from it is still
            // right.
            let known = before.and_then(|before| before.secrets.get(at)?.as_ref().ok());
            Ok(Ok(match known.filter(|known| known.is(value)) {
                Some(known) => known.clone(),
                None => Arc::new(reference.admit(value)?),
            }))
        };
        wanted.iter().enumerate().map(one).collect()
    }
}

impl Slot {
    /// What is held, where it serves and has the secret of that reference.
    fn serving(&self, at: usize) -> Option<Arc<Reading>> {
        let held = self.held.load();
        let now = Instant::now();
        held.as_ref()
            .filter(|held| at < held.secrets.len() && held.serves(now))
            .cloned()
    }

    fn holds(&self, reading: &Arc<Reading>) -> bool {
        let held = self.held.load();
        held.as_ref().is_some_and(|held| Arc::ptr_eq(held, reading))
    }

    /// Keeps in mind that a lease must be revoked.
    fn note(&self, lease: &Lease, asked: Instant) {
        if lease.id.is_some() {
            let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
            leases.retain(|(known, end)| known.id != lease.id && *end > asked);
            leases.push((lease.clone(), asked + lease.expires_after));
        }
    }

    /// Revokes what was issued, and lets nothing more be issued.
    async fn end(&self, place: &Place) {
        self.flight.lock().await.ended = true;
        self.held.store(None);
        let leases =
            std::mem::take(&mut *self.leases.lock().unwrap_or_else(PoisonError::into_inner));
        for (lease, _) in leases {
            if let Err(cause) = place.store.revoke(&lease).await {
                tracing::warn!(store = %place.backend, %cause, "a lease was not revoked");
            }
        }
    }
}

impl Flight {
    fn failed_lately(&self) -> Option<StoreError> {
        let failed = self.failed.as_ref();
        failed
            .filter(|(at, _)| at.elapsed() < RETRY_AFTER)
            .map(|(_, cause)| cause.clone())
    }
}

impl Reading {
    fn new(
        secrets: Vec<Result<Arc<Secret>, StoreError>>,
        lease: Option<Lease>,
        asked: Instant,
    ) -> Self {
        Self {
            secrets,
            expires: lease.as_ref().map(|lease| asked + lease.expires_after),
            lease,
            asked,
            waited: AtomicBool::new(false),
        }
    }

    fn serves(&self, now: Instant) -> bool {
        self.expires.is_none_or(|end| now < end)
    }

    fn is_fresh(&self, now: Instant) -> bool {
        let lease = self.lease.as_ref();
        lease.is_none_or(|lease| now < self.asked + lease.stale_after)
    }

    fn is_due(&self, now: Instant) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| now >= self.asked + lease.refresh_after)
    }
}

const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long a request waits for something newer than what it could use.
const WAIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use zeroize::Zeroizing;

    use super::super::material::LeaseId;
    use super::super::{Answer, Malformed, MemoryStore};
    use super::*;

    const NAME: &str = "env:TOKEN";

    fn stage() -> (Arc<MemoryStore>, Source) {
        let store = Arc::new(MemoryStore::default());
        let stores = Stores::with(Arc::<MemoryStore>::clone(&store));
        let source = stores.source(&SecretRef::env("TOKEN"));
        (store, source)
    }

    fn millis(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    async fn holds(source: &Source, value: &[u8]) -> bool {
        source.resolve(None).await.ok().unwrap().secret.is(value)
    }

    #[tokio::test]
    async fn a_hundred_at_once_are_one_fetch() {
        let (store, source) = stage();
        store.put(NAME, b"CANARY-0001", None);
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
        store.put(NAME, b"CANARY-0001", Some(Lease::of(millis(100))));
        assert!(holds(&source, b"CANARY-0001").await);
        store.fail(NAME, StoreError::Absent, Duration::ZERO);
        assert!(holds(&source, b"CANARY-0001").await);
        tokio::time::sleep(millis(120)).await;
        let unavailable = source.resolve(None).await.err().unwrap();
        assert_eq!(unavailable.cause, StoreError::Absent);
        assert!(!format!("{unavailable} {unavailable:?}").contains("CANARY"));
    }

    #[tokio::test]
    async fn a_rotated_secret_is_taken_before_the_old_one_ends_and_nobody_waits() {
        let (store, source) = stage();
        let life = Lease {
            refresh_after: millis(20),
            stale_after: Duration::from_secs(60),
            expires_after: Duration::from_secs(60),
            id: None,
        };
        store.put(NAME, b"CANARY-0001", Some(life.clone()));
        assert!(holds(&source, b"CANARY-0001").await);
        store.put(NAME, b"CANARY-0002", Some(life.clone()));
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
        let life = Lease {
            refresh_after: millis(5),
            stale_after: millis(10),
            expires_after: millis(10),
            id: None,
        };
        store.put(NAME, b"CANARY-0001", Some(life.clone()));
        let first = source.resolve(None).await.ok().unwrap();
        tokio::time::sleep(millis(20)).await;
        store.put(NAME, b"CANARY-0001", Some(life.clone()));
        let second = source.resolve(None).await.ok().unwrap();
        assert!(Arc::ptr_eq(&first.secret, &second.secret));
        assert_eq!(store.fetches(), 2);
    }

    #[tokio::test]
    async fn a_broken_store_is_asked_once_a_second() {
        let (store, source) = stage();
        for _ in 0..50 {
            assert_eq!(
                source.resolve(None).await.err().unwrap().cause,
                StoreError::Absent
            );
        }
        assert_eq!(store.fetches(), 1);
        store.put(NAME, b"CANARY-0001", None);
        tokio::time::sleep(RETRY_AFTER).await;
        assert!(holds(&source, b"CANARY-0001").await);
    }

    #[tokio::test]
    async fn a_dropped_call_leaves_the_fetch_to_the_next() {
        let (store, source) = stage();
        store.put(NAME, b"CANARY-0001", None);
        store.slow(NAME, millis(200));
        assert!(
            tokio::time::timeout(millis(20), source.resolve(None))
                .await
                .is_err()
        );
        store.slow(NAME, Duration::ZERO);
        assert!(holds(&source, b"CANARY-0001").await);
    }

    #[tokio::test]
    async fn a_forgotten_secret_is_fetched_anew() {
        let (store, source) = stage();
        store.put(NAME, b"CANARY-0001", None);
        assert!(holds(&source, b"CANARY-0001").await);
        store.put(NAME, b"CANARY-0002", None);
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
        let reference = SecretRef::file(file.path());
        let source = Stores::new([&reference]).source(&reference);
        assert!(holds(&source, b"CANARY-0001").await);
        std::fs::write(file.path(), "CANARY-0002\n").unwrap();
        tokio::time::sleep(millis(1050)).await;
        source.resolve(None).await.ok().unwrap();
        tokio::time::sleep(millis(100)).await;
        assert!(holds(&source, b"CANARY-0002").await);
    }

    /// A store that issues: it counts what is renewed and revoked.
    #[derive(Default)]
    struct Issuing {
        issued: AtomicU64,
        renewed: AtomicU64,
        revoked: Mutex<Vec<u64>>,
        life: Duration,
    }

    impl Issuing {
        fn lease(&self, login: u64) -> Lease {
            let text = format!("lease/{login}").into();
            let id = LeaseId {
                text,
                renewable: self.renewed.load(Ordering::SeqCst) < 2,
                login,
            };
            Lease {
                id: Some(id),
                ..Lease::of(self.life)
            }
        }
    }

    impl SecretStore for Issuing {
        fn fetch<'a>(&'a self, _: &'a Backend) -> Answer<'a, Material> {
            Box::pin(async move {
                tokio::time::sleep(millis(20)).await;
                let number = self.issued.fetch_add(1, Ordering::SeqCst);
                let value = Zeroizing::new(format!("CANARY-{number:04}").into_bytes());
                Ok(Material::new(Some(self.lease(number))).with("password", value))
            })
        }

        fn renew<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Lease> {
            self.renewed.fetch_add(1, Ordering::SeqCst);
            let login = lease.id.as_ref().map(|id| id.login);
            let lease = self.lease(login.unwrap_or_default());
            Box::pin(std::future::ready(Ok(lease)))
        }

        fn revoke<'a>(&'a self, lease: &'a Lease) -> Answer<'a, ()> {
            let login = lease.id.as_ref().map(|id| id.login);
            self.revoked.lock().unwrap().extend(login);
            Box::pin(std::future::ready(Ok(())))
        }
    }

    fn issuing(life: Duration) -> (Arc<Issuing>, Stores, Source) {
        let store = Arc::new(Issuing {
            life,
            ..Issuing::default()
        });
        let stores = Stores::with(store.clone());
        let text = "vault-lease:database/creds/app#password";
        let parsed = SecretRef::parse(text, |_| Err(Malformed::new("", "")));
        let source = stores.source(&parsed.unwrap());
        (store, stores, source)
    }

    #[tokio::test]
    async fn each_session_has_a_lease_of_its_own_until_it_ends_and_none_after() {
        let (store, stores, source) = issuing(Duration::from_secs(60));
        let [one, two] = ["one", "two"].map(|id| SessionId::new(id).unwrap());
        for session in [&one, &two, &one] {
            source.resolve(Some(session)).await.ok().unwrap();
        }
        assert_eq!(store.issued.load(Ordering::SeqCst), 2);
        let nobody = source.resolve(None).await.err().unwrap();
        assert_eq!(nobody.cause, StoreError::NoSession);
        stores.end(&one).await;
        assert_eq!(*store.revoked.lock().unwrap(), [0]);
        let over = source.resolve(Some(&one)).await.err().unwrap();
        assert_eq!(over.cause, StoreError::Ended);
        source.resolve(Some(&two)).await.ok().unwrap();
        stores.close().await;
        assert_eq!(*store.revoked.lock().unwrap(), [0, 1]);
    }

    #[tokio::test]
    async fn a_lease_is_renewed_while_it_can_be_and_then_replaced_and_all_are_revoked() {
        let (store, stores, source) = issuing(millis(500));
        let session = SessionId::new("one").unwrap();
        let first = source.resolve(Some(&session)).await.ok().unwrap();
        for _ in 0..2 {
            tokio::time::sleep(millis(420)).await;
            stores.tend().await;
            tokio::time::sleep(millis(10)).await;
            let same = source.resolve(Some(&session)).await.ok().unwrap();
            assert!(Arc::ptr_eq(&first.secret, &same.secret));
        }
        assert_eq!(store.renewed.load(Ordering::SeqCst), 2);
        tokio::time::sleep(millis(420)).await;
        stores.tend().await;
        tokio::time::sleep(millis(50)).await;
        let next = source.resolve(Some(&session)).await.ok().unwrap();
        assert!(next.secret.is(b"CANARY-0001"));
        stores.end(&session).await;
        assert_eq!(*store.revoked.lock().unwrap(), [0, 1]);
    }

    #[tokio::test]
    async fn a_client_that_goes_away_loses_no_lease() {
        let (store, stores, source) = issuing(Duration::from_secs(60));
        let session = SessionId::new("one").unwrap();
        let asked = tokio::time::timeout(millis(5), source.resolve(Some(&session)));
        assert!(asked.await.is_err());
        stores.end(&session).await;
        assert_eq!(store.issued.load(Ordering::SeqCst), 1);
        assert_eq!(*store.revoked.lock().unwrap(), [0]);
    }

    #[tokio::test]
    async fn what_is_stale_serves_while_the_store_is_away_and_not_once_it_refuses() {
        let (store, source) = stage();
        let lease = Lease {
            refresh_after: millis(20),
            stale_after: millis(30),
            expires_after: Duration::from_secs(60),
            id: None,
        };
        store.put(NAME, b"CANARY-0001", Some(lease.clone()));
        assert!(holds(&source, b"CANARY-0001").await);
        // Past its time the newer one is waited for.
        store.put(NAME, b"CANARY-0002", Some(lease));
        store.slow(NAME, millis(50));
        tokio::time::sleep(millis(40)).await;
        assert!(holds(&source, b"CANARY-0002").await);
        store.fail(NAME, StoreError::Sealed, Duration::ZERO);
        tokio::time::sleep(millis(40)).await;
        assert!(holds(&source, b"CANARY-0002").await);
        tokio::time::sleep(RETRY_AFTER).await;
        let refused = StoreError::Login(Box::new(StoreError::gone()));
        store.fail(NAME, refused.clone(), Duration::ZERO);
        assert!(holds(&source, b"CANARY-0002").await);
        tokio::time::sleep(millis(20)).await;
        assert_eq!(source.resolve(None).await.err().unwrap().cause, refused);
    }

    #[tokio::test]
    async fn fields_of_one_place_are_of_one_reading_and_a_bad_field_fails_it_whole() {
        let (store, user) = stage();
        let stores = Stores::with(store.clone());
        let field = |name| stores.source(&user.reference().clone().field(name));
        let (user, password, absent) = (field("user"), field("password"), field("other"));
        fn both<'f>(user: &'f [u8], password: &'f [u8]) -> [(&'f str, &'f [u8]); 2] {
            [("user", user), ("password", password)]
        }
        let short = Lease::of(millis(50));
        store.put_fields(NAME, &both(b"CANARY-u1", b"CANARY-p1"), Some(short.clone()));
        let first = user.resolve(None).await.ok().unwrap();
        tokio::time::sleep(millis(60)).await;
        store.put_fields(NAME, &both(b"CANARY-u2", b"CANARY-p2"), Some(short.clone()));
        assert!(holds(&password, b"CANARY-p2").await);
        let beside = password.beside(&first).unwrap().ok().unwrap();
        assert!(beside.secret.is(b"CANARY-p1"));
        store.put_fields(NAME, &both(b"CANARY-u3", b"with\nbreak"), Some(short));
        tokio::time::sleep(millis(60)).await;
        let cause = user.resolve(None).await.err().unwrap().cause;
        assert_eq!(
            cause,
            StoreError::Unsafe(crate::credential::SecretUnsafe::Character)
        );
        tokio::time::sleep(RETRY_AFTER).await;
        store.put_fields(NAME, &both(b"CANARY-u4", b"CANARY-p4"), None);
        let cause = absent.resolve(None).await.err().unwrap().cause;
        assert_eq!(cause, StoreError::NoField("other".into()));
        assert!(cause.is_absent() && holds(&user, b"CANARY-u4").await);
    }
}
