//! What a store answered must stay so: the chain of decisions, the sum of all rows, and what only
//! grows. A store that lacks some of it is told again.

use std::collections::{HashMap, HashSet};

use gateway_names::SessionId;
use parking_lot::Mutex;

use crate::budget_rows::{BudgetCounts, BudgetId, BudgetWindow};
use crate::error::StateError;
use crate::record::SessionRecord;
use crate::revoked::SharedRevocation;
use crate::row::RowSeal;
use crate::seal::SealingKey;
use crate::store::Revision;

/// The row of the clock.
pub(super) struct Clock {
    pub(super) revision: Revision,
    /// The code of all decisions until here.
    pub(super) chain: Vec<u8>,
    pub(super) sealed: Vec<u8>,
}

/// The sum of the codes of all rows. It is stored sealed, so that nobody can solve for it.
pub(super) struct Sum([u8; 32]);

/// What this process knows of the store.
#[derive(Default)]
pub(super) struct History(pub(super) Mutex<Known>);

#[derive(Default)]
pub(super) struct Known {
    /// The last decision that was seen, and the chain there.
    pub(super) seen: Option<(Revision, Vec<u8>)>,
    /// Whether the store went back, and was not told again what is known here.
    pub(super) owes_telling: bool,
    /// Sessions that were ended, paused or labelled, as they were read last.
    pub(super) sessions: HashMap<SessionId, SessionRecord>,
    pub(super) revoked: Vec<SharedRevocation>,
    pub(super) tokens: Vec<(String, u64)>,
    pub(super) budgets: HashMap<BudgetId, (BudgetWindow, BudgetCounts)>,
    proofs: Proofs,
}

/// The proof of each row, as the last decision that was seen wrote it.
#[derive(Default)]
struct Proofs {
    all: HashMap<String, Vec<u8>>,
    /// Whether no row is missing.
    is_whole: bool,
    /// What came while all rows were read.
    meanwhile: Option<Vec<(String, Vec<u8>)>>,
}

impl Clock {
    pub(super) fn read(row: &tokio_postgres::Row) -> Result<Self, StateError> {
        Ok(Self {
            revision: Revision::try_from(row.get::<_, i64>(0)).map_err(|_| StateError::Changed)?,
            chain: row.get(1),
            sealed: row.get(2),
        })
    }

    /// Opens the sum, which proves that a gateway wrote this clock.
    pub(super) fn sum(&self, seal: &RowSeal) -> Result<Sum, StateError> {
        let revision = self.revision.to_be_bytes();
        let place = self.place(&seal.store, &revision);
        let opened = seal.key.open(&place, &self.sealed);
        let opened = opened.map_err(|_| StateError::Changed)?;
        let bytes = <[u8; 32]>::try_from(&opened[..]).map_err(|_| StateError::Changed)?;
        Ok(Sum(bytes))
    }

    fn place<'a>(&'a self, store: &'a [u8; 16], revision: &'a [u8; 8]) -> [&'a [u8]; 4] {
        [b"sum of rows", store, revision, &self.chain]
    }
}

impl Sum {
    /// Adds a row, or takes it out.
    pub(super) fn toggle(&mut self, seal: &RowSeal, kind: &str, id: &str, proof: &[u8]) {
        let parts = [b"row", kind.as_bytes(), id.as_bytes(), proof];
        let code = seal.key.mac(&parts);
        self.0
            .iter_mut()
            .zip(code)
            .for_each(|(sum, code)| *sum ^= code);
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.0 == [0; 32]
    }

    pub(super) fn seal(&self, seal: &RowSeal, clock: &Clock) -> Result<Vec<u8>, StateError> {
        let revision = clock.revision.to_be_bytes();
        let place = clock.place(&seal.store, &revision);
        let sealed = seal.key.seal(&place, &self.0);
        sealed.map_err(|_| crate::row::NO_RANDOM_BYTES)
    }
}

/// The sum of a store without a row.
pub(super) fn first_sum(key: &SealingKey, store: &[u8; 16]) -> Result<Vec<u8>, StateError> {
    let clock = Clock {
        revision: 0,
        chain: Vec::new(),
        sealed: Vec::new(),
    };
    let sealed = key.seal(&clock.place(store, &[0; 8]), &[0; 32]);
    sealed.map_err(|_| crate::row::NO_RANDOM_BYTES)
}

