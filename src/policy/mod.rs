//! Cedar: loads policies, judges requests and loans against them, and explains what was decided.

mod attribute;
mod context;
pub mod decisions;
mod explain;
mod facts;
mod generation;
mod index;
mod judged;
mod lint;
mod literal;
mod load;
mod memo;
pub mod quick;
mod readings;
mod rule;
mod schema;
mod shelf;
mod slice;
mod source;
mod stages;
mod verdict;

pub use explain::Explanation;
pub use facts::{Facts, Fault};
pub use generation::{Generation, HostScope, Policies};
pub use judged::JudgedRequest;
pub use schema::{Action, SCHEMA};
pub use source::{Lint, Problem, Problems, Settings, Source};
pub use stages::{Authorized, Decision, Denied, Grant};
pub use verdict::{Outcome, Verdict};
