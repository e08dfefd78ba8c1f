//! The live sessions, and the proof that a request belongs to one of them.

use std::any::Any;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use gateway_audit::{Log, Redact, SeenCredentials, Usage};
use gateway_body::{ArrivalCheck, Document, HoldBudget};
use gateway_intercept::{Accepted, Request};
use gateway_names::{Map, SessionId, User};
use parking_lot::RwLock;
use tokio::sync::watch;

use super::bindings::Bindings;
use super::content::ContentSearch;
use super::creation::Creation;
use super::detected::{CredentialUse, DetectedCredentials};
use super::groups::Groups;
use super::idle::IdleClock;
use super::lifetime::{Lifetime, Moment};
use super::messages::MessageSearch;
use super::origin_bindings::OriginBindings;
use super::passing_search::{PassingSearch, note};
use super::phantom::{Phantom, PhantomKey, Phantoms, Registry, TemporaryPhantoms};
use super::refusal::CredentialRefusal;
use super::status::{DecidedStatus, EndReason, SessionStatus};

/// A session: one workload, the credentials it may present, and its lifetime.
pub struct Session {
    id: SessionId,
    groups: Groups,
    /// The user that it belongs to, if any.
    user: Option<User>,
    /// How an operator created it, if one did.
    creation: Option<Creation>,
    /// How many earlier sessions had its name.
    before: u64,
    /// The key that its phantoms are derived from. A session without a key gains no credential.
    key: Option<PhantomKey>,
    /// The phantoms that its workload holds now.
    phantoms: ArcSwap<Phantoms>,
    /// The registry of all sessions' phantoms, once this session is entered there.
    registry: OnceLock<Arc<Registry>>,
    /// Its lifetime; `None` if it does not end by itself.
    lifetime: ArcSwapOption<Lifetime>,
    idle: IdleClock,
    /// What its requests did, in the words of policies. They are only ever added.
    labels: ArcSwapOption<Vec<Arc<str>>>,
    /// How many they are, for a look that costs nothing.
    label_count: AtomicUsize,
    /// The status that was decided for it.
    pub(super) status: DecidedStatus,
    connections: AtomicUsize,
    exchanges: AtomicUsize,
    held: OnceLock<Arc<HoldBudget>>,
    decoding: OnceLock<Arc<HoldBudget>>,
    account: Usage,
    /// State that `credential` keeps for the session. Only `credential` can read it, and it is
    /// dropped with the session.
    state: OnceLock<Box<dyn Any + Send + Sync>>,
    /// Finds, for records, what `credential` keeps out of them.
    hidden: OnceLock<Box<dyn Redact>>,
}

