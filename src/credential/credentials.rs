//! The configured credentials, with their bindings and the sources of their secrets.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use gateway_message::{Origin, OriginPattern};
use gateway_names::{CredentialName, SecretLabel, SessionId};
use gateway_session::phantom::PhantomKey;
use gateway_session::{
    Binding, BindingMalformed, Bindings, Revocation, Revocations, Role, Session,
};
use gateway_state::KnownOfSecret;
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::buffer_limits::BufferLimits;
use super::configured::ConfiguredCredential;
use super::error::Error;
use super::inject::FieldValues;
use super::login::KnownLogins;
use super::revocation::{RevokedSecrets, SecretPlaces};
use super::secret::Secret;
use super::secret_history::SecretHistory;
use super::store::{CachedSecret, SecretRef, SecretSource, StoreError, Stores, Unavailable};

/// The credentials of one generation that may be lent, by name.
pub struct Credentials {
    bindings: Arc<Bindings>,
    stores: Stores,
    slots: Vec<CredentialSlot>,
    holding: BufferLimits,
    exposed: Arc<ExposureState>,
    logins: KnownLogins,
}

/// The state about responses that all generations of credentials share.
struct ExposureState {
    /// The sessions whose responses are searched for secrets.
    to: Mutex<Vec<Weak<Session>>>,
    /// The key that stand-ins are derived from, for secrets without a phantom in the session;
    /// `None` if the system gave no randomness.
    strangers: Option<PhantomKey>,
    /// Credentials as earlier generations bound them.
    former: RwLock<Vec<FormerCredential>>,
    /// The revocation of each secret's place, whatever the secret is lent as.
    places: Mutex<SecretPlaces>,
}

impl ExposureState {
    /// Returns the revocations of each credential, which are those of its own place and of its
    /// parts' places, and the history of the values read at its place.
    fn revocations(&self, all: &[ConfiguredCredential]) -> Vec<(Revocations, Arc<SecretHistory>)> {
        let mut places = self.places.lock();
        let own: Vec<_> = all.iter().map(|one| places.of(one)).collect();
        let of = |(one, (own_one, read)): (
            &ConfiguredCredential,
            &(Arc<Revocation>, Arc<SecretHistory>),
        )| {
            let parts = one.binding.signing().into_iter();
            let parts = parts.flat_map(|signing| &signing.parts);
            let parts = parts.filter_map(|part| {
                let is_it = |one: &ConfiguredCredential| one.binding.credential == part.credential;
                Some(own[all.iter().position(is_it)?].0.clone())
            });
            let revocations = [own_one.clone()].into_iter().chain(parts).collect();
            (revocations, read.clone())
        };
        all.iter().zip(&own).map(of).collect()
    }

    /// Keeps the bindings of a generation, because the next one may bind less.
    fn keep(&self, bindings: &Bindings, slots: &[CredentialSlot]) {
        let mut former = self.former.write();
        for (binding, slot) in bindings.all().zip(slots) {
            let of_it = |one: &FormerCredential| {
                one.name == binding.credential && Arc::ptr_eq(&one.history, &slot.history)
            };
            let at = former.iter().position(of_it).unwrap_or_else(|| {
                former.push(FormerCredential {
                    name: binding.credential.clone(),
                    from: slot.source.reference().clone(),
                    origins: Vec::new(),
                    is_placed: false,
                    history: slot.history.clone(),
                });
                former.len() - 1
            });
            let one = &mut former[at];
            one.is_placed |= matches!(binding.role, Role::Place);
            for origin in &binding.origins {
                if !one.origins.contains(origin) {
                    one.origins.push(origin.clone());
                }
            }
        }
    }
}

/// The state of one binding: the source of its secret, and the field values built from the latest
/// secret.
pub(super) struct CredentialSlot {
    pub(super) source: SecretSource,
    pub(super) ready: ArcSwapOption<FieldValues>,
    pub(super) history: Arc<CredentialHistory>,
    /// The values that were read at its place and compared with the revoked ones.
    noted: Arc<SecretHistory>,
}

