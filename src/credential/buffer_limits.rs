//! Limits on held content and on decoder memory.

use std::sync::Arc;

use gateway_body::{HoldBudget, Limit};
use gateway_policy::ContentBudget;

/// The limits on content that is held for signatures which cover it without stating its hash, and
/// on the memory of decoders.
#[derive(Debug, Clone)]
pub struct BufferLimits {
    /// The limit for one request.
    pub limit: Limit,
    /// The budget for all requests together.
    pub budget: Arc<HoldBudget>,
    /// The budget for all decoders of responses together.
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
