//! The current listeners of `serve`, and their sessions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::session::recalled::OpenedSession;
use gateway_config::{Config, Listener};
use gateway_intercept::{Responder, SessionCa};
use gateway_names::SessionId;
use gateway_server::{ListenerSlot, LivePair, LiveSessions, SessionRequest, Worker};
use gateway_session::Session;

/// The channel of requests for callers' sessions.
pub struct SessionQueue {
    /// The sender, for listeners.
    pub asks: mpsc::Sender<SessionRequest>,
    asked: Mutex<Option<mpsc::Receiver<SessionRequest>>>,
}

impl Default for SessionQueue {
    fn default() -> Self {
        let (asks, asked) = mpsc::channel(WAITING);
        let asked = Mutex::new(Some(asked));
        Self { asks, asked }
    }
}

impl SessionQueue {
    /// Returns the receiver of the requests. Only the first call gets it.
    pub fn asked(&self) -> Option<mpsc::Receiver<SessionRequest>> {
        self.asked.lock().take()
    }
}

/// The DNS servers of the sessions of listeners: the listeners of a session share one.
type DnsResponders = Mutex<HashMap<SessionId, Arc<Responder>>>;

/// The current listeners of `serve`. Other commands have none.
#[derive(Default)]
pub struct LiveListeners {
    now: Mutex<CurrentListeners>,
    /// The sessions of `now`, where connections look them up.
    live: Arc<LiveSessions>,
    asks: SessionQueue,
    names: Arc<DnsResponders>,
}

#[derive(Default)]
struct CurrentListeners {
    workers: Vec<Arc<Worker>>,
    open: Vec<OpenListener>,
    /// The sessions of listeners, including removed ones whose sessions are still ending.
    sessions: Vec<LiveSession>,
}

struct LiveSession {
    session: Arc<Session>,
    ca: Arc<SessionCa>,
    /// The time since when no listener has it.
    left: Option<Instant>,
}

impl From<&OpenedSession> for LiveSession {
    fn from(opened: &OpenedSession) -> Self {
        let (session, ca) = opened.live();
        let left = None;
        Self { session, ca, left }
    }
}

impl LiveSession {
    /// Whether a listener has it.
    fn is_of(&self, known: &Listener) -> bool {
        match known.session.one() {
            // A session that an operator created belongs to no listener.
            _ if self.session.creation().is_some() => true,
            Some(id) => id == self.session.id(),
            None => self.session.is_callers(),
        }
    }
}

/// A listener that connections reach.
#[derive(Clone)]
pub struct OpenListener {
    pub(crate) known: Listener,
    /// The name that the service manager passed its socket with.
    pub inherited: Option<String>,
    pub(crate) slot: Arc<ListenerSlot>,
}

impl LiveListeners {
    /// Serves listeners on these workers from now on.
    pub fn on(&self, workers: Vec<Arc<Worker>>) {
        self.now.lock().workers = workers;
    }

    /// Forgets the workers, which are ending.
    pub fn end(&self) {
        self.now.lock().workers.clear();
    }

    /// Returns the workers, one for each thread.
    pub fn workers(&self) -> Vec<Arc<Worker>> {
        self.now.lock().workers.clone()
    }

    /// Returns the DNS servers of sessions.
    pub fn names(&self) -> &Arc<DnsResponders> {
        &self.names
    }

    /// Returns the listeners that connections reach.
    pub fn open(&self) -> Vec<OpenListener> {
        self.now.lock().open.clone()
    }

    /// Returns the session of this id and its CA, if a listener has or had it.
    pub fn session(&self, id: &SessionId) -> Option<LivePair> {
        self.live.get(id)
    }

    /// Returns the channel of requests for callers' sessions.
    pub fn asks(&self) -> &SessionQueue {
        &self.asks
    }

    /// Returns the sessions that listeners have or had.
    pub fn live(&self) -> &Arc<LiveSessions> {
        &self.live
    }

    /// Returns the sessions of a configuration's listeners once it is in force.
    pub fn sessions_of(&self, config: &Config, opened: &[OpenedSession]) -> Vec<LivePair> {
        let now = self.now.lock();
        let stays = |live: &&LiveSession| config.listeners.iter().any(|known| live.is_of(known));
        let live = now.sessions.iter().filter(stays);
        let live = live.filter(|live| live.session.creation().is_none());
        let live = live.map(|live| (live.session.clone(), live.ca.clone()));
        live.chain(opened.iter().map(OpenedSession::live)).collect()
    }

    /// Returns how long no listener has had the session; `None` if one has it, or it was forgotten.
    pub fn left(&self, session: &Session) -> Option<Duration> {
        let now = self.now.lock();
        let mut live = now.sessions.iter();
        let found = live.find(|live| std::ptr::eq(&*live.session, session));
        Some(found?.left?.elapsed())
    }

    /// Returns the sessions of callers.
    pub fn of_callers(&self) -> Vec<Arc<Session>> {
        let now = self.now.lock();
        let all = now.sessions.iter().filter(|live| live.session.is_callers());
        all.map(|live| live.session.clone()).collect()
    }

    /// Checks that there may be one more session of a caller or an operator. Returns those that are
    /// over and must give way; `None` if the limit is reached and none is over.
    pub fn over_most(&self, most: usize) -> Option<Vec<Arc<Session>>> {
        let mut all: Vec<_> = {
            let now = self.now.lock();
            let is_made = |one: &&LiveSession| {
                one.session.user().is_some() || one.session.creation().is_some()
            };
            let made = now.sessions.iter().filter(is_made);
            made.map(|one| one.session.clone()).collect()
        };
        let before = all.len();
        if before < most {
            return Some(Vec::new());
        }
        all.retain(|session| session.is_over());
        (before - all.len() < most).then_some(all)
    }

    /// Adds the session of a caller, or one that an operator created.
    pub fn gain(&self, opened: &OpenedSession) {
        let mut now = self.now.lock();
        self.live.gain(opened.live());
        now.sessions.push(opened.into());
    }

    /// Forgets a session.
    pub fn forget(&self, session: &Session) {
        let mut now = self.now.lock();
        self.live.forget(session);
        now.sessions
            .retain(|live| !std::ptr::eq(&*live.session, session));
        if self.live.get(session.id()).is_none() {
            self.names.lock().remove(session.id());
        }
    }

    /// Replaces the listeners, and adds the sessions that they gained. Returns the sessions that
    /// lost their last listener.
    pub fn replace(&self, open: Vec<OpenListener>, opened: &[OpenedSession]) -> Vec<Arc<Session>> {
        let mut now = self.now.lock();
        opened.iter().for_each(|one| self.live.gain(one.live()));
        now.sessions.extend(opened.iter().map(LiveSession::from));
        now.open = open;
        now.leave()
    }
}

impl CurrentListeners {
    /// Marks the sessions that have no listener now, and returns those that had one before.
    fn leave(&mut self) -> Vec<Arc<Session>> {
        let mut gone = Vec::new();
        for live in &mut self.sessions {
            let mut open = self.open.iter();
            if open.any(|open| live.is_of(&open.known)) {
                live.left = None;
            } else if live.left.is_none() {
                live.left = Some(Instant::now());
                gone.push(live.session.clone());
            }
        }
        gone
    }
}

/// How many callers may wait for their sessions. Further ones wait to ask.
const WAITING: usize = 64;
