//! An operator's actions on live sessions: list, pause, resume and end.

use std::sync::Arc;

use tokio::sync::watch;

use super::lifetime::Moment;
use super::live::{Session, Sessions};
use super::status::{EndReason, SessionStatus};

/// The session has already ended, so it cannot be paused or resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionEnded {
    /// It was idle for too long, and can only be resumed.
    #[error("the session has ended: it was not used for too long")]
    Idle,
    /// It has ended for good.
    #[error("the session has ended, and an ended session stays so")]
    ForGood,
}

impl Sessions {
    /// Returns every session, in the order of the ids.
    pub fn all(&self) -> Vec<Arc<Session>> {
        let mut all: Vec<Arc<Session>> = self.live.read().values().cloned().collect();
        all.sort_by(|one, other| one.id().cmp(other.id()));
        all
    }

    /// Returns a signal for ended sessions, so that their exchanges can be cut.
    pub fn ends(&self) -> watch::Receiver<()> {
        self.ended.subscribe()
    }

    /// Removes a session that no listener has any more, and cuts its exchanges. Its phantoms stay
    /// known as those of another session.
    pub fn leave(&self, session: &Session) {
        session
            .status
            .store(SessionStatus::Ended(EndReason::Listener));
        let is_it = |live: &Arc<Session>| std::ptr::eq(&**live, session);
        let mut live = self.live.write();
        if live.get(session.id()).is_some_and(is_it) {
            live.remove(session.id());
        }
        drop(live);
        self.ended.send_replace(());
    }

    /// Ends a session: its requests are refused from now on, and its exchanges are cut.
    pub fn end(&self, session: &Session, why: EndReason) {
        session.status.store(SessionStatus::Ended(why));
        self.ended.send_replace(());
    }
}

impl Session {
    /// Returns the present status of the session.
    pub fn status(&self) -> SessionStatus {
        match self.ended() {
            Some(why) => SessionStatus::Ended(why),
            None => self.status.load(),
        }
    }

    /// Narrows it to a status that was stored or decided elsewhere. Never permits more than before.
    pub fn narrow(&self, to: SessionStatus) {
        if to != SessionStatus::Active {
            self.status.store(to);
        }
    }

    /// Pauses the session: its next request is refused. Exchanges under way continue.
    ///
    /// # Errors
    /// [`SessionEnded`].
    pub fn pause(&self) -> Result<(), SessionEnded> {
        self.change(SessionStatus::Paused)
    }

    /// Resumes the session, even one that ended for being idle, because no one decided that end.
    ///
    /// # Errors
    /// [`SessionEnded`].
    pub fn resume(&self) -> Result<(), SessionEnded> {
        match self.was_idle() {
            true if self.come_back(Moment::now()) => Ok(()),
            true => Err(self.has_ended()),
            false => self.change(SessionStatus::Active),
        }
    }

    /// Whether it ended for being idle.
    pub fn was_idle(&self) -> bool {
        self.ended() == Some(EndReason::Idle)
    }

    /// Whether it is the session of a caller, which only the caller's evidence can create.
    pub fn is_callers(&self) -> bool {
        self.user().is_some() && self.creation().is_none()
    }

    /// Whether it is the session of a caller that an operator ended. The same evidence then creates
    /// another session of its name.
    pub fn is_used_up(&self) -> bool {
        self.is_callers() && self.ended() == Some(EndReason::Operator)
    }

    /// Returns how a session that cannot be changed has ended.
    pub fn has_ended(&self) -> SessionEnded {
        if self.was_idle() {
            SessionEnded::Idle
        } else {
            SessionEnded::ForGood
        }
    }

    fn change(&self, to: SessionStatus) -> Result<(), SessionEnded> {
        let changes = !self.is_over() && self.status.store(to);
        changes.then_some(()).ok_or_else(|| self.has_ended())
    }
}
