//! What the gateway presents to an HTTP proxy that it reaches origins by.

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
    /// The store has none.
    #[error(transparent)]
    Store(#[from] Unavailable),
    /// It is no `user:password`, or no token.
    #[error("the secret is no {0}")]
    Form(&'static str),
}

impl UpstreamLogin {
    /// The login that is kept there. A variable is read now, other places with a connection.
    pub fn kept_at(from: SecretRef) -> Self {
        let from = from.allowing_short(true);
        let source = Stores::new([&from]).source(&from);
        Self {
            from,
            source,
            is_token: false,
        }
    }

    /// The token that is kept there.
    pub fn token_at(from: SecretRef) -> Self {
        Self {
            is_token: true,
            ..Self::kept_at(from)
        }
    }

    /// Where it is kept.
    pub fn reference(&self) -> &SecretRef {
        &self.from
    }

    /// The value of `Proxy-Authorization`, which is not printed by Debug.
    ///
    /// # Errors
    /// [`LoginUnavailable`] by cause. It holds nothing of the secret.
    pub async fn field(&self) -> Result<HeaderValue, LoginUnavailable> {
        let lease = self.source.resolve(None).await?;
        let (field, form) = match self.is_token {
            true => (lease.secret.bearer_field(), "token"),
            false => (lease.secret.basic_field(), "`user:password`"),
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
