//! The replicas of a fleet: the beat of each, and what a decision waits for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::link::away;
use super::rows::{Parameter, query};
use super::server::PostgresState;
use super::sql;
use crate::error::StateError;
use crate::store::Revision;

/// A process of the fleet.
#[derive(Debug, Clone)]
pub struct Replica {
    /// Its name, which no other has.
    pub name: String,
    /// The process of that name, drawn at its start.
    pub instance: String,
    /// How long it goes on without a beat.
    pub stale_after: Duration,
}

/// What a beat tells.
#[derive(Debug, Clone, Default)]
pub struct Beat {
    /// The last decision that is in force there.
    pub applied: Revision,
    /// The end of its audit log, as `NUMBER:HASH`.
    pub head: String,
    /// The SHA-256 of the configuration and policies in force.
    pub in_force: String,
    /// Whether it stops, so that nobody waits for it.
    pub is_gone: bool,
}

/// A replica as the store knows it.
#[derive(Debug, Clone)]
pub struct ReplicaRow {
    /// Its process.
    pub replica: Replica,
    /// Its version of this program.
    pub version: String,
    /// Its last beat.
    pub beat: Beat,
    /// How long ago that was.
    pub age: Duration,
    /// Whether an operator asked it to drain.
    pub drains: bool,
}

impl ReplicaRow {
    /// Whether it may still lend: its lease is not over, by the clock of the store, which learned
    /// of the beat after it was sent.
    pub fn is_live(&self) -> bool {
        !self.beat.is_gone && self.age < self.replica.stale_after
    }
}

impl PostgresState {
    /// Tells the store that a replica lives. Returns whether it shall drain, and the time there,
    /// since 1970.
    ///
    /// # Errors
    /// [`StateError::Unfitting`] if another process of its name lives.
    pub async fn beat(
        &self,
        replica: &Replica,
        beat: &Beat,
    ) -> Result<(bool, Duration), StateError> {
        let tell = |client: Arc<Client>| async move {
            let stale_after = i64::try_from(replica.stale_after.as_millis()).unwrap_or(i64::MAX);
            let applied = beat.applied.cast_signed();
            let all: [Parameter<'_>; 8] = [
                (&replica.name, Type::TEXT),
                (&replica.instance, Type::TEXT),
                (&env!("CARGO_PKG_VERSION"), Type::TEXT),
                (&stale_after, Type::INT8),
                (&applied, Type::INT8),
                (&beat.head, Type::TEXT),
                (&beat.in_force, Type::TEXT),
                (&beat.is_gone, Type::BOOL),
            ];
            query(&client, sql::BEAT, &all).await
        };
        let told = self.pulse.run(tell).await?;
        let taken = StateError::Unfitting("another gateway has the name of this replica there");
        let row = told.first().ok_or(taken)?;
        let millis = u64::try_from(row.get::<_, i64>(1)).unwrap_or(0);
        Ok((row.get(0), Duration::from_millis(millis)))
    }

    /// Returns every replica that ever was.
    ///
    /// # Errors
    /// [`StateError`] if they cannot be read.
    pub async fn replicas(&self) -> Result<Vec<ReplicaRow>, StateError> {
        let rows = self.read(sql::REPLICAS, &[]).await?;
        let millis = |row: &tokio_postgres::Row, at| {
            Duration::from_millis(u64::try_from(row.get::<_, i64>(at)).unwrap_or(0))
        };
        let all = rows.iter().map(|row| ReplicaRow {
            replica: Replica {
                name: row.get(0),
                instance: row.get(1),
                // Whatever a row says, nobody waits for longer.
                stale_after: millis(row, 3).min(LONGEST_LEASE),
            },
            version: row.get(2),
            beat: Beat {
                applied: row.get::<_, i64>(4).cast_unsigned(),
                head: row.get(5),
                in_force: row.get(6),
                is_gone: row.get(8),
            },
            age: millis(row, 7),
            drains: row.get(9),
        });
        Ok(all.collect())
    }

    /// Waits until each live replica has applied a decision, or its lease is over. Returns how long
    /// each took; `None` for one whose lease ran out.
    ///
    /// # Errors
    /// [`StateError`] if the replicas cannot be read.
    pub async fn applied_by_all(
        &self,
        revision: Revision,
    ) -> Result<Vec<(String, Option<Duration>)>, StateError> {
        let began = Instant::now();
        let mut done: Vec<(String, Option<Duration>)> = Vec::new();
        let mut awaited: Option<Vec<String>> = None;
        loop {
            let all = self.replicas().await?;
            // One that begins later reads the decision before it serves.
            let first: Vec<String> = all
                .iter()
                .filter(|one| one.is_live())
                .map(|one| one.replica.name.clone())
                .collect();
            let names = awaited.get_or_insert(first);
            names.retain(|name| {
                let row = all.iter().find(|one| one.replica.name == *name);
                let has_applied = row.is_some_and(|row| row.beat.applied >= revision);
                let is_over = !row.is_some_and(ReplicaRow::is_live);
                if has_applied || is_over {
                    done.push((name.clone(), has_applied.then(|| began.elapsed())));
                }
                !has_applied && !is_over
            });
            if names.is_empty() {
                return Ok(done);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Asks a replica to drain. Returns whether there is one.
    ///
    /// # Errors
    /// [`StateError`] if it cannot be asked.
    pub async fn drain(&self, name: &str) -> Result<bool, StateError> {
        let name = name.to_owned();
        let ask = |client: Arc<Client>| async move {
            let asked = client
                .execute_typed(sql::DRAIN, &[(&name, Type::TEXT)])
                .await;
            asked.map_err(away)
        };
        Ok(self.rows.run(ask).await? > 0)
    }
}

/// The longest lease that a configuration may name.
const LONGEST_LEASE: Duration = Duration::from_secs(20);
/// How often the beats are looked at.
const LOOK: Duration = Duration::from_millis(2);
