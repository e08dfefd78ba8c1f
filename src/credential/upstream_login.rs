//! The gateway's login to an HTTP proxy through which it reaches origins.

use std::fmt;

use http::HeaderValue;

use super::store::{SecretRef, SecretSource, Stores, Unavailable};

/// A login to an upstream proxy: a secret `user:password`, for Basic (RFC 7617), or a token for
/// Bearer (RFC 6750).
pub struct UpstreamLogin {
    from: SecretRef,
    source: SecretSource,
    is_token: bool,
}

/// Why there is no login.
#[derive(Debug, thiserror::Error)]
pub enum LoginUnavailable {
    /// The store does not provide it.
    #[error(transparent)]
    Store(#[from] Unavailable),
    /// It is not of the form `user:password`, or not a token.
    #[error("the secret is no {0}")]
    Form(&'static str),
}

impl UpstreamLogin {
    /// Returns the login at this reference. A variable is read now, other places with a connection.
    pub fn kept_at(from: SecretRef) -> Self {
        let from = from.allowing_short(true);
        let source = Stores::new([&from]).source(&from);
        Self {
            from,
            source,
            is_token: false,
        }
    }

    /// Returns the token at this reference.
    pub fn token_at(from: SecretRef) -> Self {
        Self {
            is_token: true,
            ..Self::kept_at(from)
        }
    }

    /// Returns the reference to the login.
    pub fn reference(&self) -> &SecretRef {
        &self.from
    }

    /// Returns the value of `Proxy-Authorization`, which `Debug` does not print.
    ///
    /// # Errors
    /// [`LoginUnavailable`] by cause. It holds no part of the secret.
    pub async fn field(&self) -> Result<HeaderValue, LoginUnavailable> {
        let lease = self.source.resolve(None).await?;
        let (field, form) = if self.is_token {
            (lease.secret.bearer_field(), "token")
        } else {
            (lease.secret.basic_field(), "`user:password`")
        };
        field.ok_or(LoginUnavailable::Form(form))
    }
}

impl PartialEq for UpstreamLogin {
    fn eq(&self, other: &Self) -> bool {
        (&self.from, self.is_token) == (&other.from, other.is_token)
    }
}

impl Eq for UpstreamLogin {}

impl fmt::Debug for UpstreamLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpstreamLogin({})", self.from)
    }
}