/// The state that a credential keeps from generation to generation, as long as its secret is stored
/// in the same place.
#[derive(Default)]
pub(super) struct CredentialHistory {
    /// The secrets from all its stores, past and present: an origin may still repeat any.
    pub(super) given: Arc<SecretHistory>,
    /// The highest nonce used so far, for signing schemes with increasing nonces.
    pub(super) last: AtomicU64,
    /// How many fetches of its secret succeeded, and how many failed.
    fetches: [AtomicU64; 2],
    /// The time of the last successful fetch, in seconds since 1970.
    had_at: AtomicU64,
}

impl CredentialHistory {
    /// Returns the history of the same credential after its secret has moved to another place.
    fn moved(&self) -> Self {
        Self {
            given: self.given.clone(),
            ..Self::default()
        }
    }
}

/// A credential of a former generation, whose secret origins may still repeat.
struct FormerCredential {
    name: CredentialName,
    /// Where its secret was stored.
    from: SecretRef,
    origins: Vec<OriginPattern>,
    /// Whether it was injected, rather than signed with.
    is_placed: bool,
    history: Arc<CredentialHistory>,
}

impl FormerCredential {
    fn matches(&self, origin: &Origin) -> bool {
        self.origins.iter().any(|pattern| pattern.matches(origin))
    }
}

impl CredentialSlot {
    /// Counts a fetch of the secret, by whether it succeeded.
    pub(super) fn count(&self, had: bool) {
        self.history.fetches[usize::from(!had)].fetch_add(1, Ordering::Relaxed);
        if had {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.unwrap_or_default().as_secs();
            self.history.had_at.store(now, Ordering::Relaxed);
        }
    }

    /// Returns the values that were read at its place or lent, as far as they are remembered.
    pub(super) fn had(&self) -> impl Iterator<Item = Arc<Secret>> {
        let read = self.noted.all().into_iter();
        read.chain(self.history.given.all())
    }

    /// Returns the secrets of its store that are still searched for.
    ///
    /// A secret issued to a session is among them for as long as its lease lives, however often the
    /// lease is renewed.
    pub(super) fn given_before(&self) -> Vec<Arc<Secret>> {
        for former in self.source.former() {
            self.history
                .given
                .add(&former, Some(tokio::time::Instant::now()));
        }
        for cached in self.source.issued() {
            self.history.given.add(&cached.secret, cached.expires);
        }
        self.history.given.all()
    }
}

impl Credentials {
    /// Makes the credentials of a configuration, each with its store.
    ///
    /// # Errors
    /// [`BindingMalformed`] by cause.
    pub fn new(
        stored: Vec<ConfiguredCredential>,
        stores: &Stores,
    ) -> Result<Self, BindingMalformed> {
        let exposed = Arc::new(ExposureState {
            to: Mutex::default(),
            strangers: PhantomKey::random().ok(),
            former: RwLock::default(),
            places: Mutex::default(),
        });
        Self::with(stored, stores, exposed, |_| None)
    }

    /// Makes the credentials of the next generation. A credential whose secret is stored in the
    /// same place keeps its history, even if generations in between lacked it or stored it
    /// elsewhere. Revoked secrets stay revoked.
    ///
    /// # Errors
    /// [`BindingMalformed`] by cause.
    pub fn next(
        &self,
        stored: Vec<ConfiguredCredential>,
        stores: &Stores,
    ) -> Result<Self, BindingMalformed> {
        self.exposed.keep(&self.bindings, &self.slots);
        Self::with(stored, stores, self.exposed.clone(), |stored| {
            let former = self.exposed.former.read();
            let mut known = former
                .iter()
                .filter(|one| one.name == stored.binding.credential);
            let latest = known.clone().next_back()?;
            Some(
                match known.find(|one| one.from.is_same_place(&stored.from)) {
                    Some(same) => same.history.clone(),
                    None => Arc::new(latest.history.moved()),
                },
            )
        })
    }

    /// Returns the secrets of credentials that an earlier generation bound to this origin, and this
    /// one does not.
    pub(super) fn formerly_bound(&self, origin: &Origin) -> Vec<(CredentialName, Arc<Secret>)> {
        let mut found = Vec::new();
        for one in self.exposed.former.read().iter() {
            if one.matches(origin) && !self.binds(&one.name, origin) {
                let given = one.history.given.all();
                found.extend(given.into_iter().map(|secret| (one.name.clone(), secret)));
            }
        }
        found
    }

