//! What others decided, proven to follow what was seen; and what a store that went back is told.

use std::sync::Arc;

use gateway_names::SessionId;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::deciding::Decision;
use super::history::{Clock, next_link};
use super::rows::query;
use super::server::PostgresState;
use super::sql;
use crate::decision::SessionDecision;
use crate::error::StateError;
use crate::record::SessionRecord;
use crate::row::SESSION;
use crate::store::{REMEMBERED, Revision, Subject};

impl PostgresState {
    /// Returns the revision now, from which on decisions are followed.
    pub(super) async fn follow_anew(&self) -> Result<Revision, StateError> {
        let read = |client: Arc<Client>| async move { query(&client, sql::CLOCK, &[]).await };
        let rows = self.pulse.run(read).await?;
        let clock = Clock::read(rows.first().ok_or(StateError::Changed)?)?;
        clock.sum(&self.seal)?;
        let revision = clock.revision;
        let mut known = self.history.0.lock();
        // A store that went back is told again first.
        let is_older = |(seen, _): &(Revision, Vec<u8>)| *seen > revision;
        if known.owes_telling || known.seen.as_ref().is_some_and(is_older) {
            return Err(StateError::WentBack);
        }
        known.seen = Some((revision, clock.chain));
        known.missed();
        drop(known);
        self.followed_anew.notify_one();
        Ok(revision)
    }

    /// Completes when decisions were missed, or were followed for the first time.
    pub async fn is_followed_anew(&self) {
        self.followed_anew.notified().await;
    }

    /// Returns what was decided after `seen`, and proves that nothing before it is missing.
    pub(super) async fn news(
        &self,
        seen: Revision,
    ) -> Result<Vec<(Revision, Subject)>, StateError> {
        let (after, most) = (seen.cast_signed(), REMEMBERED.cast_signed());
        let read = |client: Arc<Client>| async move {
            let with = [(&after as _, Type::INT8), (&most as _, Type::INT8)];
            let clock = query(&client, sql::CLOCK, &[]);
            let base = query(&client, sql::LINK, &with[..1]);
            let news = query(&client, sql::SINCE, &with);
            tokio::try_join!(clock, base, news)
        };
        let (clock, base, rows) = self.pulse.run(read).await?;
        let clock = Clock::read(clock.first().ok_or(StateError::Changed)?)?;
        clock.sum(&self.seal)?;
        let (known, owes_telling) = {
            let known = self.history.0.lock();
            (known.seen.clone(), known.owes_telling)
        };
        if owes_telling {
            return Err(StateError::WentBack);
        }
        let known = known
            .filter(|(known, _)| *known == seen)
            .map(|(_, chain)| chain);
        let lacks = clock.revision < seen;
        let chain = match known {
            Some(_) if lacks => return Err(StateError::WentBack),
            Some(chain) if clock.revision == seen && clock.chain != chain => {
                return Err(StateError::WentBack);
            }
            Some(chain) => chain,
            None if seen == 0 => Vec::new(),
            None => base.first().ok_or(StateError::Forgotten)?.get(0),
        };
        let mut at = Clock {
            revision: seen,
            chain,
            sealed: Vec::new(),
        };
        let mut news = Vec::with_capacity(rows.len());
        for (index, row) in rows.iter().enumerate() {
            let revision = row.get::<_, i64>(0).cast_unsigned();
            let (kind, id): (&str, &str) = (row.get(1), row.get(2));
            if revision != seen + 1 + index as u64 {
                return Err(StateError::Forgotten);
            }
            at.revision = revision;
            let next = next_link(&self.seal, &at, (kind, id, row.get(3)));
            if next != row.get::<_, &[u8]>(4) {
                // The first does not follow what was seen: others were decided in its place.
                let why = [StateError::Changed, StateError::WentBack];
                return Err(why
                    .into_iter()
                    .nth(usize::from(index == 0))
                    .unwrap_or(StateError::Changed));
            }
            at.chain = next;
            let subject = if kind == SESSION {
                let id = SessionId::new(id).map_err(|_| StateError::Changed)?;
                Subject::Session(id)
            } else {
                Subject::Revocations
            };
            news.push((revision, subject));
        }
        if at.revision < clock.revision {
            // More than are kept one by one, or some were removed.
            return Err(StateError::Forgotten);
        }
        let mut known = self.history.0.lock();
        for row in &rows {
            known.decided(row.get(1), row.get(2), row.get(3));
        }
        known.seen = Some((at.revision, at.chain));
        drop(known);
        Ok(news)
    }

    /// Tells a store that went back what only grows, as this process knows it. From then on its
    /// decisions are followed anew.
    ///
    /// # Errors
    /// [`StateError`] if it cannot be told.
    pub async fn tell_again(&self) -> Result<(), StateError> {
        let (sessions, revoked, tokens, budgets) = {
            let mut known = self.history.0.lock();
            // What was decided since is not what was seen.
            (known.seen, known.owes_telling) = (None, true);
            known.missed();
            let sessions: Vec<SessionRecord> = known.sessions.values().cloned().collect();
            let (revoked, tokens) = (known.revoked.clone(), known.tokens.clone());
            (sessions, revoked, tokens, known.budgets.clone())
        };
        let of = |kind: &'static str, id: &str, text: String| Decision::Put {
            kind,
            id: id.to_owned(),
            text,
        };
        let (now, old) = self.revocations().await?;
        for one in revoked {
            let is_known = now.iter().any(|now| {
                let is_it = now.secret.label == one.secret.label;
                // An older one may say that it was taken back.
                is_it && (now.restored.is_none() || one.restored.is_some())
            });
            if !is_known {
                let text = one.text()?;
                let id = one.secret.label.as_str();
                self.decide_all(vec![of("secret", id, text)]).await?;
            }
        }
        for (id, since) in tokens {
            if !old.iter().any(|(old, _)| *old == id) {
                self.decide_all(vec![of("token", &id, since.to_string())])
                    .await?;
            }
        }
        for record in sessions {
            self.tell_session(record).await?;
        }
        for (id, (window, counts)) in budgets {
            self.budgets.raise(id, window, counts).await?;
        }
        self.history.0.lock().owes_telling = false;
        self.follow_anew().await.map(drop)
    }

    async fn tell_session(&self, record: SessionRecord) -> Result<(), StateError> {
        let id = record.session()?;
        let Some(now) = self.kept(&id).await? else {
            let anew = Decision::Session(Box::new(SessionDecision::Replace(record)));
            return self.decide_all(vec![anew]).await.map(drop);
        };
        // Another one has its name by now.
        if now.before > record.before {
            return Ok(());
        }
        let mut all = Vec::new();
        if record.paused && !now.paused && now.ended.is_none() {
            all.push(SessionDecision::Pause(id.clone()));
        }
        if !record.labels.is_subset(&now.labels) && now.ended.is_none() {
            all.push(SessionDecision::Label {
                session: id.clone(),
                labels: record.labels.iter().cloned().collect(),
            });
        }
        if let Some(at) = record.ended.filter(|_| now.ended.is_none()) {
            all.push(SessionDecision::End {
                session: id,
                at,
                was_idle: record.was_idle,
                for_good: record.for_good,
            });
        }
        if all.is_empty() {
            return Ok(());
        }
        let all = all.into_iter().map(|one| Decision::Session(Box::new(one)));
        self.decide_all(all.collect()).await.map(drop)
    }
}
