//! Renews the sessions of listeners half-way through their lifetime, and follows the decisions of
//! other processes about them, and the sessions that operators create there.

use std::collections::BTreeSet;
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
use gateway_state::{
    Revision, SessionDecision, SessionRecord, StateError, StateStore, Subject, unix,
};

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
    /// Whether a fleet leads the rounds.
    is_led: bool,
}

#[derive(Clone)]
struct Tended {
    id: SessionId,
    session: Weak<Session>,
    /// Whether an end without a decision is stored, so that nothing is left to do.
    end_kept: Arc<AtomicBool>,
    /// Whether it was paused or ended as idle when its record was last known.
    was_halted: Arc<AtomicBool>,
}

impl SessionRenewal {
    /// Renews sessions in this store. The ends of idle sessions go to the log. If it is led, only
    /// rounds that a caller begins do.
    pub fn new(
        store: Arc<dyn StateStore>,
        state: Arc<SharedState>,
        asks: Option<mpsc::Sender<SessionRequest>>,
        is_led: bool,
    ) -> Self {
        Self(Arc::new(RenewalState {
            store,
            state,
            asks,
            tended: Mutex::default(),
            runs: AtomicBool::new(is_led),
            is_led,
        }))
    }

    /// Adds a session. It is renewed until it is dropped or ended. Must be called on a runtime.
    pub fn add(&self, id: SessionId, session: &Arc<Session>) {
        self.0.tended.lock().push(Tended {
            id,
            session: Arc::downgrade(session),
            end_kept: Arc::new(AtomicBool::new(session.was_idle())),
            was_halted: Arc::new(AtomicBool::new(is_halted(session.status()))),
        });
        if !self.0.runs.swap(true, Ordering::Relaxed) {
            let (shared, store) = (Arc::downgrade(&self.0), self.0.store.clone());
            tokio::spawn(async move {
                let mut at = Followed::default();
                // The next round tries again.
                while store.woken().await.is_ok() {
                    let Some(shared) = shared.upgrade() else {
                        return;
                    };
                    let _ = Self(shared).round(&mut at).await;
                }
            });
        }
    }

    /// Takes note that a pause is stored, so that another gateway may take it back.
    pub fn halted(&self, id: &SessionId) {
        for one in self.0.tended().iter().filter(|one| one.id == *id) {
            one.was_halted.store(true, Ordering::Relaxed);
        }
    }

    /// Applies the decisions that others made since the last round, and renews what is due.
    /// Returns what they were about.
    ///
    /// # Errors
    /// [`StateError`] if the decisions cannot be read. Those of an earlier round stay in force.
    pub async fn round(&self, at: &mut Followed) -> Result<News, StateError> {
        let news = self.0.follow(at).await;
        let now = Moment::now();
        let is_due = |before| now.is_later_than(before, LOOK);
        // A replica whose clock went wrong ends no session for the others.
        let may_decide = !(self.0.is_led && gateway_session::is_stale());
        if may_decide && at.looked.is_none_or(is_due) {
            at.looked = Some(now);
            self.0.renew().await;
        }
        news
    }
}

/// What others decided about.
#[derive(Default)]
pub struct News {
    /// Sessions.
    pub sessions: BTreeSet<SessionId>,
    /// Whether about revocations.
    pub revocations: bool,
}

/// How far the decisions of others were followed.
#[derive(Default)]
pub struct Followed {
    /// The last of them that is in force here.
    pub seen: Option<Revision>,
    /// What others decided about and is not in force here yet.
    pub owed: News,
    /// When due sessions were last looked for.
    looked: Option<Moment>,
}

impl RenewalState {
    /// Applies the decisions since the last that was seen.
    async fn follow(&self, at: &mut Followed) -> Result<News, StateError> {
        let decided = match at.seen {
            Some(seen) => self.store.since(seen).await,
            None => Err(StateError::Forgotten),
        };
        match decided {
            Ok(decided) => {
                let session = |(_, subject): &(_, Subject)| match subject {
                    Subject::Session(id) => Some(id.clone()),
                    Subject::Revocations => None,
                };
                let sessions: BTreeSet<SessionId> = decided.iter().filter_map(session).collect();
                self.look(|one| sessions.contains(&one.id)).await?;
                for id in sessions.iter().filter(|_| !self.is_led) {
                    self.learn(self.store.session(id).await.ok().flatten());
                }
                at.seen = decided.last().map(|(revision, _)| *revision).or(at.seen);
                let is_other = |(_, one): &(_, Subject)| *one == Subject::Revocations;
                let revocations = decided.iter().any(is_other);
                Ok(News {
                    sessions,
                    revocations,
                })
            }
            // Every session is checked. Decisions made meanwhile are checked once more.
            Err(StateError::Forgotten) => {
                let last = self.store.decide(Vec::new()).await?;
                self.look(|_| true).await?;
                if !self.is_led {
                    self.learn(self.store.unended().await?);
                }
                at.seen = Some(last);
                let tended = self.tended().into_iter();
                Ok(News {
                    sessions: tended.map(|one| one.id).collect(),
                    revocations: true,
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Passes over a record that cannot be read, unless others decide about it in a store that may
    /// have been changed.
    fn readable(
        &self,
        read: Result<Option<SessionRecord>, StateError>,
    ) -> Result<Option<SessionRecord>, StateError> {
        match read {
            Err(StateError::Changed | StateError::Damaged(_)) if !self.is_led => Ok(None),
            read => read,
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
    async fn look(&self, about: impl Fn(&Tended) -> bool) -> Result<(), StateError> {
        for one in self.tended().into_iter().filter(about) {
            let record = self.readable(self.store.session(&one.id).await)?;
            let (Some(record), Some(session)) = (record, one.session.upgrade()) else {
                continue;
            };
            let labels = labels(&record);
            if !session.has_labels(&labels) {
                session.add_labels(&labels);
                self.state.announce();
            }
            let is_used = session.status() == SessionStatus::Active;
            let halted = is_halted(status(&record));
            let was_halted = one.was_halted.swap(halted, Ordering::Relaxed);
            match status(&record) {
                // Another replica resumed it. A pause here that is not stored yet stays. Where
                // nothing proves the order of decisions, an older record could be put back.
                SessionStatus::Active
                    if self.is_led && was_halted && is_halted(session.status()) =>
                {
                    if session.was_idle() {
                        self.state.current().credentials.begin(&one.id);
                    }
                    let _ = session.resume();
                }
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
        Ok(())
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
            Err(StateError::Refused(_)) => drop(self.look(|one| one.id == *id).await),
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
                let _ = self.look(|other| other.id == *id).await;
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

/// Whether a session may be resumed.
fn is_halted(status: SessionStatus) -> bool {
    matches!(
        status,
        SessionStatus::Paused | SessionStatus::Ended(EndReason::Idle)
    )
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
/// How often due sessions are looked for, of which there may be many. A lifetime is at least a
/// minute.
const LOOK: Duration = Duration::from_secs(2);