    /// Whether an earlier generation injected a credential into requests to this origin.
    ///
    /// The logins of other sessions are not counted.
    pub(super) fn formerly_managed(&self, origin: &Origin, session: &SessionId) -> bool {
        let former = self.exposed.former.read();
        let is_of_another = |name| self.logins.is_of_another(name, session);
        let mut managed = former
            .iter()
            .filter(|one| one.is_placed && !is_of_another(&one.name));
        managed.any(|one| one.matches(origin) && one.history.given.is_some())
    }

    fn binds(&self, name: &CredentialName, origin: &Origin) -> bool {
        let binding = self.bindings.all().find(|one| one.credential == *name);
        binding.is_some_and(|one| one.origins.iter().any(|bound| bound.matches(origin)))
    }

    fn with(
        stored: Vec<ConfiguredCredential>,
        stores: &Stores,
        exposed: Arc<ExposureState>,
        history: impl Fn(&ConfiguredCredential) -> Option<Arc<CredentialHistory>>,
    ) -> Result<Self, BindingMalformed> {
        let slot = |(stored, noted): (&ConfiguredCredential, _)| CredentialSlot {
            source: stores.source(&stored.from),
            ready: ArcSwapOption::empty(),
            history: history(stored).unwrap_or_default(),
            noted,
        };
        let (revocations, noted): (Vec<_>, Vec<_>) =
            exposed.revocations(&stored).into_iter().unzip();
        let slots = stored.iter().zip(noted).map(slot).collect();
        let bindings = stored.into_iter().zip(revocations);
        let bindings = bindings.map(|(stored, revocations)| Binding {
            revocations,
            ..stored.binding
        });
        Ok(Self {
            bindings: Arc::new(Bindings::new(bindings.collect())?),
            stores: stores.clone(),
            slots,
            holding: BufferLimits::default(),
            exposed,
            logins: KnownLogins::default(),
        })
    }

    /// Replaces the limits for held content.
    #[must_use]
    pub fn with_buffer_limits(self, holding: BufferLimits) -> Self {
        Self { holding, ..self }
    }

    /// Replaces the logins whose endpoints are known.
    #[must_use]
    pub fn with_logins(self, logins: KnownLogins) -> Self {
        Self { logins, ..self }
    }

    pub(super) fn logins(&self) -> &KnownLogins {
        &self.logins
    }

