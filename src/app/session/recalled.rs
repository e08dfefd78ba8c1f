//! What is kept of one session, and what is made of it at the next start.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use zeroize::Zeroizing;

use crate::app::Failure;
use crate::intercept::{KeptCa, SessionCa};
use crate::names::SessionId;
use crate::session::phantom::{KeptShapes, PhantomKey};
use crate::session::{Creation, EndReason, Session, SessionStatus};
use crate::state::{KeptSecrets, SessionDecision, SessionRecord};

/// What is kept of one session.
pub(crate) struct StoredSession {
    /// The id of its record.
    pub(crate) id: SessionId,
    /// Its record, if there is one.
    pub(crate) record: Option<SessionRecord>,
    pub(crate) secrets: KeptSecrets,
    /// The shapes of its phantoms.
    pub(crate) shapes: KeptShapes,
    /// Whether an operator paused it, also before it was begun anew.
    pub(crate) paused: bool,
    /// How many sessions had its name before, and are used up.
    pub(crate) before: u64,
}

impl StoredSession {
    /// A session of which there is no record yet.
    ///
    /// # Errors
    /// Returns a [`Failure`] without random bytes.
    pub(crate) fn new(id: SessionId, paused: bool, before: u64) -> Result<Self, Failure> {
        Ok(Self {
            id,
            record: None,
            secrets: drawn()?,
            shapes: KeptShapes::default(),
            paused,
            before,
        })
    }

    /// What its caller has now: this one, or the next one if it is used up. An operator's pause
    /// goes on.
    ///
    /// # Errors
    /// As [`StoredSession::new`].
    pub(crate) fn of_caller(self) -> Result<Self, Failure> {
        match self.record.as_ref().is_some_and(SessionRecord::is_used_up) {
            true => Self::new(self.id, self.paused, self.before + 1),
            false => Ok(self),
        }
    }

    /// What the session's phantoms are derived from.
    pub(crate) fn key(&self) -> PhantomKey {
        PhantomKey::from_bytes(*self.secrets.seed)
    }

    /// Its CA, if that is kept.
    pub(crate) fn ca(&self) -> Option<KeptCa> {
        let certificate = self.record.as_ref()?.certificate.clone()?;
        Some(KeptCa {
            pem: certificate.pem,
            from: certificate.from,
            to: certificate.to,
            key: self.secrets.ca_key.clone(),
        })
    }

    /// Until when it lives, if it has a record and ends by itself.
    pub(crate) fn ends(&self) -> Option<SystemTime> {
        ends(self.record.as_ref()?)
    }

    /// Gives a session the status that was kept.
    pub(crate) fn restore(&self, session: &Session) {
        match &self.record {
            Some(record) => session.narrow(status(record)),
            None if self.paused => session.narrow(SessionStatus::Paused),
            None => {}
        }
    }

    /// Why the session has ended, if it has. Only a decision ends it for good: the session of a
    /// listener whose time was over while nobody served it is renewed when it is opened.
    pub(crate) fn ended(&self) -> Option<EndReason> {
        match status(self.record.as_ref()?) {
            SessionStatus::Ended(why) => Some(why),
            SessionStatus::Active | SessionStatus::Paused => None,
        }
    }

    /// The decisions that keep the shapes which the record does not have yet.
    pub(crate) fn new_shapes(&self) -> Vec<SessionDecision> {
        let changed = self.shapes.changed().iter().cloned();
        changed
            .map(|shape| SessionDecision::Shape {
                session: self.id.clone(),
                credential: shape.credential,
                before: shape.before,
                after: shape.after,
            })
            .collect()
    }
}

/// A session that was opened, and that no request reaches yet.
pub(crate) struct OpenedSession {
    pub(crate) session: Arc<Session>,
    pub(crate) ca: Arc<SessionCa>,
    pub(crate) kept: StoredSession,
}

impl OpenedSession {
    /// The session and its CA.
    pub(crate) fn live(&self) -> (Arc<Session>, Arc<SessionCa>) {
        (self.session.clone(), self.ca.clone())
    }
}

/// Until when a session lives, if it ends by itself.
pub(crate) fn ends(record: &SessionRecord) -> Option<SystemTime> {
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(record.ends?))
}

/// How an operator made a session, if one did and it lives.
pub(crate) fn creation(record: &SessionRecord) -> Option<Creation> {
    let created = record.created.as_deref().filter(|_| lives(record));
    Creation::read(created?)
}

/// Whether a session is over neither by decision nor by its time. One that was idle may come back,
/// and one that no operator made is renewed when it is opened.
pub(crate) fn lives(record: &SessionRecord) -> bool {
    let ends = record.created.as_ref().and_then(|_| ends(record));
    let is_over = ends.is_some_and(|ends| ends <= SystemTime::now());
    !is_over && (record.ended.is_none() || record.was_idle)
}

/// What was made of a session by decision.
pub(crate) fn status(record: &SessionRecord) -> SessionStatus {
    match (record.ended, record.paused) {
        (Some(_), _) if record.for_good => SessionStatus::Ended(EndReason::ForGood),
        (Some(_), _) if record.was_idle => SessionStatus::Ended(EndReason::Idle),
        (Some(_), _) => SessionStatus::Ended(EndReason::Operator),
        (None, true) => SessionStatus::Paused,
        (None, false) => SessionStatus::Active,
    }
}

/// The secrets of a session that begins, which has no CA yet.
pub(crate) fn drawn() -> Result<KeptSecrets, Failure> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut seed[..]).map_err(Failure::no_randomness)?;
    Ok(KeptSecrets {
        seed,
        ca_key: Zeroizing::default(),
    })
}
