//! The gateway's own environment, read once at start.

use std::collections::HashMap;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::{Fetched, Fetching, SecretStore, StoreError};
use crate::credential::secret::{Secret, SecretUnsafe};
use crate::session::Reference;

/// Secrets that stood in the gateway's environment when it started.
///
/// Each variable is read once, so a later change has no effect. Removing it from the process's
/// environment would need `unsafe` and would not remove it from the kernel's copy:
/// `/proc/PID/environ` keeps the text until the gateway ends. The launcher must therefore not pass
/// it on, and the gateway must be undumpable, which hides that file from its own user.
pub struct EnvStore {
    values: HashMap<Reference, Result<Arc<Secret>, SecretUnsafe>>,
}

impl EnvStore {
    /// Reads the variables that the references name.
    #[must_use]
    pub fn capture<'r>(references: impl IntoIterator<Item = &'r Reference>) -> Self {
        let values = references.into_iter().filter_map(|reference| {
            let value = std::env::var_os(reference.env_name()?)?;
            let value = Zeroizing::new(std::os::unix::ffi::OsStringExt::into_vec(value));
            Some((
                reference.clone(),
                Secret::kept(value, reference).map(Arc::new),
            ))
        });
        Self {
            values: values.collect(),
        }
    }
}

impl SecretStore for EnvStore {
    fn fetch<'a>(&'a self, reference: &'a Reference) -> Fetching<'a> {
        let answer = match self.values.get(reference) {
            None => Err(StoreError::Absent),
            Some(Err(cause)) => Err(cause.clone().into()),
            Some(Ok(secret)) => Ok(Fetched {
                secret: Arc::clone(secret),
                lifetime: None,
                run: None,
            }),
        };
        Box::pin(std::future::ready(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_variable_is_read_once_and_an_absent_one_is_absent() {
        // Cargo sets this variable for every test; its value is visible ASCII.
        let here = Reference::env("CARGO_PKG_NAME");
        let gone = Reference::env("GATEWAY_TEST_NO_SUCH_VARIABLE");
        let store = EnvStore::capture([&here, &gone]);
        // `gateway` has seven letters, one too few.
        assert_eq!(
            store.fetch(&here).await.err(),
            Some(StoreError::Unsafe(SecretUnsafe::TooShort))
        );
        assert_eq!(store.fetch(&gone).await.err(), Some(StoreError::Absent));
        let manifest = Reference::env("CARGO_MANIFEST_DIR");
        let store = EnvStore::capture([&manifest]);
        let fetched = store.fetch(&manifest).await.ok().unwrap();
        assert!(fetched.secret.is(env!("CARGO_MANIFEST_DIR").as_bytes()));
        assert_eq!(fetched.lifetime, None);
    }
}
