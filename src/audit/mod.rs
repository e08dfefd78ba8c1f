//! Writes one record for each exchange: JSON lines, hash-chained, in the file before the answer
//! leaves.
//!
//! A [`Trail`] gathers what is known of one exchange and hands it to the [`Log`], which alone knows
//! the chain. [`verify()`] and [`find`] read what was written, offline. The keys, the promise about
//! durability and an independent verifier are in `docs/audit.md`.

mod chain;
mod draft;
mod encode;
mod error;
mod file;
mod log;
mod memory;
mod record;
mod scan;
mod share;
mod sink;
mod sync;
mod trail;
mod verify;
mod writer;

pub use chain::{Head, HeadMalformed, LinkBroken, MAX_LINE_BYTES};
pub use error::Error;
pub use file::files;
pub use log::{Event, Log, Settings, Sync};
pub use memory::Memory;
pub use record::{Found, Lent, Noted, Record, find};
pub use share::{Account, Allowance};
pub use trail::{Conceal, Decision, Dialled, End, Length, Outcome, Phase, Trail};
pub use verify::{Expected, Fault, Problem, Recovery, Report, verify};
