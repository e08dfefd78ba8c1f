//! Renews the sessions of listeners half-way of their lifetime, and follows what other processes
//! decide about them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::kept::status;
use crate::names::SessionId;
use crate::session::{Moment, Session};
use crate::state::{Revision, SessionDecision, StateError, StateStore, unix};

/// The sessions of this process that are renewed.
#[derive(Clone)]
pub(super) struct Renewal(Arc<Shared>);

struct Shared {
    store: Arc<dyn StateStore>,
    tended: Mutex<Vec<Tended>>,
    /// Whether the task that renews them runs.
    runs: AtomicBool,
}

#[derive(Clone)]
struct Tended {
    id: SessionId,
    session: Weak<Session>,
}

impl Renewal {
    /// Renews sessions in this store.
    pub(super) fn new(store: Arc<dyn StateStore>) -> Self {
        Self(Arc::new(Shared {
            store,
            tended: Mutex::default(),
            runs: AtomicBool::new(false),
        }))
    }

    /// Adds a session. It is renewed until it is dropped or ended. Must be called on a runtime.
    pub(super) fn add(&self, id: SessionId, session: &Arc<Session>) {
        self.0.tended.lock().push(Tended {
            id,
            session: Arc::downgrade(session),
        });
        if !self.0.runs.swap(true, Ordering::Relaxed) {
            let shared = Arc::downgrade(&self.0);
            tokio::spawn(async move {
                let mut seen = None;
                loop {
                    tokio::time::sleep(EVERY).await;
                    let Some(shared) = shared.upgrade() else {
                        return;
                    };
                    seen = shared.follow(seen).await;
                    shared.renew().await;
                }
            });
        }
    }
}

impl Shared {
    /// Applies what was decided since `seen`, and returns the last revision.
    async fn follow(&self, seen: Option<Revision>) -> Option<Revision> {
        let decided = match seen {
            Some(seen) => self.store.since(seen).await,
            None => Err(StateError::Forgotten),
        };
        match decided {
            Ok(decided) => {
                let last = decided.last().map(|(revision, _)| *revision);
                let about = |one: &Tended| decided.iter().any(|(_, id)| *id == one.id);
                self.look(about).await;
                last.or(seen)
            }
            // Everything is looked at. What is decided meanwhile is looked at once more.
            Err(StateError::Forgotten) => {
                let last = self.store.decide(Vec::new()).await.ok();
                self.look(|_| true).await;
                last
            }
            // The next round tries again.
            Err(_) => seen,
        }
    }

    /// Reads the records of some sessions, and pauses or ends those that were paused or ended.
    async fn look(&self, about: impl Fn(&Tended) -> bool) {
        for one in self.tended().into_iter().filter(about) {
            let record = self.store.session(&one.id).await;
            if let (Ok(Some(record)), Some(session)) = (record, one.session.upgrade()) {
                session.narrow(status(&record));
            }
        }
    }

    async fn renew(&self) {
        for one in self.tended() {
            let Some(session) = one.session.upgrade() else {
                self.forget(&one);
                continue;
            };
            let now = Moment::now();
            let Some(life) = session.lifetime().filter(|life| life.is_half_over(now)) else {
                continue;
            };
            let next = life.again(now);
            let (id, ends) = (one.id.clone(), unix(next.ends()));
            let extended = SessionDecision::Extend { session: id, ends };
            match self.store.decide(vec![extended]).await {
                Ok(_) => session.extend(next),
                // It was ended, which `follow` applies.
                Err(StateError::Refused(_)) => {}
                // It lives for the other half, and each round tries again.
                Err(error) => {
                    tracing::warn!(session = %one.id, %error, "the session could not be renewed");
                }
            }
        }
    }

    fn tended(&self) -> Vec<Tended> {
        self.tended.lock().clone()
    }

    fn forget(&self, gone: &Tended) {
        let is_it = |one: &Tended| Weak::ptr_eq(&one.session, &gone.session);
        self.tended.lock().retain(|one| !is_it(one));
    }
}

/// How often it is looked whether something was decided or is due. A lifetime has a minute or more;
/// after a machine slept for longer than that, requests are refused for so long at most.
const EVERY: Duration = Duration::from_millis(250);
