//! Logins: grants of authorization servers (RFC 6749) that the gateway keeps and renews. The
//! workload gets phantoms of their tokens.

mod entry;
pub mod file;
mod grant;
mod json;
mod known;
mod moment;
mod oauth_request;
mod request;
mod shown;
mod token_answer;
mod token_look;
mod token_request;
mod tokens;
mod unreadable;

use std::path::PathBuf;

use gateway_message::{Origin, OriginPattern, Place, Scheme};
use gateway_names::CredentialName;
use gateway_session::phantom::Shape;
use gateway_session::{Binding, Foreign, Role};
use http::Uri;
use serde::{Deserialize, Serialize};

use super::configured::ConfiguredCredential;
use super::store::SecretRef;

pub(crate) use entry::{HostToken, entries};
pub use grant::{ClientAuthentication, ClientSecret, KeyAlgorithm, SignedAssertion, TokenGrant};
pub use known::{KnownLogin, KnownLogins, LoginHolder};
pub use oauth_request::{OAuthRequest, RenewalAnswer};
pub use request::{IssuerSecrets, RequestMembers, form, random};
pub use token_answer::{TokenAnswer, UnmappedToken};
pub use token_look::TokenLook;
pub use token_request::TokenRequest;
pub use tokens::{TokenKind, Tokens, UNTOLD};
pub use unreadable::{FileFault, FileUnreadable};

/// A login: the issuer of its tokens, where they are kept, and where each may be sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The name of the login and of the credential of its access token: `claude`, or `claude-work`
    /// for another account.
    pub name: CredentialName,
    /// Where its tokens are kept.
    #[serde(skip)]
    pub place: LoginPlace,
    /// The server that renews the tokens; `None` if they do not expire.
    pub issuer: Option<Issuer>,
    /// The tokens that it consists of.
    pub tokens: Vec<LoginToken>,
}

/// The place where a login's tokens are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LoginPlace {
    /// In the file of the program that logged in.
    File(LoginFile),
    /// In the gateway's own state.
    #[default]
    State,
}

/// The file of a program that logged in, and the members that hold its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginFile {
    /// Its absolute path.
    pub path: PathBuf,
    /// The path of the sandbox's copy, relative to its home.
    pub inside: PathBuf,
    /// The program's own lock: a folder that it makes before it renews and removes afterwards.
    pub lock: Option<PathBuf>,
    /// Its format.
    pub format: FileFormat,
    /// The member of each token, in the terms of the format: a JSON pointer, for example.
    pub members: Vec<(TokenKind, String)>,
    /// The member with the end of the access token.
    pub expires: Option<String>,
    /// The member with the time of its renewal (RFC 3339).
    pub renewed: Option<String>,
    /// Further members that the sandbox's copy keeps. All others are left out of it.
    pub shown: Vec<String>,
    /// Members that the program needs, with values for the copy if the file has none.
    pub filled: Vec<(String, serde_json::Value)>,
}

/// The format of a program's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileFormat {
    /// JSON (RFC 8259). Members are JSON pointers (RFC 6901).
    Json,
    /// Docker's `config.json`. Members are the keys of `auths`.
    DockerConfig,
    /// `.npmrc`. Members are its keys, such as `//registry.example/:_authToken`.
    Npmrc,
    /// `.pypirc`. Members are its sections; the token is the `password`.
    Pypirc,
    /// `.netrc`. Members are its machines; the token is the `password`.
    Netrc,
    /// `.git-credentials`. Members are its addresses, without the login.
    GitCredentials,
    /// `hosts.yml` of GitHub's command line. Members are its hosts.
    GhHosts,
}

/// An authorization server, and how new tokens are requested from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The token endpoint.
    pub endpoint: TokenEndpoint,
    /// The endpoint for revocations (RFC 7009), if there is one.
    pub revocation: Option<TokenEndpoint>,
    /// The client that the tokens are issued to.
    pub client: Option<String>,
    /// The client's secret, if it has one.
    #[serde(skip)]
    pub secret: Option<ClientSecret>,
    /// The requested scopes (RFC 6749 §3.3), for requests that name scopes; if empty, the issuer's
    /// default applies.
    pub scopes: Vec<String>,
    /// The grant with which new tokens are requested.
    #[serde(skip)]
    pub grant: TokenGrant,
    /// The format of requests.
    pub requests: RequestFormat,
}