gateway_names::faults! {
    /// Why a request belongs to no session, or may not be made in it.
    #[derive(Debug, thiserror::Error)]
    pub enum Error {
        /// The session of the listener is not known.
        Unknown = SessionUnknown "the session is unknown",
        /// The session has ended.
        Ended = SessionEnded "the session has ended",
        /// An operator paused the session.
        Paused = SessionPaused "an operator paused the session",
        /// A phantom or a foreign credential appears in a wrong place.
        Misplaced(#[from] CredentialRefusal) = inner transparent,
    }
}

impl Session {
    /// Creates a session with the phantoms issued for it.
    pub fn new(
        id: SessionId,
        groups: Vec<Arc<str>>,
        phantoms: Phantoms,
        lifetime: Option<Lifetime>,
    ) -> Self {
        Self {
            id,
            groups: Groups::new(groups),
            user: None,
            creation: None,
            before: 0,
            key: None,
            phantoms: ArcSwap::from_pointee(phantoms),
            registry: OnceLock::new(),
            lifetime: ArcSwapOption::from_pointee(lifetime),
            idle: IdleClock::new(Moment::now()),
            labels: ArcSwapOption::default(),
            label_count: AtomicUsize::new(0),
            status: DecidedStatus::default(),
            connections: AtomicUsize::new(0),
            exchanges: AtomicUsize::new(0),
            held: OnceLock::new(),
            decoding: OnceLock::new(),
            account: Usage::default(),
            state: OnceLock::new(),
            hidden: OnceLock::new(),
        }
    }

    /// Keeps the key that the phantoms are derived from, so that the session can gain credentials.
    #[must_use]
    pub fn with_key(self, key: PhantomKey) -> Self {
        Self {
            key: Some(key),
            ..self
        }
    }

    /// Makes it the session of a user.
    #[must_use]
    pub fn of_user(self, user: Option<User>) -> Self {
        Self { user, ..self }
    }

    /// Returns the user that the session belongs to, if any.
    pub fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// Notes how an operator created the session.
    #[must_use]
    pub fn with_creation(self, creation: Option<Creation>) -> Self {
        Self { creation, ..self }
    }

    /// Returns how an operator created it at run time. Such a session has no listener and a fixed
    /// end, and only holders of its token can use it.
    pub fn creation(&self) -> Option<&Creation> {
        self.creation.as_ref()
    }

    /// Notes how many earlier sessions of its name are used up.
    #[must_use]
    pub fn after(self, before: u64) -> Self {
        Self { before, ..self }
    }

    /// Returns how many earlier sessions of its name are used up.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// Returns the key that the phantoms are derived from.
    pub fn key(&self) -> Option<&PhantomKey> {
        self.key.as_ref()
    }

    /// Returns the id of the session.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Returns the groups of the session in a generation of the configuration.
    pub fn groups(&self, generation: u64) -> Arc<[Arc<str>]> {
        self.groups.of(generation)
    }

    /// Returns the groups of the session in the latest generation.
    pub fn last_groups(&self) -> Arc<[Arc<str>]> {
        self.groups.of(u64::MAX)
    }

    /// Returns the labels that its requests gave it; `None` if there are none.
    pub fn labels(&self) -> Option<Arc<Vec<Arc<str>>>> {
        match self.label_count() {
            0 => None,
            _ => self.labels.load_full(),
        }
    }

    /// Returns how many labels it has.
    pub fn label_count(&self) -> usize {
        self.label_count.load(Ordering::Acquire)
    }

    /// Whether it has all of these labels.
    pub fn has_labels<'a>(&self, labels: impl IntoIterator<Item = &'a Arc<str>>) -> bool {
        let own = self.labels();
        let has = |label| own.as_ref().is_some_and(|own| own.contains(label));
        labels.into_iter().all(has)
    }

    /// Adds labels.
    pub fn add_labels<'a>(&self, labels: impl IntoIterator<Item = &'a Arc<str>> + Clone) {
        self.labels.rcu(|own| {
            let mut all: BTreeSet<_> = own.iter().flat_map(|own| own.iter().cloned()).collect();
            all.extend(labels.clone().into_iter().cloned());
            Some(Arc::new(all.into_iter().collect::<Vec<_>>()))
        });
        let count = self.labels.load().as_ref().map_or(0, |all| all.len());
        self.label_count.fetch_max(count, Ordering::Release);
    }

    /// Sets the groups from a generation on. Must be called before that generation is in force.
    pub fn regroup(&self, since: u64, groups: &[String]) {
        let groups = groups.iter().map(|group| Arc::from(group.as_str()));
        self.groups.change(since, groups.collect());
    }

    /// Returns the phantoms that the workload holds now.
    pub fn phantoms(&self) -> Arc<Phantoms> {
        self.phantoms.load_full()
    }

    /// Adds temporary credentials, and returns those that the session no longer holds.
    ///
    /// From now on this session accepts them, and every other session recognises them as those of
    /// this session.
    pub fn gain(&self, minted: &Arc<TemporaryPhantoms>) -> Vec<Arc<TemporaryPhantoms>> {
        if let Some(registry) = self.registry.get() {
            registry.enter(&self.id, minted.parts());
        }
        let mut gone = Vec::new();
        self.phantoms.rcu(|phantoms| {
            let (next, lost) = phantoms.with(minted.clone());
            gone = lost;
            next
        });
        gone
    }

    /// Replaces the phantoms of configured credentials. Temporary credentials stay.
    pub fn hold(&self, next: &Phantoms) {
        if let Some(registry) = self.registry.get() {
            registry.enter(&self.id, next.all());
        }
        self.phantoms.rcu(|now| next.with_minted_of(now));
    }

    /// Finds the credentials in the content of one of its requests.
    ///
    /// # Errors
    /// As [`ContentSearch::find`].
    pub fn find_in(
        &self,
        search: &ContentSearch,
        content: &Document<'_>,
    ) -> Result<Vec<CredentialUse>, CredentialRefusal> {
        let registry = self.registry.get().map(Arc::as_ref);
        search.find(content, (&self.phantoms.load(), registry))
    }

    /// Finds the credentials in a text message that its workload sends by a WebSocket.
    ///
    /// # Errors
    /// As [`MessageSearch::find`].
    pub fn find_in_message(
        &self,
        search: &MessageSearch,
        text: &str,
    ) -> Result<Vec<CredentialUse>, CredentialRefusal> {
        let registry = self.registry.get().map(Arc::as_ref);
        search.find(text, (&self.phantoms.load(), registry))
    }

    /// Notes which credentials have phantoms in content.
    pub fn note_in(&self, content: &[u8], noted: &SeenCredentials) {
        note(&self.phantoms.load(), noted, content);
    }

    /// Whether it has ended: its lifetime is over, it was idle for too long, or an operator ended
    /// it.
    pub fn is_over(&self) -> bool {
        self.ended().is_some()
    }

    /// Returns why it has ended, if it has.
    pub fn ended(&self) -> Option<EndReason> {
        self.ended_at(Moment::now)
    }

    /// Returns why it has ended by `now`, which is called only if the session can end by itself.
    fn ended_at(&self, now: impl FnOnce() -> Moment) -> Option<EndReason> {
        if let SessionStatus::Ended(why) = self.status.load() {
            return Some(why);
        }
        let lifetime = self.lifetime.load();
        let lifetime = lifetime.as_ref()?;
        let now = now();
        if lifetime.is_over(now) {
            return Some(EndReason::Expired);
        }
        // An exchange under way counts as use.
        let is_idle = self.exchanges.load(Ordering::Relaxed) == 0 && self.idle.is_over(now);
        is_idle.then_some(EndReason::Idle)
    }

    /// Sets the limit after which it ends if it is idle; `None` if it may be idle for ever. Only a
    /// session with a lifetime can end this way.
    pub fn limit_idle(&self, most: Option<Duration>) {
        self.idle.limit(most);
    }

    /// Returns the limit after which it ends if it is idle, if there is one.
    pub fn idle(&self) -> Option<Duration> {
        self.idle.most()
    }

    /// Records the end of a session that was idle for too long.
    pub fn end_if_idle(&self) {
        self.end_if_idle_at(Moment::now());
    }

    fn end_if_idle_at(&self, now: Moment) {
        if self.ended_at(|| now) == Some(EndReason::Idle) {
            self.status.store(SessionStatus::Ended(EndReason::Idle));
        }
    }

    /// Starts the lifetime anew, after the session was idle for too long. Returns whether it did.
    pub(super) fn come_back(&self, now: Moment) -> bool {
        if let (Some(lifetime), None) = (self.lifetime(), &self.creation) {
            self.extend(lifetime.again(now));
        }
        self.idle.note(now.since_boot);
        self.status.store(SessionStatus::Active)
    }

    /// Returns the lifetime; `None` if it does not end by itself.
    pub fn lifetime(&self) -> Option<Lifetime> {
        self.lifetime.load().as_deref().copied()
    }

    /// Replaces the lifetime.
    pub fn extend(&self, lifetime: Lifetime) {
        self.lifetime.store(Some(Arc::new(lifetime)));
    }

    /// Returns the numbers of open connections and of exchanges under way.
    pub fn load(&self) -> (usize, usize) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (count(&self.connections), count(&self.exchanges))
    }

    /// Takes one of the session's connection slots. `None` if `most` are already open.
    ///
    /// A session that has ended accepts connections too, so that its requests get a response that
    /// says so.
    #[must_use]
    pub fn connect(self: &Arc<Self>, most: usize) -> Option<SessionConnection> {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let connected = SessionConnection(self.clone());
        (before < most).then_some(connected)
    }
}

