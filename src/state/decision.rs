//! The decisions about a session: what each requires and changes. Every store applies them alike.

use gateway_names::{CredentialName, SessionId};

use super::error::StateError;
use super::record::{KeptLogin, KeptTemporary, SessionRecord};

/// A decision about one session.
#[derive(Debug, Clone)]
pub enum SessionDecision {
    /// Adds a session. Its id must be free, or that of a session that is used up, which it follows.
    Create(SessionRecord),
    /// Adds a session, or replaces the one with its id.
    Replace(SessionRecord),
    /// Takes the groups, the idle time, the certificate and the sealed part of this record.
    Reissue(SessionRecord),
    /// Moves the end of a session, unless the session was ended.
    Extend {
        /// The session.
        session: SessionId,
        /// The new end, in seconds since 1970.
        ends: u64,
    },
    /// Records the shape of a credential's phantom in place of the recorded one.
    Shape {
        /// The session.
        session: SessionId,
        /// The credential.
        credential: CredentialName,
        /// The shape that must be recorded now; `None` if there must be none.
        before: Option<String>,
        /// The new shape, as text.
        after: String,
    },
    /// Records what a session did with a login, unless the session was ended.
    Login {
        /// The session.
        session: SessionId,
        /// The login.
        login: CredentialName,
        /// The session's use of the login.
        kept: KeptLogin,
    },
    /// Records temporary credentials that a session was issued, and drops the expired ones.
    Temporary {
        /// The session.
        session: SessionId,
        /// The new temporary credentials.
        kept: KeptTemporary,
        /// The time, in seconds since 1970.
        at: u64,
    },
    /// Adds labels to a session, unless it was ended.
    Label {
        /// The session.
        session: SessionId,
        /// The labels.
        labels: Vec<String>,
    },
    /// Pauses a session, unless it was ended.
    Pause(SessionId),
    /// Resumes a session. One that was ended comes back only if it was ended for being idle.
    Resume(SessionId),
    /// Reverts the end of a session that was ended for being idle, if no operator paused it.
    TakeBack(SessionId),
    /// Ends a session. An end stays as it was recorded, unless that was for being idle and this one
    /// is not.
    End {
        /// The session.
        session: SessionId,
        /// The time, in seconds since 1970.
        at: u64,
        /// Whether the session is ended for being idle.
        was_idle: bool,
        /// Whether no other session may follow this one.
        for_good: bool,
    },
    /// Ends a session whose time is over. Refused if the session has a later end by now.
    Expire {
        /// The session.
        session: SessionId,
        /// When it ended, in seconds since 1970.
        at: u64,
    },
}

impl SessionDecision {
    /// Returns the session that the decision is about.
    pub(super) fn session(&self) -> Result<SessionId, StateError> {
        match self {
            Self::Create(record) | Self::Replace(record) | Self::Reissue(record) => {
                record.session()
            }
            Self::Extend { session, .. }
            | Self::Shape { session, .. }
            | Self::Login { session, .. }
            | Self::Temporary { session, .. }
            | Self::Label { session, .. }
            | Self::End { session, .. }
            | Self::Expire { session, .. }
            | Self::Pause(session)
            | Self::Resume(session)
            | Self::TakeBack(session) => Ok(session.clone()),
        }
    }

    /// Returns the record after the decision.
    pub(super) fn apply(self, now: Option<SessionRecord>) -> Result<SessionRecord, StateError> {
        match self {
            Self::Replace(record) => return Ok(record),
            Self::Create(record) => {
                let follows =
                    |now: SessionRecord| now.is_used_up() && now.before + 1 == record.before;
                return if now.is_none_or(follows) {
                    Ok(record)
                } else {
                    Err(StateError::Refused("there is a session of that name"))
                };
            }
            _ => {}
        }
        let mut record = now.ok_or(StateError::Refused("there is no such session"))?;
        record.version = SessionRecord::VERSION;
        if let Self::Expire { session, at } = self {
            if record.ended.is_none() && record.ends.is_none_or(|ends| ends > at) {
                return Err(StateError::Refused("the session ends later"));
            }
            return Self::End {
                session,
                at,
                was_idle: false,
                for_good: false,
            }
            .apply(Some(record));
        }
        if let Self::End {
            at,
            was_idle,
            for_good,
            ..
        } = self
        {
            if record.ended.is_none() || (record.was_idle && !was_idle) {
                (record.ended, record.was_idle) = (Some(at), was_idle);
            }
            record.for_good |= for_good;
            if !record.was_idle {
                record.temporary.clear();
            }
            return Ok(record);
        }
        // A session that was idle may come back, with the changes of later reloads.
        let comes_back = matches!(
            self,
            Self::Resume(_) | Self::TakeBack(_) | Self::Shape { .. } | Self::Reissue(_)
        );
        let is_for_idle = comes_back && record.was_idle;
        if record.ended.is_some() && !is_for_idle {
            return Err(StateError::Refused("the session was ended"));
        }
        match self {
            Self::Reissue(with) => {
                record.parents = with.parents;
                record.idle = with.idle;
                record.certificate = with.certificate;
                record.sealed = with.sealed;
            }
            Self::Extend { ends, .. } => record.ends = Some(ends),
            Self::Login { login, kept, .. } => {
                record.logins.insert(login.to_string(), kept);
            }
            Self::Temporary { kept, at, .. } => {
                record.temporary.retain(|one| one.expires > at);
                let surplus = (record.temporary.len() + 1).saturating_sub(MOST_TEMPORARY);
                record.temporary.drain(..surplus);
                record.temporary.push(kept);
            }
            Self::Label { labels, .. } => record.labels.extend(labels),
            Self::Pause(_) => record.paused = true,
            Self::Resume(_) => {
                (record.ended, record.was_idle, record.paused) = (None, false, false);
            }
            Self::TakeBack(_) if record.paused => {
                return Err(StateError::Refused("an operator paused the session"));
            }
            Self::TakeBack(_) => (record.ended, record.was_idle) = (None, false),
            Self::Shape {
                credential,
                before,
                after,
                ..
            } => {
                if record.shapes.get(credential.as_str()) != before.as_ref() {
                    return Err(StateError::Refused("the shape is another one by now"));
                }
                record.shapes.insert(credential.to_string(), after);
            }
            Self::Create(_) | Self::Replace(_) | Self::End { .. } | Self::Expire { .. } => {}
        }
        Ok(record)
    }
}

/// The number that a session holds at once.
const MOST_TEMPORARY: usize = 64;
