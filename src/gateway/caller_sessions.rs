//! The sessions of a listener's connections: one for all, or one for each caller.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
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

/// The sessions of callers. The program is asked for each, and makes it at first sight.
#[derive(Clone)]
pub struct CallerSessions {
    /// Where it is asked.
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
    /// Takes the session, if there is one.
    pub answer: oneshot::Sender<Option<LivePair>>,
}

impl CallerSessions {
    /// The session of a caller.
    ///
    /// # Errors
    /// [`CallerRefused`] if it is nobody, or if there can be no session for it.
    pub(super) async fn of(&self, caller: &Caller) -> Result<LivePair, CallerRefused> {
        let user = caller.user.clone();
        let (answer, answered) = oneshot::channel();
        if let Some(user) = &user {
            let (id, groups) = (name(user), self.groups.clone());
            let asked = AskedSession { id, groups, answer };
            // A program that stops answers nobody.
            let _ = self.asks.send(asked).await;
        }
        let live = answered.await.ok().flatten();
        let reason = ReasonCode::CallerSession;
        live.ok_or(CallerRefused { user, reason })
    }
}

/// The name of a caller's session: the user's, or `caller:` and a digest of one that is no name of a
/// session.
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
