//! What keeps the logins that sessions make.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::HeaderMap;

use crate::credential::login::{AskedTokens, Login, Tokens, UnmappedToken};
use crate::message::Origin;
use crate::names::CredentialName;
use crate::session::Session;

/// Keeps the logins that sessions make.
pub trait Captures: Send + Sync {
    /// Keeps the tokens that a session was issued, and has it hold a phantom of each.
    ///
    /// # Errors
    /// [`UnmappedToken`] if they cannot be kept. The session gets nothing of them then.
    fn capture<'a>(
        &'a self,
        session: &'a Arc<Session>,
        asked: &'a AskedTokens,
        tokens: Tokens,
    ) -> CaptureFuture<'a, Result<Login, UnmappedToken>>;

    /// Whether any login has no host of its own yet.
    fn has_homeless(&self) -> bool;

    /// Has a login of the session be for this origin, if a request to it is the first that presents
    /// the login's token and nobody said what that is for. Returns
    /// which.
    fn settle<'a>(
        &'a self,
        session: &'a Arc<Session>,
        to: &'a Origin,
        fields: &'a HeaderMap,
    ) -> CaptureFuture<'a, Option<CredentialName>>;

    /// Ends a login for one session, until that logs in again.
    fn end<'a>(&'a self, session: &'a Arc<Session>, login: &'a Login) -> CaptureFuture<'a, ()>;
}

/// What is pending of [`Captures`].
pub type CaptureFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
