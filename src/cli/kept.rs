//! What is kept of one session, and what is made of it at the next start.

use std::time::Duration;

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

    /// After how long without a request it ends, if it does.
    pub(super) fn idle(&self) -> Option<Duration> {
        let idle = self.record.as_ref()?.idle?;
        Some(Duration::from_secs(idle))
    }

    /// Gives a session the status that was kept.
    pub(super) fn restore(&self, session: &Session) {
        if let Some(record) = &self.record {
            session.narrow(status(record));
        }
    }

    /// Whether the session was ended by decision.
    pub(super) fn is_ended(&self) -> bool {
        let record = self.record.as_ref();
        record.is_some_and(|record| record.ended.is_some())
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

/// What operators made of a session.
pub(super) fn status(record: &SessionRecord) -> SessionStatus {
    match (record.ended, record.paused) {
        (Some(_), _) => SessionStatus::Ended(EndReason::Operator),
        (None, true) => SessionStatus::Paused,
        (None, false) => SessionStatus::Active,
    }
}