/// An endpoint of an authorization server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenEndpoint {
    /// Its server. The scheme is https, except at a loopback address.
    pub origin: Origin,
    /// Its path, without a query.
    pub path: String,
}

/// The format of requests to a token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestFormat {
    /// A form, as in RFC 6749.
    #[default]
    Form,
    /// JSON.
    Json,
}

/// One token of a login.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginToken {
    /// The kind of the token.
    pub kind: TokenKind,
    /// The origins that it may be sent to. Only access tokens have any.
    pub origins: Vec<OriginPattern>,
    /// Its places in requests to them.
    pub places: Vec<Place>,
    /// Its shape, if that is fixed.
    pub shape: Option<Shape>,
    /// The claims that its phantom keeps if it is a JSON Web Token, in addition to the usual ones.
    pub claims: Vec<String>,
    /// What happens to foreign credentials at its origins.
    #[serde(skip)]
    pub foreign: Foreign,
}

impl LoginToken {
    /// Returns a token that is lent nowhere.
    pub fn kept(kind: TokenKind) -> Self {
        Self {
            kind,
            origins: Vec::new(),
            places: Vec::new(),
            shape: None,
            claims: Vec::new(),
            foreign: Foreign::Refuse,
        }
    }
}

impl Login {
    /// Returns the name of a token's credential: the login's own for the access token,
    /// `NAME.refresh` and `NAME.id` for the others.
    pub fn credential(&self, kind: TokenKind) -> CredentialName {
        kind.of(&self.name)
    }

    /// Whether a credential is one of the login's tokens.
    #[must_use]
    pub fn has(&self, credential: &CredentialName) -> bool {
        let mut kinds = self.tokens.iter().map(|token| token.kind);
        kinds.any(|kind| self.credential(kind) == *credential)
    }

    /// Returns one credential for each token, which a session may hold.
    pub fn stored(&self) -> Vec<ConfiguredCredential> {
        let stored = |token: &LoginToken| ConfiguredCredential {
            binding: Binding {
                shape: token.shape.clone(),
                origins: token.origins.clone(),
                places: token.places.clone(),
                foreign: token.foreign,
                claims: Some(token.claims.clone()),
                role: match token.kind {
                    TokenKind::Access => Role::Place,
                    TokenKind::Refresh | TokenKind::Id => Role::Kept,
                },
                ..Binding::of(self.credential(token.kind))
            },
            from: SecretRef::login(self.name.clone(), token.kind),
        };
        self.tokens.iter().map(stored).collect()
    }
}

impl Issuer {
    /// Returns references to the secrets for requests to it: the client's secret and a private key.
    pub fn references(&self) -> impl Iterator<Item = &SecretRef> {
        self.kept_secret().into_iter().chain(self.grant.key())
    }

    /// Returns the reference to the client's secret, if the client is the operator's own.
    pub fn kept_secret(&self) -> Option<&SecretRef> {
        match &self.secret {
            Some(ClientSecret::Kept { from, .. }) => Some(from),
            _ => None,
        }
    }
}

impl TokenEndpoint {
    /// Returns the token endpoint of a GitHub App's installation, below this API's base address.
    #[must_use]
    pub fn installation(self, id: &str) -> Self {
        let base = self.path.trim_end_matches('/');
        let path = format!("{base}/app/installations/{id}/access_tokens");
        Self { path, ..self }
    }

    /// Parses an endpoint's address. `None` if the scheme is not `https`, except at a loopback
    /// address, or if the address has a query or names a user.
    pub fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let authority = uri.authority()?;
        let origin: OriginPattern = format!("{}://{authority}", uri.scheme_str()?)
            .parse()
            .ok()?;
        let is_safe = origin.scheme == Scheme::Https || origin.is_loopback();
        let is_plain = uri.query().is_none() && !authority.as_str().contains('@');
        let origin = origin.exact()?;
        (is_safe && is_plain).then(|| Self {
            origin,
            path: uri.path().to_owned(),
        })
    }
}

gateway_names::serde_as_text!(TokenEndpoint, ToString::to_string, TokenEndpoint::parse);

/// Writes the address, with the port only if it is not the scheme's default.
impl std::fmt::Display for TokenEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Origin { scheme, .. } = &self.origin;
        write!(f, "{scheme}://{}{}", self.origin.host_field(), self.path)
    }
}
