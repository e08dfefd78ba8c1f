//! Budgets: one statement each, in the order in which they were asked for.

use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::link::Line;
use super::rows::{Parameter, query};
use super::sql;
use crate::budget_rows::{BudgetCounts, BudgetId, BudgetRow, BudgetWindow};
use crate::error::StateError;
use crate::store::StateFuture;

/// The statements that wait for their turn.
pub(super) struct BudgetQueue(mpsc::UnboundedSender<Job>);

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;
type Job = Box<dyn FnOnce(Arc<Line>) -> Work + Send>;

impl BudgetQueue {
    /// Runs them on the present runtime.
    pub(super) fn start(line: Arc<Line>) -> Self {
        let (jobs, mut queue) = mpsc::unbounded_channel::<Job>();
        tokio::spawn(async move {
            while let Some(job) = queue.recv().await {
                job(line.clone()).await;
            }
        });
        Self(jobs)
    }

    /// Queues a call at once, whether or not its answer is waited for.
    fn ask<T, F>(
        &self,
        call: impl Fn(Arc<Client>) -> F + Send + Sync + 'static,
        may_repeat: bool,
    ) -> StateFuture<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StateError>> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let job: Job = Box::new(move |line| {
            Box::pin(async move {
                let done = match line.run(&call).await {
                    Err(StateError::Away(_)) if may_repeat => line.run(&call).await,
                    done => done,
                };
                // The caller may have stopped waiting.
                drop(tell.send(done));
            })
        });
        let sent = self.0.send(job);
        Box::pin(async move {
            sent.map_err(|_| StateError::Gone)?;
            told.await.map_err(|_| StateError::Gone)?
        })
    }

    pub(super) fn take(
        &self,
        id: BudgetId,
        window: BudgetWindow,
        most: u64,
        wanted: RangeInclusive<u64>,
    ) -> StateFuture<'static, (u64, BudgetCounts)> {
        let (most, least, want) = (signed(most), signed(*wanted.start()), signed(*wanted.end()));
        let take = move |client: Arc<Client>| {
            let id = id.clone();
            async move {
                let begins = signed(window.begins);
                let all: [Parameter<'_>; 8] = [
                    (&&*id.name, Type::TEXT),
                    (&id.unit, Type::TEXT),
                    (&id.key, Type::TEXT),
                    (&begins, Type::INT8),
                    (&window.lasts, Type::BOOL),
                    (&most, Type::INT8),
                    (&least, Type::INT8),
                    (&want, Type::INT8),
                ];
                let rows = query(&client, sql::TAKE, &all).await?;
                let row = rows.first().ok_or(StateError::Changed)?;
                let (got, counts) = (number(row, 0), counts(row, 1));
                // The first of a window.
                if !window.lasts && got == counts.taken && got > 0 {
                    let window = signed(counts.window);
                    let earlier: [Parameter<'_>; 3] = [
                        (&&*id.name, Type::TEXT),
                        (&id.unit, Type::TEXT),
                        (&window, Type::INT8),
                    ];
                    query(&client, sql::DROP_EARLIER, &earlier).await?;
                }
                Ok((got, counts))
            }
        };
        // What an answer that was lost had taken counts as spent.
        self.ask(take, true)
    }

    pub(super) fn settle(
        &self,
        id: BudgetId,
        window: u64,
        unused: u64,
    ) -> StateFuture<'static, ()> {
        let settle = move |client: Arc<Client>| {
            let id = id.clone();
            async move {
                let (window, unused) = (signed(window), signed(unused));
                let all: [Parameter<'_>; 5] = [
                    (&&*id.name, Type::TEXT),
                    (&id.unit, Type::TEXT),
                    (&id.key, Type::TEXT),
                    (&window, Type::INT8),
                    (&unused, Type::INT8),
                ];
                query(&client, sql::GIVE_BACK, &all).await?;
                query(&client, sql::DROP_UNUSED, &all[..4]).await.map(drop)
            }
        };
        // Given back twice, it would be had twice.
        self.ask(settle, false)
    }

    pub(super) fn add(
        &self,
        id: &BudgetId,
        window: BudgetWindow,
        amount: u64,
    ) -> StateFuture<'static, BudgetCounts> {
        self.change(id.clone(), window, amount, sql::ADD, false)
    }

    /// Tells a store that went back how much was taken.
    pub(super) async fn raise(
        &self,
        id: BudgetId,
        window: BudgetWindow,
        counts: BudgetCounts,
    ) -> Result<(), StateError> {
        let begins = counts.window;
        let window = BudgetWindow { begins, ..window };
        let raised = self.change(id, window, counts.taken, sql::RAISE, true);
        raised.await.map(drop)
    }

    fn change(
        &self,
        id: BudgetId,
        window: BudgetWindow,
        amount: u64,
        sql: &'static str,
        may_repeat: bool,
    ) -> StateFuture<'static, BudgetCounts> {
        let change = move |client: Arc<Client>| {
            let id = id.clone();
            async move {
                let (begins, amount) = (signed(window.begins), amount.cast_signed());
                let all: [Parameter<'_>; 6] = [
                    (&&*id.name, Type::TEXT),
                    (&id.unit, Type::TEXT),
                    (&id.key, Type::TEXT),
                    (&begins, Type::INT8),
                    (&window.lasts, Type::BOOL),
                    (&amount, Type::INT8),
                ];
                let rows = query(&client, sql, &all).await?;
                Ok(counts(rows.first().ok_or(StateError::Changed)?, 0))
            }
        };
        self.ask(change, may_repeat)
    }

    pub(super) fn all(&self) -> StateFuture<'static, Vec<BudgetRow>> {
        let all = |client: Arc<Client>| async move {
            let rows = query(&client, sql::BUDGETS, &[]).await?;
            let row = |row: &tokio_postgres::Row| BudgetRow {
                name: row.get(0),
                unit: row.get(1),
                key: row.get(2),
                counts: counts(row, 3),
            };
            Ok(rows.iter().map(row).collect())
        };
        self.ask(all, true)
    }
}

fn counts(row: &tokio_postgres::Row, at: usize) -> BudgetCounts {
    BudgetCounts {
        window: number(row, at),
        taken: number(row, at + 1),
        added: number(row, at + 2),
    }
}

fn number(row: &tokio_postgres::Row, at: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(at)).unwrap_or(0)
}

/// The server counts in signed numbers, and adds two of these.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(MOST).min(MOST)
}

const MOST: i64 = 1 << 61;
