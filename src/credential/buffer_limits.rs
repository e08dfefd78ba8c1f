//! Limits on held content and on decoder memory.

use std::sync::Arc;

use gateway_body::{HoldBudget, Limit};
use gateway_policy::ContentBudget;

/// How much content is held for signatures that cover it without stating its hash, and how much
/// memory decoders use.
#[derive(Debug, Clone)]
pub struct BufferLimits {
    /// The limit for one request.
    pub limit: Limit,
    /// The budget for all requests together.
    pub budget: Arc<HoldBudget>,
    /// The budget for all decoders of answers together.
    pub decoding: Arc<HoldBudget>,
}

impl BufferLimits {
    /// The default limit for one request.
    pub const REQUEST: Limit = Limit::mib(16);
    /// The default budget for all requests together.
    pub const REQUESTS: Limit = Limit::mib(64);
    /// The default budget for all decoders together.
    pub const DECODING: Limit = Limit::mib(128);
}

impl Default for BufferLimits {
    fn default() -> Self {
        Self {
            limit: Self::REQUEST,
            budget: HoldBudget::new(Self::REQUESTS),
            decoding: HoldBudget::new(Self::DECODING),
        }
    }
}

impl BufferLimits {
    /// The same limits, for policies that read content.
    pub fn content_budget(&self) -> ContentBudget<'_> {
        ContentBudget {
            limit: self.limit,
            held: &self.budget,
            decoding: &self.decoding,
        }
    }
}