impl Session {
    /// Returns the session's share of the budget for held content, the same at every call.
    pub fn part_of(&self, budget: &Arc<HoldBudget>) -> &Arc<HoldBudget> {
        self.held.get_or_init(|| budget.part())
    }

    /// Returns the session's share of the budget for decoders, the same at every call.
    pub fn decoding_of(&self, budget: &Arc<HoldBudget>) -> &Arc<HoldBudget> {
        self.decoding.get_or_init(|| budget.part())
    }

    /// State kept for as long as the session lives, created on first use. `None` if the state kept
    /// there has another type.
    pub fn state<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.state.get_or_init(|| Box::new(make())).downcast_ref()
    }

    /// Has records hide what this finds in their texts, besides phantoms.
    pub fn hide(&self, hidden: impl FnOnce() -> Box<dyn Redact>) {
        self.hidden.get_or_init(hidden);
    }

    /// Takes one of the session's exchange slots. `None` if `most` are already in progress.
    #[must_use]
    pub fn exchange(self: &Arc<Self>, most: usize) -> Option<SessionExchange> {
        // A refused request does not revive a session that was idle for too long.
        let now = Moment::now();
        self.end_if_idle_at(now);
        let before = self.exchanges.fetch_add(1, Ordering::Relaxed);
        self.idle.note(now.since_boot);
        let underway = SessionExchange(self.clone());
        (before < most).then_some(underway)
    }
}

