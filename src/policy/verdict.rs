//! A verdict: what was decided, by which policies, in which generation.

use std::collections::BTreeSet;
use std::sync::Arc;

use gateway_intercept::{PrefixId, TokenLimit};
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
    /// What must be met before the request may be sent, if anything.
    pub obligations: Option<Arc<Obligations>>,
}

/// What must be met before a request may be sent, in this order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Obligations {
    /// The labels that its session gets: those of the permits that allow it.
    pub labels: BTreeSet<Arc<str>>,
    /// The forbids that a budget lifts while it lasts.
    pub budgets: BTreeSet<BudgetUse>,
    /// What the token of its caller may use up, or be used for.
    pub token: Vec<(PrefixId, TokenLimit)>,
    /// The forbids that a person lifts.
    pub asks: Vec<Ask>,
}

/// A forbid that does not hold while a budget lasts: `@budget("NAME")`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BudgetUse {
    /// The policy.
    pub policy: PolicyId,
    /// The budget's name.
    pub budget: Arc<str>,
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
    /// It is allowed but for forbids that a person may lift, and perhaps budgets.
    Asked,
    /// It is allowed but for forbids that do not hold while a budget lasts.
    Budgeted,
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

    /// Whether the request is allowed, or would be if its obligations are met.
    pub(super) fn may_be_lifted(&self) -> bool {
        self.outcome.may_be_lifted()
    }

    /// Returns the policies that decided: those that are yet to be lifted, if there are any.
    pub fn deciding(&self) -> Arc<[PolicyId]> {
        match &self.obligations {
            Some(all) if !self.allowed() => all.lifted().cloned().collect(),
            _ => self.policies.clone(),
        }
    }

    /// Adds the obligations of another verdict on a part of the same request.
    pub(super) fn join(&mut self, other: Self) {
        let Some(more) = other.obligations else {
            return;
        };
        let all = Arc::make_mut(self.obligations.get_or_insert_default());
        all.labels.extend(more.labels.iter().cloned());
        all.budgets.extend(more.budgets.iter().cloned());
        all.asks.extend(more.asks.iter().cloned());
        all.asks.sort();
        all.asks.dedup();
        self.outcome = all.outcome();
    }
}

impl Obligations {
    /// Returns the forbids that they lift.
    fn lifted(&self) -> impl Iterator<Item = &PolicyId> {
        let budgets = self.budgets.iter().map(|one| &one.policy);
        budgets.chain(self.asks.iter().map(|ask| &ask.policy))
    }

    /// Whether these include all of the others.
    pub fn include(&self, others: &Self) -> bool {
        self.labels.is_superset(&others.labels)
            && self.budgets.is_superset(&others.budgets)
            && others.token.iter().all(|limit| self.token.contains(limit))
            && others.asks.iter().all(|ask| self.asks.contains(ask))
    }

    /// Whether what they allow is one request: a person allowed it, or a budget counts it.
    pub fn are_for_once(&self) -> bool {
        self.outcome() != Outcome::Allowed || !self.token.is_empty()
    }

    /// Returns how a request with these obligations is decided.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self { asks, .. } if !asks.is_empty() => Outcome::Asked,
            Self { budgets, .. } if !budgets.is_empty() => Outcome::Budgeted,
            _ => Outcome::Allowed,
        }
    }
}

impl Outcome {
    pub(super) fn may_be_lifted(self) -> bool {
        matches!(self, Self::Allowed | Self::Asked | Self::Budgeted)
    }

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
            Self::Budgeted => Some(ReasonCode::BudgetSpent),
            Self::Forbidden => Some(ReasonCode::PolicyForbids),
            Self::Unpermitted => Some(ReasonCode::PolicyDefaultDeny),
            Self::PolicyError => Some(ReasonCode::PolicyError),
            Self::Unjudged(_) => Some(ReasonCode::PolicyUnjudged),
        }
    }
}
