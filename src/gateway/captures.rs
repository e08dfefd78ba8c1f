//! What keeps the logins that sessions make.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::credential::KeptCredentials;
use crate::credential::login::{AskedTokens, Login, Tokens, UnmappedToken};
use crate::message::RequestHead;
use crate::names::{CredentialName, SessionId};
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

    /// Keeps temporary credentials that a session was issued, which it holds already.
    fn keep<'a>(&'a self, session: &'a SessionId, kept: KeptCredentials) -> CaptureFuture<'a, ()>;

    /// Whether any login has no host of its own yet.
    fn has_homeless(&self) -> bool;

    /// Has a login of the session be for a request's origin, if the request is the first that
    /// presents the login's token, nobody said what that is for, and policy may permit it. Policy
    /// is asked of such a request alone. Returns which login.
    fn settle<'a>(
        &'a self,
        session: &'a Arc<Session>,
        head: &'a RequestHead,
        is_permitted: &'a (dyn Fn() -> bool + Sync),
    ) -> CaptureFuture<'a, Option<CredentialName>>;

    /// Ends a login for one session, until that logs in again.
    fn end<'a>(&'a self, session: &'a Arc<Session>, login: &'a Login) -> CaptureFuture<'a, ()>;
}

/// What is pending of [`Captures`].
pub type CaptureFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
