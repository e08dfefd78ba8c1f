//! Changes the listeners of `serve` at a reload: adds, removes and replaces them.

use std::collections::{HashMap, HashSet};
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::listen::bind;
use crate::listen::bind::BoundListener;
use crate::listen::listeners::{LiveListeners, OpenListener};
use crate::listen::names;
use crate::listen::publish::Publication;
use crate::session::recalled::OpenedSession;
use crate::session::renewal::record_end;
use crate::settings::project_file;
use crate::{App, Context as _, Failure, Owner, made_by_operator};
use gateway_config::{Config, Listener, ListenerJwt, ListenerKind};
use gateway_credential::Stores;
use gateway_intercept::{ClientVerifier, Evidence, JwtVerifier, Passwords, ProxyTls, UserPassword};
use gateway_names::{ReasonCode, SessionId};
use gateway_server::{
    CallerSessions, ListenerMode, ListenerSessions, ListenerSlot, ListeningSocket, LivePair,
    SessionListener, SharedState, Snapshot,
};
use gateway_session::Session;

/// The listeners that a configuration changes. Nothing is in force yet, and every step that can
/// fail is done.
#[derive(Default)]
pub struct ListenerChange {
    /// The sessions that listeners gain.
    pub opened: Vec<OpenedSession>,
    /// Each added listener with its sockets: one for each worker, in their order.
    added: Vec<(OpenListener, Vec<ListeningSocket>, Option<UdpSocket>)>,
    kept: Vec<(OpenListener, SlotChange)>,
    removed: Vec<OpenListener>,
    regrouped: Vec<(Arc<Session>, Vec<String>)>,
}

/// The change of a kept listener's slot.
enum SlotChange {
    /// The passwords of its clients, and its TLS.
    Same(Vec<UserPassword>, Option<Arc<ProxyTls>>),
    /// A listener of another session, or of another kind.
    Listener(SessionListener),
}

impl App {
    /// Prepares the listeners of a configuration: binds its new addresses, and opens its new
    /// sessions in the generation `next`; the `first` ones are already bound and open.
    ///
    /// # Errors
    /// Returns a [`Failure`] if an address, a password or a session cannot be had. The listeners
    /// are then unchanged.
    pub async fn change_listeners(
        &self,
        next: &Snapshot,
        config: &Config,
        first: Option<(Vec<BoundListener>, Vec<OpenedSession>)>,
    ) -> Result<ListenerChange, Failure> {
        refuse_none(config)?;
        let (open, workers) = (self.listening.open(), self.listening.workers());
        refuse_inherited(&open, config)?;
        let (bound, opened) = match first {
            Some(first) => first,
            None => (self.bind(&added(&open, config)).await?, Vec::new()),
        };
        let (mut change, mut bound) = (ListenerChange::default(), bound.into_iter());
        change.opened = opened;
        let at: HashMap<_, _> = open.iter().map(|one| (&one.known.address, one)).collect();
        for known in &config.listeners {
            let (passwords, known_now) = (passwords(known).await?, known.clone());
            let before = at.get(&known.address);
            before.map_or(Ok(()), |before| refuse_other_sockets(&before.known, known))?;
            let stays = before.filter(|before| !is_another(&before.known, known));
            let to = match stays {
                Some(_) => SlotChange::Same(passwords, known.door()),
                None => {
                    let listener = self.listener(next, config, known, &mut change, passwords);
                    SlotChange::Listener(listener.await?)
                }
            };
            match (before, to) {
                (None, SlotChange::Listener(listener)) => {
                    let bound = bound.next().ok_or_else(|| Failure::new("no socket"))?;
                    let is_inherited = bound.inherited.is_some();
                    let each = workers.iter().zip(bound.sockets);
                    let sockets = each.map(|(worker, socket)| worker.take(socket, is_inherited));
                    let sockets: Result<Vec<_>, _> = sockets.collect();
                    let open = OpenListener {
                        known: known_now,
                        inherited: bound.inherited,
                        slot: Arc::new(ListenerSlot::new(&self.shared, listener)),
                    };
                    let sockets = sockets.context("a listening socket cannot be used")?;
                    change.added.push((open, sockets, bound.udp));
                }
                (before, to) => change.kept.extend(before.map(|before| {
                    let known = known_now;
                    let slot = before.slot.clone();
                    let inherited = before.inherited.clone();
                    (
                        OpenListener {
                            known,
                            inherited,
                            slot,
                        },
                        to,
                    )
                })),
            }
            let live = match known.session.one() {
                Some(id) => self
                    .listening
                    .session(id)
                    .map(|(live, _)| live)
                    .into_iter()
                    .collect(),
                None => self.listening.of_callers(),
            };
            let regrouped = live.into_iter().map(|live| (live, known.groups.clone()));
            change.regrouped.extend(regrouped);
        }
        let known: HashSet<_> = config.listeners.iter().map(|one| &one.address).collect();
        let stays = |one: &OpenListener| known.contains(&one.known.address);
        change.removed = open.into_iter().filter(|one| !stays(one)).collect();
        Ok(change)
    }

