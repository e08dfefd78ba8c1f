//! State that ends with the process, for runs that keep nothing.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::decision::SessionDecision;
use super::error::StateError;
use super::record::SessionRecord;
use super::store::{REMEMBERED, Revision, StateFuture, StateStore};
use crate::names::{Map, SessionId};

/// Keeps records in memory.
#[derive(Default)]
pub struct MemoryState(Mutex<Contents>);

#[derive(Default, Clone)]
struct Contents {
    records: Map<SessionId, SessionRecord>,
    /// The last decisions. The revision is that of the last of them.
    decisions: VecDeque<SessionId>,
    revision: Revision,
}

impl Contents {
    fn decide(&mut self, decision: SessionDecision) -> Result<(), StateError> {
        let id = decision.session()?;
        let record = decision.apply(self.records.get(&id).cloned())?;
        self.records.insert(id.clone(), record);
        self.revision += 1;
        self.decisions.push_back(id);
        if self.decisions.len() as u64 > REMEMBERED {
            self.decisions.pop_front();
        }
        Ok(())
    }

    fn since(&self, seen: Revision) -> Result<Vec<(Revision, SessionId)>, StateError> {
        let oldest = self.revision - self.decisions.len() as u64;
        let known = (oldest..=self.revision).contains(&seen);
        let skip = known.then(|| seen - oldest).ok_or(StateError::Forgotten)?;
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let numbered = (oldest + 1..).zip(self.decisions.iter().cloned());
        Ok(numbered.skip(skip).collect())
    }
}

impl StateStore for MemoryState {
    fn session<'a>(&'a self, id: &'a SessionId) -> StateFuture<'a, Option<SessionRecord>> {
        Box::pin(async move { Ok(self.0.lock().records.get(id).cloned()) })
    }

    fn sessions(&self, most: usize) -> StateFuture<'_, Vec<SessionRecord>> {
        Box::pin(async move {
            let mut all: Vec<_> = self.0.lock().records.values().cloned().collect();
            all.sort_by(|one, other| (other.made, &other.id).cmp(&(one.made, &one.id)));
            all.truncate(most);
            Ok(all)
        })
    }

    // A process asks when it starts, before there is anything.
    fn unended(&self) -> StateFuture<'_, Vec<SessionRecord>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn decide(&self, all: Vec<SessionDecision>) -> StateFuture<'_, Revision> {
        Box::pin(async move {
            let mut kept = self.0.lock();
            let mut next = kept.clone();
            for decision in all {
                next.decide(decision)?;
            }
            *kept = next;
            Ok(kept.revision)
        })
    }

    fn since(&self, seen: Revision) -> StateFuture<'_, Vec<(Revision, SessionId)>> {
        Box::pin(async move { self.0.lock().since(seen) })
    }
}