/// The chain after a decision: `clock` has its revision, and the chain before it.
pub(super) fn next_link(
    seal: &RowSeal,
    clock: &Clock,
    (kind, id, proof): (&str, &str, &[u8]),
) -> Vec<u8> {
    let revision = clock.revision.to_be_bytes();
    let (kind, id) = (kind.as_bytes(), id.as_bytes());
    let parts = [
        &b"decision"[..],
        &seal.store,
        &clock.chain,
        &revision,
        kind,
        id,
        proof,
    ];
    seal.key.mac(&parts).to_vec()
}

impl History {
    /// Remembers what must not be undone.
    pub(super) fn remember(&self, record: &SessionRecord) {
        let grew = record.ended.is_some() || record.paused || !record.labels.is_empty();
        let Ok(id) = record.session() else { return };
        let mut known = self.0.lock();
        if !grew {
            known.sessions.remove(&id);
        } else if known.sessions.len() < MOST_REMEMBERED || known.sessions.contains_key(&id) {
            known.sessions.insert(id, record.clone());
        }
    }

    /// Begins to read all rows.
    pub(super) fn reads_all(&self) {
        self.0.lock().proofs.meanwhile = Some(Vec::new());
    }

    /// Keeps the proofs of all rows, unless decisions were missed while they were read.
    pub(super) fn read_all(&self, all: HashMap<String, Vec<u8>>) {
        let mut known = self.0.lock();
        let Some(meanwhile) = known.proofs.meanwhile.take() else {
            return;
        };
        known.proofs.is_whole = all.len() <= MOST_PROOFS;
        known.proofs.all = all;
        known.proofs.all.extend(meanwhile);
    }

    /// Checks a row against what was decided about it, as far as that was seen.
    pub(super) fn check(
        &self,
        (kind, id): (&str, &str),
        row: &tokio_postgres::Row,
    ) -> Result<(), StateError> {
        let known = self.0.lock();
        let seen = known.seen.as_ref().map_or(0, |(seen, _)| *seen);
        let decided = row.get::<_, Option<i64>>(7).map_or(0, i64::cast_unsigned);
        if !known.proofs.is_whole || decided > seen {
            return Ok(());
        }
        let proof: Option<&[u8]> = row.get(5);
        let is_it = known.proofs.all.get(&key(kind, id)).map(Vec::as_slice) == proof;
        is_it.then_some(()).ok_or(StateError::Changed)
    }

    /// Checks that no row of these kinds is missing.
    pub(super) fn check_all<'r>(
        &self,
        kinds: [&str; 2],
        rows: impl Iterator<Item = (&'r str, &'r str)>,
    ) -> Result<(), StateError> {
        let there: HashSet<String> = rows.map(|(kind, id)| key(kind, id)).collect();
        let known = self.0.lock();
        let mut all = known.proofs.all.keys();
        let is_one = |one: &String| kinds.iter().any(|kind| one.starts_with(&key(kind, "")));
        let is_missing = all.any(|one| is_one(one) && !there.contains(one));
        (!is_missing).then_some(()).ok_or(StateError::Changed)
    }

    pub(super) fn counted(&self, id: BudgetId, window: BudgetWindow, counts: BudgetCounts) {
        let mut known = self.0.lock();
        if known.budgets.len() < MOST_REMEMBERED || known.budgets.contains_key(&id) {
            known.budgets.insert(id, (window, counts));
        }
    }

    pub(super) fn revoked(&self, secrets: &[SharedRevocation], tokens: &[(String, u64)]) {
        let mut known = self.0.lock();
        known.revoked = secrets.to_vec();
        known.tokens = tokens.to_vec();
    }
}

impl Known {
    /// Notes a decision that was seen.
    pub(super) fn decided(&mut self, kind: &str, id: &str, proof: &[u8]) {
        let one = (key(kind, id), proof.to_vec());
        if let Some(all) = &mut self.proofs.meanwhile {
            all.push(one.clone());
        }
        self.proofs.all.insert(one.0, one.1);
        self.proofs.is_whole &= self.proofs.all.len() <= MOST_PROOFS;
    }

    /// Forgets all proofs, as decisions were missed.
    pub(super) fn missed(&mut self) {
        self.proofs = Proofs::default();
    }
}

pub(super) fn key(kind: &str, id: &str) -> String {
    format!("{kind} {id}")
}

/// How many rows are compared one by one between two comparisons of all.
pub(super) const MOST_PROOFS: usize = 200_000;
/// How many sessions and budgets a process can tell a store that went back.
const MOST_REMEMBERED: usize = 20_000;
