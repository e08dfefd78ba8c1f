//! The state that outlives the gateway's process: sessions as records, the decisions about them,
//! what was taken of budgets, and the revoked credentials.
//!
//! A store sees no secret, no phantom and no private key. Those that a session must keep are
//! sealed, and only the gateway has the key.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod budget_rows;
mod decision;
mod error;
mod login_rows;
mod postgres;
mod record;
mod revoked;
mod row;
mod seal;
mod sqlite;
mod store;

pub use budget_rows::{BudgetCounts, BudgetId, BudgetRow, BudgetWindow};
pub use decision::SessionDecision;
pub use error::StateError;
pub use login_rows::{GrantId, LoginRow, LoginRows, RowName};
pub use postgres::{
    Beat, Password, PostgresServer, PostgresSettings, PostgresState, PostgresUrl, Replica,
    ReplicaRow,
};
pub use record::{KeptCertificate, KeptLogin, KeptSecrets, KeptTemporary, SessionRecord, unix};
pub use revoked::{FingerprintKey, KnownOfSecret, RevokedFile, RevokedSecret, SharedRevocation};
pub use seal::{KeyMark, SealBroken, SealingKey};
pub use sqlite::{SqliteState, StateFile};
pub use store::{Revision, StateFuture, StateStore, Subject};

#[cfg(test)]
mod suite_tests;
#[cfg(test)]
mod tests;
