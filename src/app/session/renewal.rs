//! Renews the sessions of listeners half-way through their lifetime, and follows the decisions of
//! other processes about them, and the sessions that operators create there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::session::recalled::{creation, ends, labels, status};
use gateway_audit::Event;
use gateway_names::{ReasonCode, SessionId};
use gateway_server::{SessionRequest, SharedState};
use gateway_session::{EndReason, Lifetime, Moment, Session, SessionStatus};
use gateway_state::{Revision, SessionDecision, SessionRecord, StateError, StateStore, unix};

/// The sessions of this process that are renewed.
#[derive(Clone)]
pub struct SessionRenewal(Arc<RenewalState>);

struct RenewalState {
    store: Arc<dyn StateStore>,
    state: Arc<SharedState>,
    tended: Mutex<Vec<Tended>>,
    /// The channel to request sessions that operators created elsewhere, if there can be any.
    asks: Option<mpsc::Sender<SessionRequest>>,
    /// Whether the task that renews them runs.
    runs: AtomicBool,
}

#[derive(Clone)]
struct Tended {
    id: SessionId,
    session: Weak<Session>,
    /// Whether an end without a decision is stored, so that nothing is left to do.
    end_kept: Arc<AtomicBool>,
}

impl SessionRenewal {
    /// Renews sessions in this store. The ends of idle sessions go to the log.
    pub fn new(
        store: Arc<dyn StateStore>,
        state: Arc<SharedState>,
        asks: Option<mpsc::Sender<SessionRequest>>,
    ) -> Self {
        Self(Arc::new(RenewalState {
            store,
            state,
            asks,
            tended: Mutex::default(),
            runs: AtomicBool::new(false),
        }))
    }

    /// Adds a session. It is renewed until it is dropped or ended. Must be called on a runtime.
    pub fn add(&self, id: SessionId, session: &Arc<Session>) {
        self.0.tended.lock().push(Tended {
            id,
            session: Arc::downgrade(session),
            end_kept: Arc::new(AtomicBool::new(session.was_idle())),
        });
        if !self.0.runs.swap(true, Ordering::Relaxed) {
            let shared = Arc::downgrade(&self.0);
            tokio::spawn(async move {
                let (mut seen, mut looked) = (None, None);
                loop {
                    tokio::time::sleep(EVERY).await;
                    let Some(shared) = shared.upgrade() else {
                        return;
                    };
                    seen = shared.follow(seen).await;
                    let now = Moment::now();
                    if looked.is_none_or(|before| now.is_later_than(before, LOOK)) {
                        looked = Some(now);
                        shared.renew().await;
                    }
                }
            });
        }
    }
}