/// One of a session's exchanges in progress. Dropping it frees the slot.
pub struct SessionExchange(Arc<Session>);

impl SessionExchange {
    /// Returns the session that the exchange belongs to.
    pub fn session(&self) -> &Session {
        &self.0
    }
}

impl Drop for SessionExchange {
    fn drop(&mut self) {
        self.0.idle.note(Moment::since_boot());
        self.0.exchanges.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One of a session's open connections. Dropping it frees the slot.
pub struct SessionConnection(Arc<Session>);

impl Drop for SessionConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps phantoms out of audit records, and limits a session to its share of records.
impl Redact for Session {
    fn account(&self) -> Option<&Usage> {
        Some(&self.account)
    }

    fn redact(&self, text: &[u8], places: &mut Vec<Range<usize>>) {
        if let Some(hidden) = self.hidden.get() {
            hidden.redact(text, places);
        }
        let phantoms = self.phantoms.load();
        if text.len() < phantoms.shortest() {
            return;
        }
        let extent = |sighting| phantoms.extent(&sighting, text.len());
        // A host name has lost its letter case.
        places.extend(phantoms.find_folded(text).map(extent));
        places.extend(phantoms.find(text).map(extent));
    }
}

/// The live sessions, by name.
#[derive(Default)]
pub struct Sessions {
    pub(super) live: RwLock<Map<SessionId, Arc<Session>>>,
    /// Signals that an operator ended a session.
    pub(super) ended: watch::Sender<()>,
    /// The phantoms of all sessions, to recognise one in a request of another (threats H11).
    registry: Arc<Registry>,
}

impl Sessions {
    /// Adds a live session.
    pub fn enter(&self, session: Arc<Session>) {
        self.registry.enter(&session.id, session.phantoms().all());
        let _ = session.registry.set(self.registry.clone());
        self.live.write().insert(session.id.clone(), session);
    }

    /// Registers the phantoms of a session that is not live here, so that they are refused as such.
    pub fn recognise(&self, id: &SessionId, phantoms: &[Phantom]) {
        self.registry.enter(id, phantoms);
    }

    /// Returns the session, live or ended, to which a text was issued as a phantom.
    pub fn owner(&self, text: &[u8]) -> Option<SessionId> {
        self.registry.owner(text)
    }

    /// Whether a text that has lost its letter case contains a phantom of a live session.
    pub fn has_folded(&self, text: &[u8]) -> bool {
        let live = self.live.read();
        let mut held = live.values().map(|session| session.phantoms.load());
        held.any(|held| text.len() >= held.shortest() && held.find_folded(text).is_some())
    }

    /// Looks up a session by id.
    pub fn get(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.live.read().get(id).cloned()
    }

    /// Records the number of refused exchanges of each session that have no record of their own.
    pub fn tell_suppressed(&self, log: &Log) {
        for (id, session) in self.live.read().iter() {
            // A count that cannot be written now is written next time.
            let _ = log.tell_suppressed(id, &session.account);
        }
    }

    /// Identifies the session of a request, and which of the bound credentials the request presents
    /// in which places. `here` are the bindings of its origin.
    ///
    /// # Errors
    /// [`Error`] by cause. No secret is touched: the search is for phantoms.
    pub fn identify(
        &self,
        accepted: Accepted,
        bindings: &Bindings,
        here: &Arc<OriginBindings>,
    ) -> Result<Identified, Error> {
        let mut request = accepted.into_request();
        // INVARIANT: the gateway looks the bindings up by the origin of this request.
        if *here.origin() != request.head.origin {
            return Err(Error::Unknown);
        }
        let session = self
            .get(&request.connection.session)
            .ok_or(Error::Unknown)?;
        match session.status.load() {
            _ if session.is_over() => return Err(Error::Ended),
            // The connection belongs to an earlier session of this name, which is used up.
            _ if session.before != request.connection.before => return Err(Error::Ended),
            SessionStatus::Paused => return Err(Error::Paused),
            _ => {}
        }
        let (head, phantoms) = (&request.head, session.phantoms.load());
        let mut presented = bindings.detect(head, here.clone(), &phantoms, &self.registry)?;
        if request.upgrade.is_some() {
            presented.expect_messages(head, &phantoms);
        }
        // Before policy, so that policy judges what the origin will see.
        presented.settle(&mut request.head);
        Ok(Identified {
            request,
            session,
            presented,
        })
    }
}

/// A request of a live session, with the credentials it presents.
pub struct Identified {
    request: Box<Request>,
    session: Arc<Session>,
    presented: DetectedCredentials,
}

impl Identified {
    /// Searches the content for phantoms while it is sent, and returns the notes. `None` without
    /// content or phantoms.
    pub fn note_phantoms(&mut self) -> Option<Arc<SeenCredentials>> {
        let (phantoms, request) = (self.session.phantoms(), &mut self.request);
        let most = phantoms.count();
        if request.content.is_empty() || most == 0 {
            return None;
        }
        let noted = Arc::new(SeenCredentials::of(most));
        let mut search = PassingSearch::new(phantoms, noted.clone());
        request
            .content
            .watch(Box::new(move |piece| search.pass(piece)));
        request.noted = Some(noted.clone());
        Some(noted)
    }

    /// Has the content checked as it arrives.
    pub fn check_content(&mut self, check: Box<dyn ArrivalCheck>) {
        self.request.content.check(check);
    }

    /// Returns the request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Returns the session of the request.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }
    /// Takes the proof apart, for the stage that judges the request.
    pub fn into_parts(self) -> (Box<Request>, Arc<Session>, DetectedCredentials) {
        (self.request, self.session, self.presented)
    }
}
