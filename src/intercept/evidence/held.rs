//! What all evidence that was taken has in common.

use std::fmt;

/// Evidence that may end while a connection is open.
pub trait Held: fmt::Debug + Send + Sync {
    /// Whether it is still there.
    fn holds(&self) -> bool;
}
