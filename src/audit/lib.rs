//! Writes one record per exchange as hash-chained JSON lines, before the answer leaves.
//!
//! A [`Trail`] gathers what is known about one exchange and hands it to the [`Log`], which alone
//! knows the chain. [`verify()`] and [`find()`] read written logs offline. `docs/audit.md`
//! describes the keys, the durability guarantee and an independent verifier.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod act;
mod archive;
mod chain;
mod encode;
mod error;
mod file;
mod find;
mod log;
#[cfg(test)]
mod memory;
mod private;
mod read;
mod record;
mod redact;
mod refusals;
mod scan;
mod seen_credentials;
mod share;
mod shared;
mod sink;
mod sync_state;
mod texts;
mod trail;
mod verified;
mod verify;
mod words;
mod writer;

pub use act::{Act, Signature};
pub use archive::{PruneReport, Retention, StoredLog, is_live, prune, stored};
pub use chain::{ChainHead, ChainHeadMalformed, LinkBroken, MAX_LINE_BYTES};
pub use error::Error;
pub use file::files;
pub use find::{ExchangeEntry, chain_of, find};
pub use log::{Event, Log, RepeatedRefusals, Settings};
pub use read::{Follower, read};
pub use record::{Injection, PhaseTimes, Record, Text, Word};
pub use redact::Redact;
pub use refusals::{NextRefusal, RefusalStop, Refusals};
pub use seen_credentials::SeenCredentials;
pub use share::{Allowance, Usage};
pub use shared::Durability;
pub use texts::redacted_for;
pub use trail::Trail;
pub use verified::{LogUnverified, VerifiedRecord, verified, verified_chain};
pub use verify::{ExpectedHeads, LocatedFault, LogFault, Recovery, VerifyReport, verify};
pub use words::{AuditDecision, ExchangeEnd, Length, Outcome, Phase};
