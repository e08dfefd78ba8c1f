//! The tokens of a login.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gateway_names::CredentialName;
use gateway_state::GrantId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Which token of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenKind {
    /// The access token, which is presented to the service.
    Access,
    /// The refresh token, which only the gateway presents.
    Refresh,
    /// The ID token (OpenID Connect), which nobody presents: clients read claims from it.
    Id,
}

impl TokenKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Access, Self::Refresh, Self::Id];

    /// Its name in references: `login:claude#access`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Refresh => "refresh",
            Self::Id => "id",
        }
    }

    /// The name of the credential that it is of a login.
    #[must_use]
    pub fn of(self, login: &CredentialName) -> CredentialName {
        match self {
            Self::Access => login.clone(),
            other => CredentialName::new(&format!("{login}.{}", other.as_str()))
                .unwrap_or_else(|_| login.clone()),
        }
    }
}

/// The tokens of a login at one time. They belong together.
#[derive(Clone, Default)]
pub struct Tokens {
    /// The access token.
    pub access: Zeroizing<String>,
    /// The refresh token, if there is one.
    pub refresh: Option<Zeroizing<String>>,
    /// The ID token, if there is one.
    pub id: Option<Zeroizing<String>>,
    /// When the access token ends; `None` if nobody said so.
    pub expires: Option<SystemTime>,
    /// What the access token may do (RFC 6749 §3.3), if the answer said it.
    pub scope: Option<String>,
    /// Whose they are, if a member of the answer said it.
    pub owner: Option<String>,
    /// The grant of a session that they began as.
    pub grant: Option<GrantId>,
}

impl Tokens {
    /// The text of one of them.
    pub fn of(&self, kind: TokenKind) -> Option<&Zeroizing<String>> {
        match kind {
            TokenKind::Access => Some(&self.access),
            TokenKind::Refresh => self.refresh.as_ref(),
            TokenKind::Id => self.id.as_ref(),
        }
    }

    /// Whose they are, as the issuer says it in its answer, or in the ID token (OpenID Connect Core
    /// §5.1).
    pub fn account(&self) -> Option<String> {
        self.owner.clone().or_else(|| self.claimed())
    }

    fn claimed(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Claims {
            email: Option<String>,
            preferred_username: Option<String>,
            sub: Option<String>,
        }
        let claims: Claims = claims(self.id.as_ref()?)?;
        claims.email.or(claims.preferred_username).or(claims.sub)
    }
}

/// How long a token counts whose end nobody told.
pub const UNTOLD: Duration = Duration::from_secs(3600);

/// The claims of a JSON Web Token (RFC 7519), which is not verified.
pub(super) fn claims<T: DeserializeOwned>(token: &str) -> Option<T> {
    let claims = Zeroizing::new(URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?);
    serde_json::from_slice(&claims).ok()
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}
