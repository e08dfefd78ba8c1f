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
    /// The ID token (OpenID Connect), which is never presented: clients read claims from it.
    Id,
}

impl TokenKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Access, Self::Refresh, Self::Id];

    /// Returns its name in references: `login:claude#access`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Refresh => "refresh",
            Self::Id => "id",
        }
    }

    /// Returns the name of the credential for this token of a login.
    #[must_use]
    pub fn of(self, login: &CredentialName) -> CredentialName {
        match self {
            Self::Access => login.clone(),
            other => CredentialName::new(&format!("{login}.{}", other.as_str()))
                .unwrap_or_else(|_| login.clone()),
        }
    }
}

/// The tokens of a login at one time, which belong together.
#[derive(Clone, Default)]
pub struct Tokens {
    /// The access token.
    pub access: Zeroizing<String>,
    /// The refresh token, if there is one.
    pub refresh: Option<Zeroizing<String>>,
    /// The ID token, if there is one.
    pub id: Option<Zeroizing<String>>,
    /// When the access token expires; `None` if the issuer did not say.
    pub expires: Option<SystemTime>,
    /// The scope of the access token (RFC 6749 §3.3), if the response named it.
    pub scope: Option<String>,
    /// The account that the tokens belong to, if a member of the response named it.
    pub owner: Option<String>,
    /// The grant of a session from which they come.
    pub grant: Option<GrantId>,
}

impl Tokens {
    /// Returns the text of one token.
    pub fn of(&self, kind: TokenKind) -> Option<&Zeroizing<String>> {
        match kind {
            TokenKind::Access => Some(&self.access),
            TokenKind::Refresh => self.refresh.as_ref(),
            TokenKind::Id => self.id.as_ref(),
        }
    }

    /// Returns the account that the tokens belong to, from the issuer's response or the ID token
    /// (OpenID Connect Core §5.1).
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

/// The assumed lifetime of a token whose issuer stated none.
pub const UNTOLD: Duration = Duration::from_secs(3600);

/// Returns the claims of a JSON Web Token (RFC 7519), which is not verified.
pub(super) fn claims<T: DeserializeOwned>(token: &str) -> Option<T> {
    let claims = Zeroizing::new(URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?);
    serde_json::from_slice(&claims).ok()
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}
