//! Cedar: loads policies, judges requests and loans against them, and explains what was decided.

mod content;
mod context;
mod decision_cache;
pub mod decisions;
mod explain;
mod fact;
mod gather;
pub mod generate;
mod generation;
mod index;
mod judged;
mod lint;
mod literal;
mod load;
mod multimap;
mod path;
mod question;
mod reads;
mod rule;
mod rule_set;
mod schema;
mod source;
mod split;
mod stages;
mod verdict;

pub use content::{Clash, ContentFact, ContentFacts, Declared, FactName, FactNameMalformed};
pub use explain::Explanation;
pub use gather::{Gathered, Room};
pub use generation::{Generation, HostScope, Policies};
pub use judged::JudgedRequest;
pub(crate) use question::OwnedFacts;
pub use question::{Facts, Fault};
pub use schema::{Action, schema_text};
pub use source::{Lint, Problem, Problems, Settings, Source};
pub use stages::{Authorized, Decision, Denied, Grant};
pub use verdict::{Outcome, Verdict};
