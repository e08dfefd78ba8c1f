//! Decisions: one transaction each, asked for again under its id where its answer was lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::history::{Clock, MOST_PROOFS, key, next_link};
use super::link::away;
use super::rows::{Parameter, latest, query, row_of};
use super::server::PostgresState;
use super::sql;
use crate::decision::SessionDecision;
use crate::error::StateError;
use crate::record::SessionRecord;
use crate::row::{Row, SESSION};
use crate::store::{REMEMBERED, Revision};

/// What is decided.
#[derive(Clone)]
pub(super) enum Decision {
    /// About a session.
    Session(Box<SessionDecision>),
    /// Puts a row that no session has.
    Put {
        kind: &'static str,
        id: String,
        text: String,
    },
}

/// What a decision writes.
struct Written {
    row: Row,
    made: i64,
    is_live: bool,
    /// Whether a session begins, which inherits no budget of its own.
    is_anew: bool,
    record: Option<SessionRecord>,
}

impl PostgresState {
    /// Applies decisions under one id until they are known to be applied, or refused.
    pub(super) async fn decide_all(&self, all: Vec<Decision>) -> Result<Revision, StateError> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|_| crate::row::NO_RANDOM_BYTES)?;
        let until = tokio::time::Instant::now() + DECIDED_WITHIN;
        let mut is_again = false;
        loop {
            let done = self.decide_once(&id, is_again, &all).await;
            match done {
                Err(StateError::Away(_)) if tokio::time::Instant::now() < until => {}
                done => return done,
            }
            is_again = true;
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    /// Applies all decisions or none. `is_again` if an earlier try may have been applied.
    async fn decide_once(
        &self,
        id: &[u8; 16],
        is_again: bool,
        all: &[Decision],
    ) -> Result<Revision, StateError> {
        let _one = self.deciding.lock().await;
        let decide = |client: Arc<Client>| async move {
            client.batch_execute("BEGIN").await.map_err(away)?;
            let done = self.transaction(&client, id, is_again, all).await;
            let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
            let ended = client.batch_execute(end).await.map_err(away);
            if ended.is_err() {
                self.writer.give_up();
            }
            let (revision, records) = done?;
            ended?;
            for record in &records {
                self.history.remember(record);
            }
            Ok(revision)
        };
        self.writer.run_many(all.len(), decide).await
    }

    async fn transaction(
        &self,
        client: &Client,
        id: &[u8; 16],
        is_again: bool,
        all: &[Decision],
    ) -> Result<(Revision, Vec<SessionRecord>), StateError> {
        let asked = &id[..];
        let count = i64::try_from(all.len()).unwrap_or(i64::MAX);
        let ticked = query(client, sql::TICK, &[(&count, Type::INT8)]).await?;
        let mut clock = Clock::read(ticked.first().ok_or(StateError::Changed)?)?;
        if is_again {
            // Behind the clock: whatever became of the first try, it is over.
            let known = query(client, sql::KNOWN, &[(&asked, Type::BYTEA)]).await?;
            let known = known.first().and_then(|row| row.get::<_, Option<i64>>(0));
            if let Some(revision) = known {
                // Nothing else was changed, and the tick is undone.
                client
                    .batch_execute("ROLLBACK; BEGIN")
                    .await
                    .map_err(away)?;
                return Ok((revision.unsigned_abs(), Vec::new()));
            }
        }
        clock.revision = clock.revision.saturating_sub(all.len() as u64);
        let mut sum = clock.sum(&self.seal)?;
        let mut records = Vec::new();
        for decision in all {
            let (kind, of) = decision.place()?;
            let read = query(client, sql::ONE, &[(&kind, Type::TEXT), (&of, Type::TEXT)]).await?;
            let before = read.first().ok_or(StateError::Changed)?;
            let written = self.written(decision, before)?;
            if written.is_anew {
                query(client, sql::DROP_OF_SESSION, &[(&of, Type::TEXT)]).await?;
            }
            if let Some(proof) = before.get::<_, Option<Vec<u8>>>(5) {
                sum.toggle(&self.seal, kind, &of, &proof);
            }
            let proof = self.seal.make(&written.row)?;
            sum.toggle(&self.seal, kind, &of, &proof);
            clock.revision += 1;
            clock.chain = next_link(&self.seal, &clock, (kind, &of, &proof));
            let revision = clock.revision.cast_signed();
            let note: [Parameter<'_>; 6] = [
                (&revision, Type::INT8),
                (&asked, Type::BYTEA),
                (&kind, Type::TEXT),
                (&of, Type::TEXT),
                (&proof, Type::BYTEA),
                (&clock.chain, Type::BYTEA),
            ];
            tokio::try_join!(
                put(client, &written, &proof),
                query(client, sql::NOTE, &note)
            )?;
            records.extend(written.record);
        }
        let sealed = sum.seal(&self.seal, &clock)?;
        let set: [Parameter<'_>; 2] = [(&clock.chain, Type::BYTEA), (&sealed, Type::BYTEA)];
        query(client, sql::SET_CLOCK, &set).await?;
        if clock.revision / FORGOTTEN_EVERY != (clock.revision - all.len() as u64) / FORGOTTEN_EVERY
        {
            let long_ago = clock.revision.saturating_sub(REMEMBERED).cast_signed();
            query(client, sql::FORGET, &[(&long_ago, Type::INT8)]).await?;
        }
        if self.has_notices {
            query(client, sql::NOTIFY, &[]).await?;
        }
        Ok((clock.revision, records))
    }

    fn written(
        &self,
        decision: &Decision,
        before: &tokio_postgres::Row,
    ) -> Result<Written, StateError> {
        let decision = match decision {
            Decision::Session(decision) => SessionDecision::clone(decision),
            Decision::Put { kind, id, text } => {
                return Ok(Written {
                    row: Row {
                        kind: (*kind).to_owned(),
                        id: id.clone(),
                        version: 1,
                        text: text.clone(),
                        sealed: Vec::new(),
                        proof: Vec::new(),
                    },
                    made: 0,
                    is_live: true,
                    is_anew: false,
                    record: None,
                });
            }
        };
        // A record that is replaced need not be readable.
        let known = match &decision {
            SessionDecision::Replace(_) => None,
            _ => {
                let id = decision.session()?;
                self.history.check((SESSION, id.as_str()), before)?;
                latest(before)?.map(|row| self.seal.read(row)).transpose()?
            }
        };
        let is_anew = matches!(
            decision,
            SessionDecision::Create(_) | SessionDecision::Replace(_)
        );
        let record = decision.apply(known)?;
        Ok(Written {
            is_anew,
            made: i64::try_from(record.made).unwrap_or(i64::MAX),
            is_live: record.ended.is_none() || record.was_idle,
            row: Row::of(record.clone())?,
            record: Some(record),
        })
    }

    /// Reads every row in one view, and compares them with the sealed sum of the clock.
    ///
    /// # Errors
    /// [`StateError::Changed`] if one was changed, moved, removed, put back or added.
    pub async fn verify(&self) -> Result<usize, StateError> {
        let client = self
            .connector
            .connect("BEGIN ISOLATION LEVEL REPEATABLE READ")
            .await?;
        let clock = query(&client, sql::CLOCK, &[]).await?;
        let clock = Clock::read(clock.first().ok_or(StateError::Changed)?)?;
        let mut left = clock.sum(&self.seal)?;
        self.history.reads_all();
        let mut all = HashMap::new();
        let (mut kind, mut id, mut count) = (String::new(), String::new(), 0);
        loop {
            let page: [Parameter<'_>; 3] =
                [(&kind, Type::TEXT), (&id, Type::TEXT), (&PAGE, Type::INT8)];
            let rows = query(&client, sql::PROOFS, &page).await?;
            for row in &rows {
                let row = row_of(row)?;
                self.seal.check(&row)?;
                left.toggle(&self.seal, &row.kind, &row.id, &row.proof);
                if all.len() <= MOST_PROOFS {
                    all.insert(key(&row.kind, &row.id), row.proof);
                }
                (kind, id) = (row.kind, row.id);
                count += 1;
            }
            if rows.is_empty() {
                break;
            }
            tokio::task::yield_now().await;
        }
        if left.is_nothing() {
            self.history.read_all(all);
            Ok(count)
        } else {
            Err(StateError::Changed)
        }
    }
}

impl Decision {
    fn place(&self) -> Result<(&'static str, String), StateError> {
        Ok(match self {
            Self::Session(decision) => (SESSION, decision.session()?.to_string()),
            Self::Put { kind, id, .. } => (*kind, id.clone()),
        })
    }
}

async fn put(client: &Client, written: &Written, proof: &Vec<u8>) -> Result<(), StateError> {
    let Written { row, .. } = written;
    let version = row.version.cast_signed();
    let all: [Parameter<'_>; 8] = [
        (&row.kind, Type::TEXT),
        (&row.id, Type::TEXT),
        (&version, Type::INT4),
        (&row.text, Type::TEXT),
        (&row.sealed, Type::BYTEA),
        (proof, Type::BYTEA),
        (&written.made, Type::INT8),
        (&written.is_live, Type::BOOL),
    ];
    query(client, sql::PUT, &all).await.map(drop)
}

/// How often decisions of long ago are dropped.
const FORGOTTEN_EVERY: u64 = 64;
/// How many rows are read at once.
const PAGE: i64 = 2_000;
/// How long a decision is asked for again and again.
const DECIDED_WITHIN: Duration = Duration::from_secs(4);
const AGAIN_AFTER: Duration = Duration::from_millis(50);
