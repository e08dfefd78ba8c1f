//! A binding, and where its secret is stored.

use gateway_session::Binding;

use super::store::SecretRef;

/// A configured credential, or one part of a signing credential: what it may be lent for, and where
/// its secret is stored.
#[derive(Debug, Clone)]
pub struct ConfiguredCredential {
    /// What it may be lent for.
    pub binding: Binding,
    /// Where its secret is stored.
    pub from: SecretRef,
}

/// Stores each binding's secret in the variable named like its credential.
#[cfg(test)]
pub(crate) fn stored(bindings: Vec<Binding>) -> Vec<ConfiguredCredential> {
    let stored = |binding: Binding| ConfiguredCredential {
        from: SecretRef::env(binding.credential.as_str()),
        binding,
    };
    bindings.into_iter().map(stored).collect()
}
