//! The interface of every store of the state. One suite of tests holds for all stores.

use std::ops::RangeInclusive;
use std::pin::Pin;

use gateway_names::SessionId;

use super::budget_rows::{BudgetCounts, BudgetId, BudgetRow, BudgetWindow};
use super::decision::SessionDecision;
use super::error::StateError;
use super::record::SessionRecord;

/// The number of a decision, in the order of commit. The first is 1; 0 is before all of them.
pub type Revision = u64;

/// What a decision was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A session.
    Session(SessionId),
    /// The revocations that all replicas share.
    Revocations,
}

/// The future of a store's answer. Dropping it does not undo a decision that the store has begun.
pub type StateFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StateError>> + Send + 'a>>;

/// A store that keeps the records of sessions, and what was taken of budgets.
///
/// Several processes may use the same store. A decision that was answered is durable, and every
/// process sees all decisions in one order.
pub trait StateStore: Send + Sync {
    /// Returns the record of one session.
    fn session<'a>(&'a self, id: &'a SessionId) -> StateFuture<'a, Option<SessionRecord>>;

    /// Returns the records that were created last, at most `most` of them, the latest first.
    fn sessions(&self, most: usize) -> StateFuture<'_, Vec<SessionRecord>>;

    /// Returns the records of sessions that no decision ended for good. One that cannot be read is
    /// left out.
    fn unended(&self) -> StateFuture<'_, Vec<SessionRecord>>;

    /// Applies all of these decisions or none, and returns the revision of the last.
    ///
    /// Fails with [`StateError::Refused`] if the state is not what one of them requires.
    fn decide(&self, all: Vec<SessionDecision>) -> StateFuture<'_, Revision>;

    /// Returns what was decided about after `seen`, in the order of commit, without a gap.
    ///
    /// Fails with [`StateError::Forgotten`] if the decisions after `seen` are no longer kept one by
    /// one. The caller then reads the records that it uses.
    fn since(&self, seen: Revision) -> StateFuture<'_, Vec<(Revision, Subject)>>;

    /// Completes when it is time to look for decisions: at once if the store told of one, which
    /// may be lost, come twice, or never.
    fn woken(&self) -> StateFuture<'_, ()>;

    /// Takes of a budget, which has `most` in each window and what was added to it. Takes nothing
    /// if less than the start of `wanted` is left, else as much as is left of its end.
    ///
    /// What was taken is durable when this is answered.
    fn take(
        &self,
        id: &BudgetId,
        window: BudgetWindow,
        most: u64,
        wanted: RangeInclusive<u64>,
    ) -> StateFuture<'_, (u64, BudgetCounts)>;

    /// Gives back what was taken in the window that begins then, and was not used. It is done in
    /// the order of the calls, even if the future is dropped.
    fn settle(&self, id: &BudgetId, window: u64, unused: u64) -> StateFuture<'_, ()>;

    /// Adds to what a budget has in its latest window.
    fn add(
        &self,
        id: &BudgetId,
        window: BudgetWindow,
        amount: u64,
    ) -> StateFuture<'_, BudgetCounts>;

    /// Returns the rows of all budgets, each in its latest window.
    fn budgets(&self) -> StateFuture<'_, Vec<BudgetRow>>;
}

/// How often a store without notices is looked at.
pub(super) const LOOKED_EVERY: std::time::Duration = std::time::Duration::from_secs(1);
/// How many decisions a store remembers one by one.
pub(super) const REMEMBERED: u64 = 4_096;
