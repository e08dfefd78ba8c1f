//! Cedar: loads policies, judges requests and credential uses against them, and explains the
//! verdicts.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod applicable;
mod content;
mod context;
mod decision_cache;
mod decision_key;
pub mod decisions;
mod explain;
mod fact;
mod fact_test;
mod fault;
mod gather;
pub mod generate;
mod generation;
mod index;
mod judged;
mod judges;
mod lint;
mod literal;
mod load;
mod multimap;
mod operators;
mod path;
mod possible;
mod question;
mod reads;
mod rule;
mod rule_set;
mod schema;
mod source;
mod split;
mod stages;
mod value;
mod verdict;
mod widened;

pub use applicable::KnownRules;
pub use content::{ContentFact, Declared, FactName, ProtocolEndpoint};
pub use explain::Explanation;
pub use gather::{ContentBudget, GatherFailure, Gathered};
pub use generation::{Generation, HostScope, Policies};
pub use judged::JudgedRequest;
pub use judges::{JudgeInput, Objection, Ruling};
pub use operators::{Operation, Operator, Operators};
pub use possible::Requester;
pub use question::{Facts, OwnedFacts, Principal};

pub use schema::schema_text;
pub use source::{GRANTED, Problem, Problems, Settings, Source};
pub use stages::Allowed;
pub use stages::{Authorized, Decision, Denied, Grant, Objected, RefusedClient};
pub use verdict::{Ask, BudgetUse, Obligations, Verdict};
