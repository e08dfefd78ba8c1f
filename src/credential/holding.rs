//! How much content may be held, and how much decoders may take.

use std::sync::Arc;

use crate::body::{HoldBudget, Limit};
use crate::policy::ContentBudget;

/// How much content is held for signatures that cover it and do not tell its hash, and how much
/// decoders take.
#[derive(Debug, Clone)]
pub struct Holding {
    /// Of one request.
    pub limit: Limit,
    /// Of all together.
    pub budget: Arc<HoldBudget>,
    /// What decoders of answers take, all together.
    pub decoding: Arc<HoldBudget>,
}

impl Holding {
    /// What holds of one request unless it is said otherwise.
    pub const REQUEST: Limit = Limit::mib(16);
    /// The same of all requests together.
    pub const REQUESTS: Limit = Limit::mib(64);
    /// The same of all decoders together.
    pub const DECODING: Limit = Limit::mib(128);
}

impl Default for Holding {
    fn default() -> Self {
        Self {
            limit: Self::REQUEST,
            budget: HoldBudget::new(Self::REQUESTS),
            decoding: HoldBudget::new(Self::DECODING),
        }
    }
}

impl Holding {
    /// The same for policies that read content.
    pub(crate) fn content_budget(&self) -> ContentBudget<'_> {
        ContentBudget {
            limit: self.limit,
            held: &self.budget,
            decoding: &self.decoding,
        }
    }
}
