//! The trait that keeps what sessions gain: logins, temporary credentials and labels.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use gateway_credential::KeptCredentials;
use gateway_credential::login::{Login, OAuthRequest, Tokens, UnmappedToken};
use gateway_message::RequestHead;
use gateway_names::{CredentialName, SessionId};
use gateway_session::Session;

/// Keeps what sessions gain.
pub trait Captures: Send + Sync {
    /// Keeps the tokens that a session was issued, and gives the session a phantom of each.
    ///
    /// # Errors
    /// [`UnmappedToken`] if the tokens cannot be kept. The session then gets none of them.
    fn capture<'a>(
        &'a self,
        session: &'a Arc<Session>,
        asked: &'a OAuthRequest,
        tokens: Tokens,
    ) -> CaptureFuture<'a, Result<Login, UnmappedToken>>;

    /// Keeps temporary credentials that a session was issued, and that the session already holds.
    fn keep<'a>(&'a self, session: &'a SessionId, kept: KeptCredentials) -> CaptureFuture<'a, ()>;

    /// Keeps labels that a session is about to get. Returns whether they are kept.
    fn label<'a>(&'a self, session: &'a SessionId, labels: Vec<String>) -> CaptureFuture<'a, bool>;

    /// Whether any login has no host of its own yet.
    fn has_homeless(&self) -> bool;

    /// Binds a login of the session to a request's origin, if this is the first request that
    /// presents the login's token, no host was configured for it, and policy may permit it. Policy
    /// is evaluated for such a request alone. Returns the name of the login.
    fn settle<'a>(
        &'a self,
        session: &'a Arc<Session>,
        head: &'a RequestHead,
        is_permitted: &'a (dyn Fn() -> bool + Sync),
    ) -> CaptureFuture<'a, Option<CredentialName>>;

    /// Ends a login for one session, until the session logs in again.
    fn end<'a>(&'a self, session: &'a Arc<Session>, login: &'a Login) -> CaptureFuture<'a, ()>;
}

/// A future of [`Captures`].
pub type CaptureFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
