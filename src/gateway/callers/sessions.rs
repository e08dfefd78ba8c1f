//! The sessions of a listener's connections: one for all, or one for each caller.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::RwLock;
use tokio::sync::{mpsc, oneshot};

use crate::intercept::{Caller, CallerRefused, SessionCa};
use crate::names::{ReasonCode, SessionId, User, hex};
use crate::session::Session;

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

/// The sessions of callers. The program is asked for each, and makes it at first sight.
#[derive(Clone)]
pub struct CallerSessions {
    /// Those that live.
    pub live: Arc<LiveSessions>,
    /// Where it is asked for others.
    pub asks: mpsc::Sender<AskedSession>,
    /// The groups that each session is in.
    pub groups: Arc<[String]>,
}

/// A caller whose session is asked for.
pub struct AskedSession {
    /// The session's name.
    pub id: SessionId,
    /// The groups that it is in.
    pub groups: Arc<[String]>,
    /// Whose it is.
    pub caller: Arc<Caller>,
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
        let user = caller.user.clone();
        let live = match user.as_ref().map(name) {
            Some(id) => match self.live.get(&id) {
                Some(live) => Some(live),
                None => self.ask(id, caller.clone()).await,
            },
            None => None,
        };
        live.ok_or(CallerRefused {
            user,
            reason: ReasonCode::CallerSession,
            cause: "",
        })
    }

    async fn ask(&self, id: SessionId, caller: Arc<Caller>) -> Option<LivePair> {
        let (answer, answered) = oneshot::channel();
        let asked = AskedSession {
            id,
            groups: self.groups.clone(),
            caller,
            answer,
        };
        // A program that stops answers nobody.
        self.asks.send(asked).await.ok()?;
        answered.await.ok()?
    }
}

/// The name of a caller's session: the user's, or `caller:` and a digest of one that is no name of
/// a session.
fn name(user: &User) -> SessionId {
    SessionId::new(user.as_str()).unwrap_or_else(|_| {
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
        let [one, other] = ["a@example.com", "b@example.com"].map(of);
        assert_eq!((one.len(), &one[..7]), (39, "caller:"));
        assert_ne!(one, other);
    }
}
