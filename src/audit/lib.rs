//! Writes one record for each exchange: JSON lines, hash-chained, in the file before the answer
//! leaves.
//!
//! A [`Trail`] gathers what is known of one exchange and hands it to the [`Log`], which alone knows
//! the chain. [`verify()`] and [`find()`] read what was written, offline. The keys, the promise
//! about durability and an independent verifier are in `docs/audit.md`.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod builder;
mod chain;
mod conceal;
mod encode;
mod error;
mod file;
mod find;
mod lasting;
mod log;
mod memory;
mod record;
mod scan;
mod share;
mod shared;
mod sink;
mod trail;
mod verify;
mod words;
mod writer;

pub use chain::{Head, HeadMalformed, LinkBroken, MAX_LINE_BYTES};
pub use conceal::Conceal;
pub use error::Error;
pub use file::files;
pub use find::{Found, find};
pub use log::{Event, Log, Settings};
pub use memory::Memory;
pub use record::{Lent, Record, Word};
pub use share::{Account, Allowance};
pub use shared::Sync;
pub use trail::Trail;
pub use verify::{Expected, Fault, Problem, Recovery, Report, verify};
pub use words::{Decision, End, Length, Outcome, Phase};
