//! Whether a session may send requests: it is active, paused or ended.

use std::sync::atomic::{AtomicU8, Ordering};

/// The status of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionStatus {
    /// Its requests are judged by policy.
    Active,
    /// Its requests are refused until it is resumed. Exchanges under way continue.
    Paused,
    /// Its requests are refused for good, and its exchanges are cut.
    Ended(EndReason),
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// An operator ended it.
    Operator,
    /// An operator ended it, and its caller gets no other session.
    ForGood,
    /// Its lifetime was over.
    Expired,
    /// It was idle for too long.
    Idle,
    /// The configuration no longer has a listener for it.
    Listener,
}

impl SessionStatus {
    /// Returns the status as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Ended(_) => "ended",
        }
    }
}

impl EndReason {
    /// Returns the reason as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::ForGood => "for_good",
            Self::Expired => "expired",
            Self::Idle => "idle",
            Self::Listener => "listener",
        }
    }
}

/// The decided status of a session. A session that was ended keeps its first reason. Only one that
/// was idle may become active again; any may be ended for good.
#[derive(Default)]
pub(super) struct DecidedStatus(AtomicU8);

impl DecidedStatus {
    pub(super) fn load(&self) -> SessionStatus {
        match self.0.load(Ordering::Acquire) {
            ACTIVE => SessionStatus::Active,
            PAUSED => SessionStatus::Paused,
            EXPIRED => SessionStatus::Ended(EndReason::Expired),
            IDLE => SessionStatus::Ended(EndReason::Idle),
            LEFT => SessionStatus::Ended(EndReason::Listener),
            FOR_GOOD => SessionStatus::Ended(EndReason::ForGood),
            _ => SessionStatus::Ended(EndReason::Operator),
        }
    }

    /// Changes the status. Returns whether it is now as wanted: an ended session no longer changes.
    pub(super) fn store(&self, wanted: SessionStatus) -> bool {
        let code = match wanted {
            SessionStatus::Active => ACTIVE,
            SessionStatus::Paused => PAUSED,
            SessionStatus::Ended(EndReason::Operator) => ENDED,
            SessionStatus::Ended(EndReason::Expired) => EXPIRED,
            SessionStatus::Ended(EndReason::Idle) => IDLE,
            SessionStatus::Ended(EndReason::Listener) => LEFT,
            SessionStatus::Ended(EndReason::ForGood) => FOR_GOOD,
        };
        // An end for being idle was no one's decision, so a decision may replace it.
        let from_idle = |now: u8| now == IDLE && matches!(code, ACTIVE | ENDED | LEFT);
        let may_be = |now: u8| now < ENDED || code == FOR_GOOD || from_idle(now);
        let change = |now: u8| may_be(now).then_some(code);
        let changed = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        changed.is_ok() || code >= ENDED
    }
}

const ACTIVE: u8 = 0;
const PAUSED: u8 = 1;
/// This code and all higher ones are ends.
const ENDED: u8 = 2;
const EXPIRED: u8 = 3;
const IDLE: u8 = 4;
const LEFT: u8 = 5;
const FOR_GOOD: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paused_session_resumes_and_an_ended_one_never_does() {
        let status = DecidedStatus::default();
        assert_eq!(status.load(), SessionStatus::Active);
        assert!(status.store(SessionStatus::Paused));
        assert_eq!(status.load(), SessionStatus::Paused);
        assert!(status.store(SessionStatus::Active));
        assert!(status.store(SessionStatus::Ended(EndReason::Operator)));
        assert!(!status.store(SessionStatus::Active) && !status.store(SessionStatus::Paused));
        assert_eq!(status.load(), SessionStatus::Ended(EndReason::Operator));
        assert!(status.store(SessionStatus::Ended(EndReason::Idle)));
        assert_eq!(status.load(), SessionStatus::Ended(EndReason::Operator));
    }

    #[test]
    fn a_session_that_was_idle_becomes_active_again_and_nothing_else() {
        let status = DecidedStatus::default();
        assert!(status.store(SessionStatus::Ended(EndReason::Idle)));
        assert!(!status.store(SessionStatus::Paused));
        assert!(status.store(SessionStatus::Active));
        assert_eq!(status.load(), SessionStatus::Active);
    }

    #[test]
    fn a_session_that_was_idle_or_ended_can_be_ended_for_good() {
        for first in [EndReason::Idle, EndReason::Operator] {
            let status = DecidedStatus::default();
            for end in [first, EndReason::ForGood, EndReason::Operator] {
                assert!(status.store(SessionStatus::Ended(end)));
            }
            assert_eq!(status.load(), SessionStatus::Ended(EndReason::ForGood));
            assert!(!status.store(SessionStatus::Active));
        }
    }
}
