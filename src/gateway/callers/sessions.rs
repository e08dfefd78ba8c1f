//! The sessions of a listener's connections: one for all, or one for each caller.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::RwLock;
use tokio::sync::{mpsc, oneshot};

use crate::intercept::{Caller, CallerRefused, SessionCa};
use crate::names::{ReasonCode, SessionId, User, hex};
use crate::session::Session;
use crate::token::TokenInside;

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

/// The sessions that live. A connection of a session that is there waits for nobody.
#[derive(Default)]
pub struct LiveSessions(RwLock<HashMap<SessionId, LivePair>>);

impl LiveSessions {
    /// The session of this name.
    #[must_use]
    pub fn get(&self, id: &SessionId) -> Option<LivePair> {
        self.0.read().get(id).cloned()
    }

    /// Has a session from now on, in place of one of its name.
    pub fn gain(&self, live: LivePair) {
        self.0.write().insert(live.0.id().clone(), live);
    }

    /// Has a session no more, unless another one has its name.
    pub fn forget(&self, session: &Session) {
        let mut all = self.0.write();
        let is_it = |(one, _): &LivePair| std::ptr::eq(&**one, session);
        if all.get(session.id()).is_some_and(is_it) {
            all.remove(session.id());
        }
    }
}

/// The sessions of callers. The program is asked for each, and makes it at first sight; one that an
/// operator made at another gateway is opened.
#[derive(Clone)]
pub struct CallerSessions {
    /// Those that live.
    pub live: Arc<LiveSessions>,
    /// Where it is asked for others.
    pub asks: mpsc::Sender<AskedSession>,
}

/// A session that is asked for.
pub struct AskedSession {
    /// Its name.
    pub id: SessionId,
    /// Whose it is; `None` for one that an operator made.
    pub caller: Option<Arc<Caller>>,
    /// Takes the session, if there is one.
    pub answer: oneshot::Sender<Option<LivePair>>,
}

impl CallerSessions {
    /// The session of a caller.
    ///
    /// # Errors
    /// [`CallerRefused`] if it is nobody, or if there can be no session for it.
    pub(in crate::gateway) async fn of(
        &self,
        caller: &Arc<Caller>,
    ) -> Result<LivePair, CallerRefused> {
        let Some(user) = caller.user.as_ref() else {
            let cause = "it is of no user, and each user has a session";
            return Err(CallerRefused::of(None, cause));
        };
        let id = name(user);
        let live = match self.live.get(&id) {
            Some(live) if !live.0.is_used_up() => Some(live),
            _ => self.ask(id, Some(caller.clone())).await,
        };
        // One that an operator made is for those alone who have its token.
        let live = live.filter(|(session, _)| session.creation().is_none());
        live.ok_or_else(|| CallerRefused {
            reason: ReasonCode::CallerSession,
            ..CallerRefused::of(Some(user.clone()), "")
        })
    }

    /// Has the session of a token, if an operator made it at another gateway that shares the
    /// state.
    pub(in crate::gateway) async fn learn(&self, token: &TokenInside) {
        if self.live.get(&token.session).is_none() {
            self.ask(token.session.clone(), None).await;
        }
    }

    async fn ask(&self, id: SessionId, caller: Option<Arc<Caller>>) -> Option<LivePair> {
        let (answer, answered) = oneshot::channel();
        let asked = AskedSession { id, caller, answer };
        // A program that stops answers nobody.
        self.asks.send(asked).await.ok()?;
        answered.await.ok()?
    }
}

/// The name of a caller's session: that of a user or an interface of this machine, or `caller:` and
/// a digest of another, who may be named as a session of the configuration is.
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

#[cfg(test)]
mod tests {
    use super::*;

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
