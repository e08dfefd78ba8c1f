//! A binding with where its secret is kept.

use super::store::SecretRef;
use crate::session::Binding;

/// A credential of the configuration, or a part of one that signs: what it may be lent for, and
/// where its secret is kept.
#[derive(Debug, Clone)]
pub struct Stored {
    /// What it may be lent for.
    pub binding: Binding,
    /// Where its secret is kept.
    pub from: SecretRef,
}

/// Each binding with a variable of its credential's name.
#[cfg(test)]
pub(crate) fn stored(bindings: Vec<Binding>) -> Vec<Stored> {
    let stored = |binding: Binding| Stored {
        from: SecretRef::env(binding.credential.as_str()),
        binding,
    };
    bindings.into_iter().map(stored).collect()
}
