//! A verdict: what was decided, by which policies, in which generation.

use std::collections::BTreeSet;
use std::sync::Arc;

use gateway_names::{PolicyId, ReasonCode};

use super::fault::FactFault;

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
    /// What a person must lift before the request may be sent, if that is asked.
    pub asks: Option<Arc<[Ask]>>,
}

/// A forbid that a person may lift for one request: `@ask("…")`. Another question is another ask.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ask {
    /// The policy.
    pub policy: PolicyId,
    /// Its question.
    pub question: Arc<str>,
}

/// How a question was decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A permit applies, no forbid does, and no policy failed to evaluate.
    Allowed,
    /// It is allowed but for forbids that a person may lift.
    Asked,
    /// A forbid applies.
    Forbidden,
    /// No permit applies.
    Unpermitted,
    /// A policy failed to evaluate. Cedar would skip it, and skipping a forbid would allow.
    PolicyError,
    /// The request cannot be represented for a policy that reads it.
    Unjudged(FactFault),
}

impl Verdict {
    /// Whether the request is allowed as it is.
    pub fn allowed(&self) -> bool {
        self.outcome == Outcome::Allowed
    }

    /// Whether the request is allowed, or would be if a person lifts what asks for one.
    pub(super) fn may_be_lifted(&self) -> bool {
        matches!(self.outcome, Outcome::Allowed | Outcome::Asked)
    }

    /// Returns the policies that decided: of what is asked, those that ask.
    pub fn deciding(&self) -> Arc<[PolicyId]> {
        match &self.asks {
            Some(asks) => asks.iter().map(|ask| ask.policy.clone()).collect(),
            None => self.policies.clone(),
        }
    }

    /// Adds what another verdict on a part of the same request asks for.
    pub(super) fn join(&mut self, other: Self) {
        if let Some(more) = other.asks {
            let own = self.asks.iter().flat_map(|own| own.iter());
            let all: BTreeSet<Ask> = own.chain(more.iter()).cloned().collect();
            self.outcome = Outcome::Asked;
            self.asks = Some(all.into_iter().collect());
        }
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
            Self::Asked => Some(ReasonCode::PolicyAsks),
            Self::Forbidden => Some(ReasonCode::PolicyForbids),
            Self::Unpermitted => Some(ReasonCode::PolicyDefaultDeny),
            Self::PolicyError => Some(ReasonCode::PolicyError),
            Self::Unjudged(_) => Some(ReasonCode::PolicyUnjudged),
        }
    }
}