    /// Binds added addresses. A listener that was just removed from one may still be closing.
    async fn bind(&self, added: &[Listener]) -> Result<Vec<BoundListener>, Failure> {
        if let Ok(bound) = bind::bind(added, Vec::new(), self.threads()) {
            return Ok(bound);
        }
        tokio::time::sleep(CLOSES_WITHIN).await;
        bind::bind(added, Vec::new(), self.threads())
    }

    /// Opens the listeners of the first configuration, and publishes the files of their workloads.
    /// Between the two it runs `before`, which must precede the first request.
    ///
    /// # Errors
    /// As [`App::change_listeners`], or if a file for workloads cannot be written. Nothing has
    /// changed then.
    pub async fn open_listeners<T>(
        &self,
        bound: Vec<BoundListener>,
        before: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let config = &self.config;
        let mut named = HashSet::new();
        let first = config.listeners.iter();
        let first = first
            .filter_map(|known| Some((known.session.one()?, &known.groups[..], Owner::Listener)));
        let first = first.filter(|(id, ..)| named.insert(*id));
        let made = self.keeper().await?.created().await?;
        let made = made
            .iter()
            .map(|(id, made)| (id, &made.request.groups[..], Owner::Operator(made)));
        let first: Vec<_> = first.chain(made).collect();
        // This precedes the issue of phantoms, which may renew a login.
        self.revocations.begin(&self.shared, config)?;
        let latest = self.reloading.latest.lock().await;
        let ids = first.iter().map(|(id, ..)| *id);
        self.restore_logins(&latest.read, ids).await?;
        drop(latest);
        let snapshot = self.shared.current();
        let opened = self.prepare_and_keep(&snapshot, config, &first).await?;
        let first = Some((bound, opened));
        let change = self.change_listeners(&snapshot, config, first).await?;
        let mut publication = Publication::default();
        let latest = self.reloading.latest.lock().await;
        let logins = &latest.read.resolved.logins[..];
        let given = (&**snapshot.credentials.bindings(), logins, logins);
        let of_listeners = change.opened.iter();
        let of_listeners = of_listeners.filter(|one| one.session.creation().is_none());
        for OpenedSession { session, ca, .. } in of_listeners {
            publication.certificate(config, session, ca)?;
            publication.phantoms(config, given, (session, &session.phantoms()))?;
        }
        drop(latest);
        publication.publish().into_iter().try_for_each(Err)?;
        let done = before()?;
        change.opened.iter().for_each(|opened| self.enter(opened));
        change.apply(&self.shared, &self.listening);
        Ok(done)
    }

    /// Returns a listener's one session: the live one, or a newly opened one.
    async fn session_of(
        &self,
        next: &Snapshot,
        config: &Config,
        (id, known): (&SessionId, &Listener),
        change: &mut ListenerChange,
    ) -> Result<LivePair, Failure> {
        let mut opened = change.opened.iter();
        let opened = opened.find(|one| one.session.id() == id);
        let opened = opened.map(OpenedSession::live);
        if let Some(live) = opened.or_else(|| self.listening.session(id)) {
            let is_listeners = live.0.creation().is_none();
            return is_listeners
                .then_some(live)
                .ok_or_else(|| made_by_operator(id));
        }
        let named = (id, &known.groups[..], Owner::Listener);
        change.opened.push(self.prepare(next, config, named).await?);
        Ok(change.opened[change.opened.len() - 1].live())
    }