    pub(super) fn exposed_to(&self) -> MutexGuard<'_, Vec<Weak<Session>>> {
        self.exposed.to.lock()
    }

    pub(super) fn strangers(&self) -> Option<&PhantomKey> {
        self.exposed.strangers.as_ref()
    }

    pub(super) fn slot(&self, index: usize) -> Result<&CredentialSlot, Error> {
        self.slots.get(index).ok_or(Error::Unknown)
    }

    /// Revokes the secret with this label, and everything signed with it, in every generation. When
    /// this returns, no further byte of the secret leaves. Returns how many connections that could
    /// carry it were open.
    pub fn revoke(&self, label: &SecretLabel) -> usize {
        self.exposed.places.lock().revoke(label)
    }

    /// Severs every connection to an origin that may carry a secret.
    pub fn sever(&self) {
        self.exposed.places.lock().sever();
    }

    /// Applies the revocations for every gateway of this user, in place of earlier ones. Returns
    /// how many connections were severed, and whether any revocation changed.
    pub fn obey(&self, revoked: RevokedSecrets) -> (usize, bool) {
        self.exposed.places.lock().obey(revoked)
    }

    /// Returns what is known here about each revoked secret.
    pub fn learned(&self) -> Vec<(SecretLabel, KnownOfSecret)> {
        self.exposed.places.lock().learned()
    }

    /// Returns the credentials that a revocation with this label hits, and their secrets' places.
    pub fn hits(&self, label: &SecretLabel) -> Vec<(String, String)> {
        let from = self.slots.iter().map(|slot| slot.source.reference());
        let hits = self.exposed.places.lock().hits(label, from.clone());
        let named = self.bindings.all().zip(from).zip(hits);
        let hit = named.filter(|(_, is_hit)| *is_hit);
        hit.map(|((binding, from), _)| (binding.credential.to_string(), from.to_string()))
            .collect()
    }

    /// Keeps from workloads that what a revocation with this label hits is revoked by a gateway.
    pub fn hush(&self, label: &SecretLabel) {
        let from = self.slots.iter().map(|slot| slot.source.reference());
        let hits = self.exposed.places.lock().hits(label, from);
        for (binding, _) in self.bindings.all().zip(hits).filter(|(_, is_hit)| *is_hit) {
            binding.revocations.iter().for_each(|one| one.hush());
        }
    }

    /// Returns the names of revoked credentials, and the labels of revoked secrets that this
    /// generation does not have.
    pub fn all_revoked(&self) -> BTreeSet<String> {
        let labels: Vec<_> = self.exposed.places.lock().labels().cloned().collect();
        let away = labels.iter().filter(|label| self.hits(label).is_empty());
        let here = self.revoked().map(ToString::to_string);
        away.map(ToString::to_string).chain(here).collect()
    }

    /// Notes the value of the secret of the binding at `index`, before it is lent. If the value is
    /// revoked, the binding is revoked from now on.
    pub(super) fn note(&self, index: usize, secret: &Arc<Secret>) {
        let slot = &self.slots[index];
        if !slot.noted.has(secret) {
            let places = self.exposed.places.lock();
            places.note(slot.source.reference(), secret);
        }
    }

    /// Returns the credentials that are revoked, or that sign with a revoked part.
    pub fn revoked(&self) -> impl Iterator<Item = &CredentialName> {
        let is_revoked =
            |binding: &&Binding| binding.revocations.iter().any(|one| one.is_revoked());
        let revoked = self.bindings.all().filter(is_revoked);
        revoked.map(|binding| &binding.credential)
    }

    /// Returns the variables of each credential: those that hold its phantom, and the one that
    /// holds its secret.
    pub fn variables(&self) -> impl Iterator<Item = (&CredentialName, Vec<&str>)> {
        self.bindings.all().zip(&self.slots).map(|(binding, slot)| {
            let held = binding.variables.iter().map(String::as_str);
            let from = slot.source.reference().env_name();
            (&binding.credential, held.chain(from).collect())
        })
    }

    /// Returns the limits for held content.
    pub fn holding(&self) -> &BufferLimits {
        &self.holding
    }

    /// Returns the bindings: which credentials may be lent, and where.
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

    /// Returns the error that the secret of the binding at `index` is unavailable.
    pub(super) fn unavailable(&self, index: usize, cause: StoreError) -> Error {
        let reference = Box::new(self.reference(index));
        Error::Unavailable(Box::new(Unavailable { reference, cause }))
    }

    /// Returns the source of a binding's secret, by its index in the configuration.
    pub(super) fn source(&self, at: usize) -> &SecretSource {
        &self.slots[at].source
    }

    /// Returns where a binding's secret is stored, by its index in the configuration.
    pub(super) fn reference(&self, at: usize) -> SecretRef {
        self.source(at).reference().clone()
    }

    /// Returns how many fetches of each credential's secret succeeded and how many failed.
    pub fn fetches(&self) -> impl Iterator<Item = (&CredentialName, u64, u64)> {
        let names = self.bindings.all().map(|binding| &binding.credential);
        names.zip(&self.slots).map(|(name, slot)| {
            let [had, failed] = slot
                .history
                .fetches
                .each_ref()
                .map(|n| n.load(Ordering::Relaxed));
            (name, had, failed)
        })
    }

    /// Returns the time of the last successful fetch of each credential's secret, in seconds since
    /// 1970; 0 if there was none.
    pub fn last_had(&self) -> impl Iterator<Item = (&CredentialName, u64)> {
        let names = self.bindings.all().map(|binding| &binding.credential);
        names
            .zip(&self.slots)
            .map(|(name, slot)| (name, slot.history.had_at.load(Ordering::Relaxed)))
    }

    /// Returns the stores. The caller must renew and revoke their leases.
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Allows the stores to issue to a new session, even if one with this id has ended.
    pub fn begin(&self, session: &SessionId) {
        self.stores.begin(session);
    }

    /// Revokes the secrets that were issued to a session when the session ends.
    pub async fn end(&self, session: &SessionId) {
        self.stores.end(session).await;
    }
}
