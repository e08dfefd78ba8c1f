//! A verdict: what was decided, by which policies, in which generation.

use std::sync::Arc;

use gateway_names::{PolicyId, ReasonCode};

use super::fault::Fault;

/// The answer to one question.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a verdict that nobody looks at allows everything"]
pub struct Verdict {
    /// What was decided, and why.
    pub outcome: Outcome,
    /// The ids of the policies that decided: the permits that allow, the forbids that forbid, or
    /// the policies that failed. Empty for a default denial.
    pub policies: Arc<[PolicyId]>,
    /// The generation of policies that decided.
    pub generation: u64,
}

/// How a question was decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A permit applies, no forbid does, and no policy failed to evaluate.
    Allowed,
    /// A forbid applies.
    Forbidden,
    /// No permit applies.
    Unpermitted,
    /// A policy failed to evaluate. Cedar would skip it, and skipping a forbid would allow.
    PolicyError,
    /// The request cannot be represented for a policy that reads it.
    Unjudged(Fault),
}

impl Verdict {
    /// Whether the request is allowed.
    pub fn allowed(&self) -> bool {
        self.outcome == Outcome::Allowed
    }
}

impl Outcome {
    /// Returns the outcome as one word for refusals and audit.
    pub fn word(self) -> &'static str {
        self.reason().map_or("allowed", ReasonCode::as_str)
    }

    /// Returns the reason code of a denial.
    #[must_use]
    pub fn reason(self) -> Option<ReasonCode> {
        match self {
            Self::Allowed => None,
            Self::Forbidden => Some(ReasonCode::PolicyForbids),
            Self::Unpermitted => Some(ReasonCode::PolicyDefaultDeny),
            Self::PolicyError => Some(ReasonCode::PolicyError),
            Self::Unjudged(_) => Some(ReasonCode::PolicyUnjudged),
        }
    }
}
