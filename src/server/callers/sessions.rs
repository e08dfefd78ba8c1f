//! The sessions of a listener's connections: one for all, or one for each caller.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use gateway_intercept::{Caller, CallerRefused, SessionCa};
use gateway_names::{ReasonCode, SessionId, User, hex};
use gateway_session::Session;
use gateway_token::UnverifiedToken;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{OnceCell, mpsc, oneshot};

/// A session, and the CA that terminates the TLS of its connections.
pub type LivePair = (Arc<Session>, Arc<SessionCa>);

/// The sessions of a listener's connections.
pub enum ListenerSessions {
    /// One for all. The listener identifies it, never the peer's address (threats A18).
    One(Arc<Session>, Arc<SessionCa>),
    /// One for each caller.
    EachCaller(CallerSessions),
}

impl From<LivePair> for ListenerSessions {
    fn from((session, ca): LivePair) -> Self {
        Self::One(session, ca)
    }
}

/// A look into the state, which is made once for all that wait for it.
type Lookup = Arc<OnceCell<()>>;

/// The live sessions. A connection of a live session waits for no other session to be made.
#[derive(Default)]
pub struct LiveSessions {
    all: RwLock<HashMap<SessionId, LivePair>>,
    /// Names from tokens that have no session here, and were looked up in the state just now.
    unknown: Mutex<HashMap<SessionId, (Instant, Lookup)>>,
}

impl LiveSessions {
    /// Returns the session of this name.
    #[must_use]
    pub fn get(&self, id: &SessionId) -> Option<LivePair> {
        self.all.read().get(id).cloned()
    }

    /// Adds a session; replaces one of the same name.
    pub fn gain(&self, live: LivePair) {
        self.unknown.lock().remove(live.0.id());
        self.all.write().insert(live.0.id().clone(), live);
    }

    /// Returns the look into the state for a name that a token gives: at most one a second for each
    /// name, and only for a limited number of names, since a client can make them up.
    fn lookup(&self, id: &SessionId) -> Option<Lookup> {
        let now = Instant::now();
        let mut unknown = self.unknown.lock();
        unknown.retain(|_, (at, _)| now.duration_since(*at) < UNKNOWN_FOR);
        if unknown.len() >= MOST_UNKNOWN && !unknown.contains_key(id) {
            return None;
        }
        let (_, lookup) = unknown
            .entry(id.clone())
            .or_insert((now, Lookup::default()));
        Some(lookup.clone())
    }

    /// Removes this session; keeps a newer one of the same name.
    pub fn forget(&self, session: &Session) {
        let mut all = self.all.write();
        let is_it = |(one, _): &LivePair| std::ptr::eq(&**one, session);
        if all.get(session.id()).is_some_and(is_it) {
            all.remove(session.id());
        }
    }
}

/// The sessions of callers. The program makes each one when its caller first appears, or opens one
/// that an operator made at another gateway.
#[derive(Clone)]
pub struct CallerSessions {
    /// The sessions that live.
    pub live: Arc<LiveSessions>,
    /// Where other sessions are requested.
    pub asks: mpsc::Sender<SessionRequest>,
}

/// A request for a session.
pub struct SessionRequest {
    /// Its name.
    pub id: SessionId,
    /// Its caller; `None` for a session that an operator made.
    pub caller: Option<Arc<Caller>>,
    /// Receives the session, if there is one.
    pub answer: oneshot::Sender<Option<LivePair>>,
}

impl CallerSessions {
    /// Returns the session of a caller.
    ///
    /// # Errors
    /// [`CallerRefused`] if the caller has no user, or if there can be no session for it.
    pub(crate) async fn of(&self, caller: &Arc<Caller>) -> Result<LivePair, CallerRefused> {
        let Some(user) = caller.user.as_ref() else {
            let cause = "it is of no user, and each user has a session";
            return Err(CallerRefused::of(None, cause));
        };
        let id = name(user);
        let live = match self.live.get(&id) {
            Some(live) if !live.0.is_used_up() => Some(live),
            _ => self.ask(id, Some(caller.clone())).await,
        };
        // A session that an operator made is only for clients with its token.
        let live = live.filter(|(session, _)| session.creation().is_none());
        live.ok_or_else(|| CallerRefused {
            reason: ReasonCode::CallerSession,
            ..CallerRefused::of(Some(user.clone()), "")
        })
    }

    /// Opens the session of a token, if an operator made it at another gateway that shares the
    /// state.
    pub(crate) async fn learn(&self, token: &UnverifiedToken) {
        let id = &token.session;
        if self.live.get(id).is_some() {
            return;
        }
        if let Some(lookup) = self.live.lookup(id) {
            let ask = async || drop(self.ask(token.session.clone(), None).await);
            lookup.get_or_init(ask).await;
        }
    }

    async fn ask(&self, id: SessionId, caller: Option<Arc<Caller>>) -> Option<LivePair> {
        let (answer, answered) = oneshot::channel();
        let asked = SessionRequest { id, caller, answer };
        // A program that is stopping sends no answer.
        self.asks.send(asked).await.ok()?;
        answered.await.ok()?
    }
}

/// Returns the name of a caller's session: the user itself, if it is a user or an interface of this
/// machine; otherwise `caller:` and a digest, since it may equal the name of a configured session.
fn name(user: &User) -> SessionId {
    let own = ["uid:", "interface:"].iter();
    let is_own = own.into_iter().any(|kind| user.as_str().starts_with(kind));
    let own = is_own.then(|| SessionId::new(user.as_str()).ok()).flatten();
    own.unwrap_or_else(|| {
        let digest = digest(&SHA256, user.as_str().as_bytes());
        let text = format!("caller:{}", hex(&digest.as_ref()[..16]));
        SessionId::new(&text).expect("it has letters, digits and a colon")
    })
}

/// How long an unknown name is not looked up again, and how many such names are remembered.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
const MOST_UNKNOWN: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nobody_has_are_looked_for_once_a_second_and_in_bounded_number() {
        let live = LiveSessions::default();
        let id = |text: &str| SessionId::new(text).unwrap();
        let [one, again] = [(); 2].map(|()| live.lookup(&id("one")).unwrap());
        assert!(Arc::ptr_eq(&one, &again));
        let looked = (0..10_000).filter_map(|number| live.lookup(&id(&format!("s-{number}"))));
        // More than a second may pass meanwhile.
        assert!(looked.count() < 5_000);
        assert!(live.unknown.lock().len() <= MOST_UNKNOWN);
    }

    #[test]
    fn a_session_has_its_callers_name_or_one_of_its_own() {
        let of = |text| name(&User::new(text).unwrap()).to_string();
        assert_eq!(of("uid:1000"), "uid:1000");
        assert_eq!(of("interface:tap0"), "interface:tap0");
        let [one, other] = ["agent-1", "b@example.com"].map(of);
        assert_eq!((one.len(), &one[..7]), (39, "caller:"));
        assert_ne!(one, other);
    }
}