    /// Creates a listener with its session, live or newly opened.
    async fn listener(
        &self,
        next: &Snapshot,
        config: &Config,
        known: &Listener,
        change: &mut ListenerChange,
        passwords: Vec<UserPassword>,
    ) -> Result<SessionListener, Failure> {
        let sessions = match known.session.one() {
            Some(id) => self
                .session_of(next, config, (id, known), change)
                .await?
                .into(),
            None => ListenerSessions::EachCaller(CallerSessions {
                live: self.listening.live().clone(),
                asks: self.listening.asks().asks.clone(),
            }),
        };
        let mode = match &known.kind {
            ListenerKind::Tls { port } => ListenerMode::Tls { port: *port },
            ListenerKind::Base(aliases) => ListenerMode::Base(Arc::new(aliases.clone())),
            ListenerKind::Proxy => ListenerMode::Proxy,
            ListenerKind::Transparent => ListenerMode::Transparent {
                names: names::of_listeners(self),
                own_port: known.address.tcp().map(|address| address.port()),
            },
            ListenerKind::Dns => ListenerMode::Dns(names::of_listeners(self)),
        };
        let takes = |evidence| known.who.contains(&evidence);
        let verifier = known.is_presented_to().then(|| {
            Arc::new(ClientVerifier {
                tokens: takes(Evidence::Token).then(|| self.token_verifier()),
                passwords: takes(Evidence::Password).then(|| Passwords::new(passwords)),
                jwts: known.jwt.as_ref().map(|jwt| {
                    Arc::new(JwtVerifier::new(jwt.settings.clone(), jwt.keys().cloned()))
                }),
            })
        });
        if let Some((socket, cause)) = unseen(known).await {
            let socket = socket.display();
            tracing::warn!(%socket, "{cause}; start tailscaled, or write `tailnet_socket`");
        }
        Ok(
            SessionListener::new(&self.shared, sessions, mode).with_evidence(
                known.who.clone(),
                verifier,
                known.door(),
            ),
        )
    }
}

impl ListenerChange {
    /// Returns the addresses of the added listeners.
    pub fn added(&self) -> Vec<String> {
        let added = self.added.iter();
        let address = |(one, ..): &(OpenListener, _, _)| one.known.address.to_string();
        added.map(address).collect()
    }

    /// Returns the addresses of the removed listeners.
    pub fn removed(&self) -> Vec<String> {
        let removed = self.removed.iter();
        removed.map(|one| one.known.address.to_string()).collect()
    }

    /// Changes the groups of sessions from a generation on, before it is in force.
    pub fn regroup(&self, since: u64) {
        for (session, groups) in &self.regrouped {
            session.regroup(since, groups);
        }
    }

    /// Puts the listeners in force. Returns the sessions that lost their last listener, and the
    /// slots that may still give them connections.
    pub fn apply(
        self,
        shared: &SharedState,
        listening: &LiveListeners,
    ) -> (Vec<Arc<Session>>, Arc<[Arc<ListenerSlot>]>) {
        let (workers, mut open, mut closing) = (listening.workers(), Vec::new(), Vec::new());
        for (listener, to) in self.kept {
            listener.known.set_mode();
            match to {
                SlotChange::Listener(other) => closing.push(listener.slot.replace(other)),
                SlotChange::Same(passwords, tls) => {
                    let jwt = listener.known.jwt.as_ref();
                    let keys = jwt.and_then(ListenerJwt::keys);
                    listener.slot.listener().ask_for((passwords, keys), tls);
                }
            }
            open.push(listener);
        }
        for (listener, sockets, udp) in self.added {
            if let Some((worker, udp)) = workers.first().zip(udp) {
                worker.answer_names(udp, listener.slot.clone());
            }
            for (worker, socket) in workers.iter().zip(sockets) {
                worker.listen(socket, listener.slot.clone());
            }
            open.push(listener);
        }
        let left = listening.replace(open, &self.opened);
        for removed in self.removed {
            removed.slot.close();
            closing.push(removed.slot);
        }
        shared.announce();
        (left, closing.into())
    }
}

