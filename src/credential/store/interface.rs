//! The interface of every store.

use std::future::Future;
use std::pin::Pin;

use gateway_names::SessionId;

use super::backend::Backend;
use super::error::StoreError;
use super::material::{Lease, Material};

/// A place from which secrets are fetched.
pub trait SecretStore: Send + Sync {
    /// Reads everything in one place, as one read, within the store's own deadline. The read is for
    /// a session if the store issues secrets per session.
    ///
    /// Dropping the future ends the work. Nothing that it started continues, except a key ring's
    /// own response.
    fn fetch<'a>(
        &'a self,
        from: &'a Backend,
        session: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Material>;

    /// Reads the present secret, usable or not, to see its form. Sends no request to a server that
    /// a session chose.
    fn look<'a>(
        &'a self,
        from: &'a Backend,
        session: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Material> {
        self.fetch(from, session)
    }

    /// Renews a lease, so that the secret read under it stays usable.
    ///
    /// # Errors
    /// [`StoreError::NotRenewable`] if the store cannot renew: the secret is then fetched again.
    fn renew<'a>(&'a self, _lease: &'a Lease) -> StoreFuture<'a, Lease> {
        Box::pin(std::future::ready(Err(StoreError::NotRenewable)))
    }

    /// Renews the store's own credentials. Called about every second.
    fn tend(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Ends the store's own login when the process ends.
    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Ends a lease: the store revokes the secret that was read under it.
    fn revoke<'a>(&'a self, _lease: &'a Lease) -> StoreFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The future of a store's answer.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;
