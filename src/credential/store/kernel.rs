//! Keys of the kernel (keyrings(7)): those of type `user` in the session's key ring, or the user's.

use gateway_names::SessionId;
use linux_keyutils::{KeyError, KeyRing, KeyRingIdentifier};
use zeroize::Zeroizing;

use super::file::{LEASE, blocking};
use super::material::Material;
use super::{Backend, SecretStore, StoreError, StoreFuture};
use crate::secret::MAX_BYTES;

/// The key rings of this process and of its user. No command in a sandbox can ask the kernel for a
/// key.
pub(super) struct KernelStore;

impl SecretStore for KernelStore {
    fn fetch<'a>(
        &'a self,
        from: &'a Backend,
        _: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Material> {
        Box::pin(async move {
            let Backend::Kernel(name) = from else {
                return Err(StoreError::Absent);
            };
            let name = name.clone();
            let value = blocking(move || read(&name).map_err(|error| cause(&error))).await?;
            Ok(Material::single(value, Some(LEASE)))
        })
    }
}

fn read(name: &str) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let search = |ring| KeyRing::from_special_id(ring, false)?.search(name);
    let key = search(KeyRingIdentifier::Session).or_else(|_| search(KeyRingIdentifier::User))?;
    let mut value = Zeroizing::new(vec![0; MAX_BYTES + 1]);
    let length = key.read(&mut *value)?;
    value.truncate(length);
    Ok(value)
}

fn cause(error: &KeyError) -> StoreError {
    StoreError::Unreachable(match error {
        KeyError::KeyDoesNotExist => return StoreError::Absent,
        KeyError::KeyExpired => "the key has expired",
        KeyError::KeyRevoked => "the key is revoked",
        KeyError::AccessDenied => {
            "the kernel lets nobody read it who does not possess it: link it into the session's key ring"
        }
        _ => "the kernel refuses the question",
    })
}