impl App {
    /// Ends a session that lost its last listener, once its connections have ended, including those
    /// that waited to be accepted. If a listener gets it again meanwhile, it lives on.
    pub async fn retire(self: Arc<Self>, session: Arc<Session>, closing: Arc<[Arc<ListenerSlot>]>) {
        while let Some(left) = self.listening.left(&session) {
            let most = self.shared.look().limits.drain_timeout + CUT_WITHIN;
            let is_closed = !closing.iter().any(|slot| slot.is_open());
            if is_closed && session.load() == (0, 0) || left > most {
                // The lock keeps a reload from giving it to a listener meanwhile.
                let _latest = self.reloading.latest.lock().await;
                if self.listening.left(&session).is_some() {
                    self.listening.forget(&session);
                    self.shared.sessions.leave(&session);
                    let how = "no listener has it any more";
                    record_end(&self.shared, session.id(), how, ReasonCode::ListenerRemoved);
                }
            } else {
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

/// The time that a listener takes to close.
const CLOSES_WITHIN: Duration = Duration::from_millis(300);
/// How often the connections of a removed listener are checked for their end.
const LOOK: Duration = Duration::from_millis(100);
/// How long cut exchanges may take to end.
const CUT_WITHIN: Duration = Duration::from_secs(5);

/// Whether the connections of one listener cannot belong to the other.
fn is_another(one: &Listener, other: &Listener) -> bool {
    let is_in_tls = one.tls.is_some() == other.tls.is_some();
    let [jwt, other_jwt] = [one, other].map(|one| {
        let jwt = one.jwt.as_ref()?;
        Some((&jwt.settings, jwt.url()))
    });
    let is_evidence = one.who == other.who && jwt == other_jwt;
    one.session != other.session || !is_evidence || one.kind != other.kind || !is_in_tls
}

/// Returns the socket of a listener's tailnet, and why it identifies no client now, if it fails.
pub async fn unseen(known: &Listener) -> Option<(&Path, String)> {
    let tailnet = known.who.iter().find_map(Evidence::tailnet)?;
    let why = tailnet.works().await.err()?;
    let what = format!("the tailnet shows nobody at {}: {why}", known.address);
    Some((tailnet.socket(), what))
}

/// Refuses to change a listener to one that needs another socket on the same address.
fn refuse_other_sockets(before: &Listener, now: &Listener) -> Result<(), Failure> {
    let is_of = |kind: ListenerKind| (before.kind == kind) == (now.kind == kind);
    if is_of(ListenerKind::Dns) && is_of(ListenerKind::Transparent) {
        return Ok(());
    }
    Err(Failure::usage("the new configuration is refused")
        .because(format!(
            "the `[[listener]]` on {} would need another socket for its new `kind`",
            now.address
        ))
        .next("write another `address`, or start the gateway anew"))
}

/// Returns the listeners of a configuration on new addresses.
fn added(open: &[OpenListener], config: &Config) -> Vec<Listener> {
    let open: HashSet<_> = open.iter().map(|open| &open.known.address).collect();
    let listeners = config.listeners.iter();
    let added = listeners.filter(|known| !open.contains(&known.address));
    added.cloned().collect()
}

/// Refuses to remove a listener whose socket the service manager holds too, or to give it to
/// another session than its socket unit names.
fn refuse_inherited(open: &[OpenListener], config: &Config) -> Result<(), Failure> {
    for (one, name) in open
        .iter()
        .filter_map(|one| Some((one, one.inherited.as_ref()?)))
    {
        let address = &one.known.address;
        let mut listeners = config.listeners.iter();
        match listeners.find(|known| known.address == *address) {
            None => {
                return Err(Failure::usage("the new configuration is refused")
                    .because(format!(
                        "the service manager has the socket of the `[[listener]]` on {address}, and its connections would wait for ever"
                    ))
                    .next("stop its socket unit, and start the gateway anew"));
            }
            Some(known) => bind::check_name(name, known)?,
        }
    }
    Ok(())
}

/// Refuses a configuration without a listener.
///
/// # Errors
/// Returns a [`Failure`] that says how to add one.
pub fn refuse_none(config: &Config) -> Result<(), Failure> {
    if !config.listeners.is_empty() {
        return Ok(());
    }
    let failure = Failure::usage("there is nothing to listen on");
    // The file is not read unasked: a workload may have written it.
    if config.file.is_none() && Path::new(project_file::NAME).is_file() {
        return Err(failure
            .because(format!(
                "no configuration is named, and `serve` does not read ./{0} by itself",
                project_file::NAME
            ))
            .next(format!("name it: `--config {}`", project_file::NAME)));
    }
    Err(failure
        .because("the configuration has no `[[listener]]`, and no flag names an address")
        .next("add one: kind = \"proxy\", address = \"127.0.0.1:8080\", session = \"agent-1\"; or `--listen 127.0.0.1:8080`"))
}

/// Reads the passwords of a listener.
async fn passwords(known: &Listener) -> Result<Vec<UserPassword>, Failure> {
    let mut all = Vec::new();
    for (user, password) in &known.passwords {
        let lease = Stores::new([password]).source(password).resolve(None).await;
        let lease = lease.context(format!("the password of `{user}` cannot be had"))?;
        all.push(lease.secret.password_of(user));
    }
    Ok(all)
}
