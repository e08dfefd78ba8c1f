//! The property that all accepted evidence shares.

use std::fmt;

/// Evidence that may end while a connection is open.
pub trait LiveEvidence: fmt::Debug + Send + Sync {
    /// Whether the evidence still holds.
    fn holds(&self) -> bool;
}
