//! The listeners that `serve` has now, and their sessions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::app::session::recalled::OpenedSession;
use crate::config::{Config, Listener};
use crate::gateway::{AskedSession, ListenerSlot, LivePair, LiveSessions, Worker};
use crate::intercept::{Responder, SessionCa};
use crate::names::SessionId;
use crate::session::Session;

/// Where listeners ask for the sessions of callers.
pub(crate) struct CallerAsks {
    /// For listeners.
    pub(crate) asks: mpsc::Sender<AskedSession>,
    asked: Mutex<Option<mpsc::Receiver<AskedSession>>>,
}

impl Default for CallerAsks {
    fn default() -> Self {
        let (asks, asked) = mpsc::channel(WAITING);
        let asked = Mutex::new(Some(asked));
        Self { asks, asked }
    }
}

impl CallerAsks {
    /// What they ask for. Only the first to take it gets it.
    pub(crate) fn asked(&self) -> Option<mpsc::Receiver<AskedSession>> {
        self.asked.lock().take()
    }
}

/// The DNS servers of the sessions of listeners: the listeners of a session share one.
type KnownNames = Mutex<HashMap<SessionId, Arc<Responder>>>;

/// The listeners that `serve` has now. Other commands have none.
#[derive(Default)]
pub struct Listening {
    now: Mutex<Now>,
    /// The sessions that `now` has, where connections look for them.
    live: Arc<LiveSessions>,
    asks: CallerAsks,
    names: Arc<KnownNames>,
}

#[derive(Default)]
struct Now {
    workers: Vec<Arc<Worker>>,
    open: Vec<OpenListener>,
    /// The sessions of listeners, also those that were removed and still end.
    sessions: Vec<LiveSession>,
}

struct LiveSession {
    session: Arc<Session>,
    ca: Arc<SessionCa>,
    /// Since when no listener has it.
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
            // No listener owns one that an operator made.
            _ if self.session.creation().is_some() => true,
            Some(id) => id == self.session.id(),
            None => self.session.is_callers(),
        }
    }
}

/// A listener that connections reach.
#[derive(Clone)]
pub(crate) struct OpenListener {
    pub(crate) known: Listener,
    /// The name that the service manager passed its socket with.
    pub(crate) inherited: Option<String>,
    pub(crate) slot: Arc<ListenerSlot>,
}

impl Listening {
    /// Has listeners on these workers from now on.
    pub(crate) fn on(&self, workers: Vec<Arc<Worker>>) {
        self.now.lock().workers = workers;
    }

    /// Forgets the workers, which end.
    pub(crate) fn end(&self) {
        self.now.lock().workers.clear();
    }

    /// The workers, one for each thread.
    pub(crate) fn workers(&self) -> Vec<Arc<Worker>> {
        self.now.lock().workers.clone()
    }

    /// The DNS servers of sessions.
    pub(crate) fn names(&self) -> &Arc<KnownNames> {
        &self.names
    }

    /// The listeners that connections reach.
    pub(crate) fn open(&self) -> Vec<OpenListener> {
        self.now.lock().open.clone()
    }

    /// The session of this id and its CA, if a listener has it or had it.
    pub(crate) fn session(&self, id: &SessionId) -> Option<LivePair> {
        self.live.get(id)
    }

    /// Where listeners ask for the sessions of callers.
    pub(crate) fn asks(&self) -> &CallerAsks {
        &self.asks
    }

    /// The sessions that listeners have or had.
    pub(crate) fn live(&self) -> &Arc<LiveSessions> {
        &self.live
    }

    /// The sessions that the listeners of a configuration have once it is in force.
    pub(crate) fn sessions_of(&self, config: &Config, opened: &[OpenedSession]) -> Vec<LivePair> {
        let now = self.now.lock();
        let stays = |live: &&LiveSession| config.listeners.iter().any(|known| live.is_of(known));
        let live = now.sessions.iter().filter(stays);
        let live = live.filter(|live| live.session.creation().is_none());
        let live = live.map(|live| (live.session.clone(), live.ca.clone()));
        live.chain(opened.iter().map(OpenedSession::live)).collect()
    }

    /// How long no listener has had the session; `None` if one has it, or it was forgotten.
    pub(crate) fn left(&self, session: &Session) -> Option<Duration> {
        let now = self.now.lock();
        let mut live = now.sessions.iter();
        let found = live.find(|live| std::ptr::eq(&*live.session, session));
        Some(found?.left?.elapsed())
    }

    /// The sessions of callers.
    pub(crate) fn of_callers(&self) -> Vec<Arc<Session>> {
        let now = self.now.lock();
        let all = now.sessions.iter().filter(|live| live.session.is_callers());
        all.map(|live| live.session.clone()).collect()
    }

    /// Makes sure that there may be one more session of a caller or an operator. Returns those that
    /// are over and give way; `None` if there are as many, and none is over.
    pub(crate) fn over_most(&self, most: usize) -> Option<Vec<Arc<Session>>> {
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

    /// Has the session of a caller from now on, or one that an operator made.
    pub(crate) fn gain(&self, opened: &OpenedSession) {
        let mut now = self.now.lock();
        self.live.gain(opened.live());
        now.sessions.push(opened.into());
    }

    /// Forgets a session.
    pub(crate) fn forget(&self, session: &Session) {
        let mut now = self.now.lock();
        self.live.forget(session);
        now.sessions
            .retain(|live| !std::ptr::eq(&*live.session, session));
        if self.live.get(session.id()).is_none() {
            self.names.lock().remove(session.id());
        }
    }

    /// Has these listeners from now on, and the sessions that they gained. Returns the sessions
    /// that no listener has any more.
    pub(crate) fn replace(
        &self,
        open: Vec<OpenListener>,
        opened: &[OpenedSession],
    ) -> Vec<Arc<Session>> {
        let mut now = self.now.lock();
        opened.iter().for_each(|one| self.live.gain(one.live()));
        now.sessions.extend(opened.iter().map(LiveSession::from));
        now.open = open;
        now.leave()
    }
}

impl Now {
    /// Marks the sessions that no listener has any more, and returns those that one had before.
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

/// How many callers wait for their sessions. Further ones wait to ask.
const WAITING: usize = 64;
