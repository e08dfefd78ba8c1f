//! A row of the state, and the proof that it is as a gateway wrote it, in its store and place.

use std::sync::Arc;

use super::error::StateError;
use super::record::SessionRecord;
use super::seal::SealingKey;

/// A row: what it is about, its text, and its sealed part.
pub(super) struct Row {
    pub(super) kind: String,
    pub(super) id: String,
    pub(super) version: u32,
    pub(super) text: String,
    pub(super) sealed: Vec<u8>,
    pub(super) proof: Vec<u8>,
}

/// Proves that a row is as this gateway wrote it, in this store and under this id.
#[derive(Clone)]
pub(super) struct RowSeal {
    pub(super) key: Arc<SealingKey>,
    pub(super) store: [u8; 16],
}

impl Row {
    /// Returns the row of a session, without a proof.
    pub(super) fn of(record: SessionRecord) -> Result<Self, StateError> {
        Ok(Self {
            kind: SESSION.to_owned(),
            text: record.text()?,
            id: record.id,
            version: record.version,
            sealed: record.sealed,
            proof: Vec::new(),
        })
    }
}

impl RowSeal {
    pub(super) fn make(&self, row: &Row) -> Result<Vec<u8>, StateError> {
        let made = self.key.seal(&self.place(row), b"");
        made.map_err(|_| NO_RANDOM_BYTES)
    }

    /// Checks that a row is as it was written.
    pub(super) fn check(&self, row: &Row) -> Result<(), StateError> {
        let opened = self.key.open(&self.place(row), &row.proof);
        opened.map(drop).map_err(|_| StateError::Changed)
    }

    pub(super) fn read(&self, row: Row) -> Result<SessionRecord, StateError> {
        self.check(&row)?;
        let record = SessionRecord::read(row.version, &row.text, row.sealed)?;
        let is_own = record.version == row.version;
        is_own.then_some(record).ok_or(StateError::Changed)
    }

    /// The place that the proof binds: the whole row, so that no part can change by itself.
    fn place<'a>(&'a self, row: &'a Row) -> [&'a [u8]; 5] {
        let (kind, id, text) = (row.kind.as_bytes(), row.id.as_bytes(), row.text.as_bytes());
        [kind, &self.store, id, text, &row.sealed]
    }
}

pub(super) const SESSION: &str = "session";
pub(super) const NO_RANDOM_BYTES: StateError =
    StateError::Refused("the system gives no random bytes");
