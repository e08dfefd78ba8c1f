//! What keeps the logins that sessions make.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::credential::login::{AskedTokens, Login, Tokens, UnmappedToken};
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

    /// Ends a login for one session, until that logs in again.
    fn end<'a>(&'a self, session: &'a Arc<Session>, login: &'a Login) -> CaptureFuture<'a, ()>;
}

/// What is pending of [`Captures`].
pub type CaptureFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
