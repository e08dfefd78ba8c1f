//! The stored state of one session, and what the next start restores from it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use zeroize::Zeroizing;

use crate::Failure;
use gateway_intercept::{KeptCa, SessionCa};
use gateway_names::SessionId;
use gateway_session::phantom::{KeptShapes, PhantomKey};
use gateway_session::{Creation, EndReason, Session, SessionStatus};
use gateway_state::{KeptSecrets, SessionDecision, SessionRecord};

/// The stored state of one session.
pub struct StoredSession {
    /// The id of its record.
    pub id: SessionId,
    /// Its record, if there is one.
    pub record: Option<SessionRecord>,
    pub(crate) secrets: KeptSecrets,
    /// The shapes of its phantoms.
    pub shapes: KeptShapes,
    /// Whether an operator paused it, even before it began anew.
    pub paused: bool,
    /// How many earlier sessions had its name and are used up.
    pub before: u64,
}

impl StoredSession {
    /// Creates the state of a session without a record.
    ///
    /// # Errors
    /// Returns a [`Failure`] if there are no random bytes.
    pub fn new(id: SessionId, paused: bool, before: u64) -> Result<Self, Failure> {
        Ok(Self {
            id,
            record: None,
            secrets: drawn()?,
            shapes: KeptShapes::default(),
            paused,
            before,
        })
    }

    /// Returns the state of a caller's current session: this one, or a new one if it is used up. An
    /// operator's pause carries over.
    ///
    /// # Errors
    /// As [`StoredSession::new`].
    pub fn of_caller(self) -> Result<Self, Failure> {
        if self.record.as_ref().is_some_and(SessionRecord::is_used_up) {
            Self::new(self.id, self.paused, self.before + 1)
        } else {
            Ok(self)
        }
    }

    /// Returns the key that the session's phantoms are derived from.
    pub fn key(&self) -> PhantomKey {
        PhantomKey::from_bytes(*self.secrets.seed)
    }

    /// Returns its CA, if that is stored.
    pub fn ca(&self) -> Option<KeptCa> {
        let certificate = self.record.as_ref()?.certificate.clone()?;
        Some(KeptCa {
            pem: certificate.pem,
            from: certificate.from,
            to: certificate.to,
            key: self.secrets.ca_key.clone(),
        })
    }

    /// Returns when it ends, if it has a record and an end of its own.
    pub fn ends(&self) -> Option<SystemTime> {
        ends(self.record.as_ref()?)
    }

    /// Gives a session the stored status and labels.
    pub fn restore(&self, session: &Session) {
        if let Some(record) = &self.record {
            session.add_labels(&labels(record));
        }
        match &self.record {
            Some(record) => session.narrow(status(record)),
            None if self.paused => session.narrow(SessionStatus::Paused),
            None => {}
        }
    }

    /// Returns why the session has ended, if it has. Only a decision ends it for good: a listener's
    /// session whose lifetime ended while no gateway ran is renewed when it is opened.
    pub fn ended(&self) -> Option<EndReason> {
        match status(self.record.as_ref()?) {
            SessionStatus::Ended(why) => Some(why),
            SessionStatus::Active | SessionStatus::Paused => None,
        }
    }

    /// Returns the decisions that store the shapes which the record lacks.
    pub fn new_shapes(&self) -> Vec<SessionDecision> {
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

/// A session that was opened, and that no request can reach yet.
pub struct OpenedSession {
    pub(crate) session: Arc<Session>,
    pub(crate) ca: Arc<SessionCa>,
    pub(crate) kept: StoredSession,
}

impl OpenedSession {
    /// Returns the session and its CA.
    pub fn live(&self) -> (Arc<Session>, Arc<SessionCa>) {
        (self.session.clone(), self.ca.clone())
    }
}

/// Returns when a session ends, if it has an end of its own.
pub fn ends(record: &SessionRecord) -> Option<SystemTime> {
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(record.ends?))
}

/// Returns the request by which an operator created a live session.
pub fn creation(record: &SessionRecord) -> Option<Creation> {
    let created = record.created.as_deref().filter(|_| lives(record));
    Creation::read(created?)
}

/// Whether a session is live, neither ended by decision nor expired. An idle one may come back, and
/// one that no operator created is renewed when it is opened.
pub fn lives(record: &SessionRecord) -> bool {
    let ends = record.created.as_ref().and_then(|_| ends(record));
    let is_over = ends.is_some_and(|ends| ends <= SystemTime::now());
    !is_over && (record.ended.is_none() || record.was_idle)
}

/// Returns the status that decisions gave a session.
pub fn status(record: &SessionRecord) -> SessionStatus {
    match (record.ended, record.paused) {
        (Some(_), _) if record.for_good => SessionStatus::Ended(EndReason::ForGood),
        (Some(_), _) if record.was_idle => SessionStatus::Ended(EndReason::Idle),
        (Some(_), _) => SessionStatus::Ended(EndReason::Operator),
        (None, true) => SessionStatus::Paused,
        (None, false) => SessionStatus::Active,
    }
}

/// Draws the secrets of a new session, which has no CA yet.
pub fn drawn() -> Result<KeptSecrets, Failure> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut seed[..]).map_err(Failure::no_randomness)?;
    Ok(KeptSecrets {
        seed,
        ca_key: Zeroizing::default(),
    })
}

/// Returns the labels that a record has.
pub fn labels(record: &SessionRecord) -> Vec<Arc<str>> {
    record
        .labels
        .iter()
        .map(|label| label.as_str().into())
        .collect()
}