impl RenewalState {
    /// Applies the decisions since `seen`, and returns the last revision.
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
                for (_, id) in &decided {
                    self.learn(self.store.session(id).await.ok().flatten());
                }
                last.or(seen)
            }
            // Every session is checked. Decisions made meanwhile are checked once more.
            Err(StateError::Forgotten) => {
                let last = self.store.decide(Vec::new()).await.ok();
                self.look(|_| true).await;
                self.learn(self.store.unended().await.into_iter().flatten());
                last
            }
            // The next round tries again.
            Err(_) => seen,
        }
    }

    /// Requests each of these sessions that an operator created, that is live, and that this
    /// process lacks.
    fn learn(&self, records: impl IntoIterator<Item = SessionRecord>) {
        let Some(asks) = &self.asks else { return };
        let is_made = |one: &SessionRecord| creation(one).is_some();
        for record in records.into_iter().filter(is_made) {
            let id = SessionId::new(&record.id).ok();
            let id = id.filter(|id| self.tended.lock().iter().all(|one| one.id != *id));
            let asked = id.map(|id| SessionRequest {
                id,
                caller: None,
                answer: oneshot::channel().0,
            });
            // If this fails, a client with its token causes another request.
            let _ = asked.map(|asked| asks.try_send(asked));
        }
    }

    /// Reads the records of some sessions, and pauses or ends sessions as their records say. An
    /// operator's session lives longer if another gateway extended it.
    async fn look(&self, about: impl Fn(&Tended) -> bool) {
        for one in self.tended().into_iter().filter(about) {
            let record = self.store.session(&one.id).await;
            let (Ok(Some(record)), Some(session)) = (record, one.session.upgrade()) else {
                continue;
            };
            let labels = labels(&record);
            if !session.has_labels(&labels) {
                session.add_labels(&labels);
                self.state.announce();
            }
            let is_used = session.status() == SessionStatus::Active;
            match status(&record) {
                // Another gateway ended it, and has its successor of this name.
                _ if record.before != session.before() => {
                    session.narrow(SessionStatus::Ended(EndReason::Operator));
                }
                // Another gateway ended it as idle, since it had no use there.
                SessionStatus::Ended(EndReason::Idle) if is_used => {
                    if !self.takes_back(&one.id).await {
                        session.narrow(status(&record));
                    }
                }
                decided => session.narrow(decided),
            }
            let (lives, now) = (session.lifetime(), Moment::now());
            let is_later = |ends: &SystemTime| lives.is_some_and(|life| *ends > life.ends());
            let made = session.creation().and(ends(&record));
            if let Some(ends) = made.filter(is_later) {
                session.extend(Lifetime::until(now, ends));
            }
        }
    }

    /// Undoes the end of a session that is in use here. Returns whether the session stays in use:
    /// an operator may have paused it, even since its record was read.
    async fn takes_back(&self, id: &SessionId) -> bool {
        let decided = SessionDecision::TakeBack(id.clone());
        match self.store.decide(vec![decided]).await {
            Ok(_) => true,
            Err(StateError::Refused(_)) => false,
            // The next decision about it checks it again.
            Err(error) => {
                tracing::warn!(session = %id, %error, "the end of a session in use could not be taken back");
                true
            }
        }
    }

    /// Renews the sessions that are due, and stores the ends of those that were idle for too long.
    async fn renew(&self) {
        let now = Moment::now();
        for (one, session) in self.due(now) {
            let id = one.id.clone();
            session.end_if_idle();
            match session.ended() {
                Some(EndReason::Idle) => {
                    let end = SessionDecision::End {
                        session: id,
                        at: unix(SystemTime::now()),
                        was_idle: true,
                        for_good: false,
                    };
                    self.keep_end((&one, &session), end, IDLE).await;
                }
                Some(EndReason::Expired) if session.creation().is_some() => {
                    let at = session.lifetime().map_or(0, |life| unix(life.ends()));
                    let end = SessionDecision::Expire { session: id, at };
                    self.keep_end((&one, &session), end, EXPIRED).await;
                    if one.end_kept.load(Ordering::Relaxed) {
                        session.narrow(SessionStatus::Ended(EndReason::Expired));
                    }
                }
                // The end is stored already, or the listener may come back.
                Some(EndReason::Operator | EndReason::ForGood | EndReason::Listener) => {}
                // Only a listener's own session is renewed, even after the machine slept.
                None if session.creation().is_some() => {}
                None | Some(EndReason::Expired) => self.extend(&id, &session, now).await,
            }
        }
    }

    async fn extend(&self, id: &SessionId, session: &Session, now: Moment) {
        let Some(next) = session.lifetime().map(|life| life.again(now)) else {
            return;
        };
        let (own, ends) = (id.clone(), unix(next.ends()));
        let extended = SessionDecision::Extend { session: own, ends };
        match self.store.decide(vec![extended]).await {
            Ok(_) => session.extend(next),
            // It was ended elsewhere.
            Err(StateError::Refused(_)) => self.look(|one| one.id == *id).await,
            // Half of its lifetime is left, and each round tries again.
            Err(error) => {
                tracing::warn!(session = %id, %error, "the session could not be renewed");
            }
        }
    }

    /// Stores the end of a session that ended without a decision.
    async fn keep_end(&self, (one, session): (&Tended, &Session), end: SessionDecision, how: &str) {
        let id = &one.id;
        match self.store.decide(vec![end]).await {
            Ok(_) => {
                one.end_kept.store(true, Ordering::Relaxed);
                record_end(&self.state, id, how, ReasonCode::SessionEnded);
            }
            // It has no record, or another gateway extended it.
            Err(StateError::Refused(_)) => {
                self.look(|other| other.id == *id).await;
                one.end_kept.store(session.is_over(), Ordering::Relaxed);
            }
            // Each round tries again.
            Err(error) => {
                tracing::warn!(session = %id, %error, "the end of a session could not be kept");
            }
        }
    }

    /// Returns the sessions that are due for renewal or over, and forgets those that were dropped.
    fn due(&self, now: Moment) -> Vec<(Tended, Arc<Session>)> {
        let mut due = Vec::new();
        self.tended.lock().retain(|one| {
            let Some(session) = one.session.upgrade() else {
                return false;
            };
            let is_half_over = session
                .lifetime()
                .is_some_and(|life| life.is_half_over(now));
            let ended = session.ended();
            let has_ended = match ended {
                Some(EndReason::Expired) => session.creation().is_some(),
                why => why == Some(EndReason::Idle),
            };
            // An operator may have resumed it.
            let is_kept = one.end_kept.fetch_and(has_ended, Ordering::Relaxed);
            let is_done = has_ended && is_kept;
            if (is_half_over || ended.is_some()) && !is_done {
                due.push((one.clone(), session));
            }
            true
        });
        due
    }

    fn tended(&self) -> Vec<Tended> {
        self.tended.lock().clone()
    }
}

/// Records that a session ended without a decision.
pub fn record_end(state: &SharedState, id: &SessionId, how: &str, reason: ReasonCode) {
    let recorded = state.log.event(Event {
        name: "session_ended",
        session: Some(id),
        subject: how.as_bytes(),
        reason: Some(reason.as_str()),
        count: 1,
    });
    if let Err(error) = recorded {
        tracing::error!(%error, "the end of a session was not recorded");
    }
}

const IDLE: &str = "it was not used for too long";
const EXPIRED: &str = "its time was over";
/// How often decisions are looked for. After a machine slept for longer than a lifetime, requests
/// are refused for at most this long.
const EVERY: Duration = Duration::from_secs(1);
/// How often due sessions are looked for, of which there may be many. A lifetime is at least a
/// minute.
const LOOK: Duration = Duration::from_secs(2);
