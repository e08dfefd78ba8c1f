//! What every store does.

use std::future::Future;
use std::pin::Pin;

use super::backend::Backend;
use super::error::StoreError;
use super::material::{Lease, Material};

/// A place from which secrets are fetched.
pub trait SecretStore: Send + Sync {
    /// Reads everything that is kept in one place, as one reading, within the store's own deadline.
    ///
    /// Dropping the future ends the work: nothing that it started outlives it but a key ring's own
    /// answer.
    fn fetch<'a>(&'a self, from: &'a Backend) -> StoreFuture<'a, Material>;

    /// Extends a lease; what was read under it serves on.
    ///
    /// # Errors
    /// [`StoreError::NotRenewable`] where the store does not do that: the secret is fetched anew.
    fn renew<'a>(&'a self, _lease: &'a Lease) -> StoreFuture<'a, Lease> {
        Box::pin(std::future::ready(Err(StoreError::NotRenewable)))
    }

    /// Keeps alive what the store itself needs; called about every second.
    fn tend(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Ends the store's own login, with the process.
    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Ends a lease: the store makes what was read under it worthless.
    fn revoke<'a>(&'a self, _lease: &'a Lease) -> StoreFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A store's answer, under way.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;
