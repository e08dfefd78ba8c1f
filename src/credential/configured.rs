//! A configured credential: its binding, and where its secret is stored.

use gateway_session::Binding;

use super::store::SecretRef;

/// A configured credential, or one part of a signing credential: its binding, and where its secret
/// is stored.
#[derive(Debug, Clone)]
pub struct ConfiguredCredential {
    /// The origins, places and limits of the credential.
    pub binding: Binding,
    /// Where its secret is stored.
    pub from: SecretRef,
}

/// Returns credentials whose secrets are in the variables named like them.
#[cfg(test)]
pub(crate) fn stored(bindings: Vec<Binding>) -> Vec<ConfiguredCredential> {
    let stored = |binding: Binding| ConfiguredCredential {
        from: SecretRef::env(binding.credential.as_str()),
        binding,
    };
    bindings.into_iter().map(stored).collect()
}
