//! What an operator may do with live sessions: list, pause, resume and end them.

use std::sync::Arc;

use tokio::sync::watch;

use super::lifetime::Moment;
use super::live::{Session, Sessions};
use super::status::{EndReason, SessionStatus};

/// The session had ended already, so that it cannot be paused or resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HasEnded {
    /// It can only be resumed.
    #[error("the session has ended: it was not used for too long")]
    Idle,
    /// Nothing brings it back.
    #[error("the session has ended, and an ended session stays so")]
    ForGood,
}

impl Sessions {
    /// Every session, in the order of the ids.
    pub fn all(&self) -> Vec<Arc<Session>> {
        let mut all: Vec<Arc<Session>> = self.live.read().values().cloned().collect();
        all.sort_by(|one, other| one.id().cmp(other.id()));
        all
    }

    /// Tells when operators end sessions, so that what is under way can be cut.
    pub fn ends(&self) -> watch::Receiver<()> {
        self.ended.subscribe()
    }

    /// Removes a session that no listener has any more, with what is still under way. Its phantoms
    /// stay known as those of another.
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

    /// Ends a session: its requests are refused from now on, and what is under way is cut.
    pub fn end(&self, session: &Session, why: EndReason) {
        session.status.store(SessionStatus::Ended(why));
        self.ended.send_replace(());
    }
}

impl Session {
    /// What the session may do now.
    pub fn status(&self) -> SessionStatus {
        match self.ended() {
            Some(why) => SessionStatus::Ended(why),
            None => self.status.load(),
        }
    }

    /// Narrows it to a status that was kept or decided elsewhere. It never widens what it may do.
    pub fn narrow(&self, to: SessionStatus) {
        if to != SessionStatus::Active {
            self.status.store(to);
        }
    }

    /// Pauses the session: its next request is refused. What is under way goes on.
    ///
    /// # Errors
    /// [`HasEnded`].
    pub fn pause(&self) -> Result<(), HasEnded> {
        self.change(SessionStatus::Paused)
    }

    /// Resumes the session, also one that was not used for too long: that end was nobody's
    /// decision.
    ///
    /// # Errors
    /// [`HasEnded`].
    pub fn resume(&self) -> Result<(), HasEnded> {
        match self.was_idle() {
            true if self.come_back(Moment::now()) => Ok(()),
            true => Err(self.has_ended()),
            false => self.change(SessionStatus::Active),
        }
    }

    /// Whether it ended because it was not used for too long.
    pub fn was_idle(&self) -> bool {
        self.ended() == Some(EndReason::Idle)
    }

    /// Whether it is a caller's, of which nobody but its evidence makes one.
    pub fn is_callers(&self) -> bool {
        self.user().is_some() && self.creation().is_none()
    }

    /// Whether it is a caller's that an operator ended: the next sight of the same evidence begins
    /// another one of its name.
    pub fn is_used_up(&self) -> bool {
        self.is_callers() && self.ended() == Some(EndReason::Operator)
    }

    /// How it has ended, for one that cannot be changed.
    pub fn has_ended(&self) -> HasEnded {
        match self.was_idle() {
            true => HasEnded::Idle,
            false => HasEnded::ForGood,
        }
    }

    fn change(&self, to: SessionStatus) -> Result<(), HasEnded> {
        let changes = !self.is_over() && self.status.store(to);
        changes.then_some(()).ok_or_else(|| self.has_ended())
    }
}
