//! What is kept of one session, and what is made of it at the next start.

use crate::intercept::KeptCa;
use crate::names::SessionId;
use crate::session::phantom::{KeptShapes, PhantomKey};
use crate::session::{EndReason, Session, SessionStatus};
use crate::state::{KeptSecrets, SessionDecision, SessionRecord};

/// What is kept of one session.
pub(super) struct RecalledSession {
    /// The id of its record.
    pub(super) id: SessionId,
    /// Its record, if there is one.
    pub(super) record: Option<SessionRecord>,
    pub(super) secrets: KeptSecrets,
    /// The shapes of its phantoms.
    pub(super) shapes: KeptShapes,
    /// Whether an operator paused it, also before it was begun anew.
    pub(super) paused: bool,
}

impl RecalledSession {
    /// What the session's phantoms are derived from.
    pub(super) fn key(&self) -> PhantomKey {
        PhantomKey::from_bytes(*self.secrets.seed)
    }

    /// Its CA, if that is kept.
    pub(super) fn ca(&self) -> Option<KeptCa> {
        let certificate = self.record.as_ref()?.certificate.clone()?;
        Some(KeptCa {
            pem: certificate.pem,
            from: certificate.from,
            to: certificate.to,
            key: self.secrets.ca_key.clone(),
        })
    }

    /// Gives a session the status that was kept.
    pub(super) fn restore(&self, session: &Session) {
        match &self.record {
            Some(record) => session.narrow(status(record)),
            None if self.paused => session.narrow(SessionStatus::Paused),
            None => {}
        }
    }

    /// Why the session has ended, if it has. Only a decision ends it for good: the session of a
    /// listener whose time was over while nobody served it is renewed when it is opened.
    pub(super) fn ended(&self) -> Option<EndReason> {
        match status(self.record.as_ref()?) {
            SessionStatus::Ended(why) => Some(why),
            SessionStatus::Active | SessionStatus::Paused => None,
        }
    }

    /// The decisions that keep the shapes which the record does not have yet.
    pub(super) fn new_shapes(&self) -> Vec<SessionDecision> {
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

/// What was made of a session by decision.
pub(super) fn status(record: &SessionRecord) -> SessionStatus {
    match (record.ended, record.paused) {
        (Some(_), _) if record.was_idle => SessionStatus::Ended(EndReason::Idle),
        (Some(_), _) => SessionStatus::Ended(EndReason::Operator),
        (None, true) => SessionStatus::Paused,
        (None, false) => SessionStatus::Active,
    }
}
