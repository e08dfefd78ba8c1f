//! What every store of the state can do. One suite of tests holds for all of them.

use std::pin::Pin;

use gateway_names::SessionId;

use super::decision::SessionDecision;
use super::error::StateError;
use super::record::SessionRecord;

/// The number of a decision, in the order of commit. The first is 1; 0 is before all of them.
pub type Revision = u64;

/// What a store will answer. Dropping it does not undo a decision that the store has begun.
pub type StateFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StateError>> + Send + 'a>>;

/// Keeps the records of sessions.
///
/// Several processes may use the same store. A decision that was answered is durable, and every
/// process sees all decisions in one order.
pub trait StateStore: Send + Sync {
    /// The record of one session.
    fn session<'a>(&'a self, id: &'a SessionId) -> StateFuture<'a, Option<SessionRecord>>;

    /// The records that were made last, at most `most` of them, the latest first.
    fn sessions(&self, most: usize) -> StateFuture<'_, Vec<SessionRecord>>;

    /// The records of sessions from before this process that no decision ended for good. One that
    /// cannot be read is left out.
    fn unended(&self) -> StateFuture<'_, Vec<SessionRecord>>;

    /// Applies all of these decisions or none, and returns the revision of the last.
    ///
    /// Fails with [`StateError::Refused`] if one of them finds another state than it needs.
    fn decide(&self, all: Vec<SessionDecision>) -> StateFuture<'_, Revision>;

    /// The sessions that were decided about after `seen`, in the order of commit, without a gap.
    ///
    /// Fails with [`StateError::Forgotten`] if the decisions after `seen` are no longer known one
    /// by one. The caller then reads the records that it uses.
    fn since(&self, seen: Revision) -> StateFuture<'_, Vec<(Revision, SessionId)>>;
}

/// How many decisions a store remembers one by one.
pub(super) const REMEMBERED: u64 = 4_096;
