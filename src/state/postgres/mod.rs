//! State in a server that speaks PostgreSQL's protocol, for several gateways.
//!
//! One row holds the clock. Each decision takes it until its commit, so revisions have the order of
//! commit and no gap. Decisions are chained by a code of the sealing key, and the clock holds a
//! sealed sum of all rows: who can write the database can end or pause, and cannot make, widen or
//! revive unseen. Rows of budgets never wait for the clock, and are not protected.

mod budgets;
mod deciding;
mod history;
mod link;
mod news;
mod replicas;
mod rows;
mod server;
mod shared;
mod sql;

use std::ops::RangeInclusive;
use std::time::Duration;

use gateway_names::SessionId;
use tokio_postgres::types::Type;

use crate::budget_rows::{BudgetCounts, BudgetId, BudgetRow, BudgetWindow};
use crate::decision::SessionDecision;
use crate::record::SessionRecord;
use crate::store::{Revision, StateFuture, StateStore, Subject};

use deciding::Decision;

pub use link::{Password, PostgresSettings, PostgresUrl};
pub use replicas::{Beat, Replica, ReplicaRow};
pub use server::{PostgresServer, PostgresState};

impl StateStore for PostgresState {
    fn session<'a>(&'a self, id: &'a SessionId) -> StateFuture<'a, Option<SessionRecord>> {
        Box::pin(self.kept(id))
    }

    fn sessions(&self, most: usize) -> StateFuture<'_, Vec<SessionRecord>> {
        Box::pin(async move {
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let all = self.records(sql::LATEST, &[(&most, Type::INT8)]).await?;
            all.into_iter().collect()
        })
    }

    fn unended(&self) -> StateFuture<'_, Vec<SessionRecord>> {
        Box::pin(async move {
            let all = self.records(sql::UNENDED, &[]).await?;
            Ok(all.into_iter().filter_map(Result::ok).collect())
        })
    }

    fn decide(&self, all: Vec<SessionDecision>) -> StateFuture<'_, Revision> {
        Box::pin(async move {
            if all.is_empty() {
                return self.follow_anew().await;
            }
            let all = all.into_iter().map(|one| Decision::Session(Box::new(one)));
            self.decide_all(all.collect()).await
        })
    }

    fn since(&self, seen: Revision) -> StateFuture<'_, Vec<(Revision, Subject)>> {
        Box::pin(self.news(seen))
    }

    fn woken(&self) -> StateFuture<'_, ()> {
        Box::pin(async move {
            tokio::select! {
                () = self.woken.notified() => {}
                () = tokio::time::sleep(LOOKED_EVERY) => {}
            }
            Ok(())
        })
    }

    fn take(
        &self,
        id: &BudgetId,
        window: BudgetWindow,
        most: u64,
        wanted: RangeInclusive<u64>,
    ) -> StateFuture<'_, (u64, BudgetCounts)> {
        let taken = self.budgets.take(id.clone(), window, most, wanted);
        let id = id.clone();
        Box::pin(async move {
            let (got, counts) = taken.await?;
            self.history.counted(id, window, counts);
            Ok((got, counts))
        })
    }

    fn settle(&self, id: &BudgetId, window: u64, unused: u64) -> StateFuture<'_, ()> {
        self.budgets.settle(id.clone(), window, unused)
    }

    fn add(
        &self,
        id: &BudgetId,
        window: BudgetWindow,
        amount: u64,
    ) -> StateFuture<'_, BudgetCounts> {
        self.budgets.add(id, window, amount)
    }

    fn budgets(&self) -> StateFuture<'_, Vec<BudgetRow>> {
        self.budgets.all()
    }
}

/// How often decisions are looked for, though no notice came.
const LOOKED_EVERY: Duration = Duration::from_millis(250);
