//! The gateway's own environment, read once at start.

use std::collections::HashMap;
use std::os::unix::ffi::OsStringExt as _;

use gateway_names::SessionId;
use zeroize::Zeroizing;

use super::super::secret::{Secret, SecretUnsafe};
use super::{Backend, Material, SecretRef, SecretStore, StoreError, StoreFuture};

/// Secrets from the gateway's environment at start.
///
/// Each variable is read once, so later changes have no effect. Removing it from the process's
/// environment would need `unsafe`, and would not remove the kernel's copy: `/proc/PID/environ`
/// keeps the text until the gateway ends. Therefore the launcher must not pass it on, and the
/// gateway must be undumpable, which hides that file from its own user.
pub(super) struct EnvStore {
    values: HashMap<String, Zeroizing<Vec<u8>>>,
}

impl EnvStore {
    /// Reads the variables that the references name.
    pub(super) fn capture<'r>(references: impl IntoIterator<Item = &'r SecretRef>) -> Self {
        let value = |name: &str| Some(Zeroizing::new(std::env::var_os(name)?.into_vec()));
        let names = references.into_iter().filter_map(SecretRef::env_name);
        let values = names.filter_map(|name| Some((name.to_owned(), value(name)?)));
        Self {
            values: values.collect(),
        }
    }
}

/// Returns why the value of a variable cannot be a secret; `None` if it can.
pub fn unfit(variable: &str) -> Option<SecretUnsafe> {
    let value = Zeroizing::new(std::env::var_os(variable)?.into_vec());
    Secret::new(value, false).err()
}

impl SecretStore for EnvStore {
    fn fetch<'a>(
        &'a self,
        from: &'a Backend,
        _: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Material> {
        let value = match from {
            Backend::Env(name) => self.values.get(name),
            _ => None,
        };
        let material = value.map(|value| Material::single(value.clone(), None));
        Box::pin(std::future::ready(material.ok_or(StoreError::Absent)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_variable_is_read_once_and_an_absent_one_is_absent() {
        // Cargo sets this variable for every test.
        let here = SecretRef::env("CARGO_PKG_NAME");
        let gone = SecretRef::env("GATEWAY_TEST_NO_SUCH_VARIABLE");
        let store = EnvStore::capture([&here, &gone]);
        let fetched = store.fetch(&here.backend, None).await.ok().unwrap();
        assert_eq!(&fetched.field(None).unwrap()[..], b"gateway-credential");
        assert_eq!(fetched.lease, None);
        let absent = store.fetch(&gone.backend, None).await.err();
        assert_eq!(absent, Some(StoreError::Absent));
    }
}
