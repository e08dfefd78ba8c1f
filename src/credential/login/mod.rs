//! Logins: grants of authorization servers (RFC 6749) that the gateway holds and renews. The
//! workload gets their phantoms.

mod asked;
mod entry;
pub mod file;
mod grant;
mod json;
mod known;
mod moment;
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

pub use asked::{AskedTokens, RenewalAnswer};
pub(crate) use entry::{HostToken, entries};
pub use grant::{ClientAuthentication, ClientSecret, KeyAlgorithm, SignedAssertion, TokenGrant};
pub use known::{KnownLogin, KnownLogins, LoginHolder};
pub use request::{IssuerSecrets, RequestMembers, form, random};
pub use token_answer::{TokenAnswer, UnmappedToken};
pub use token_look::TokenLook;
pub use token_request::TokenRequest;
pub use tokens::{TokenKind, Tokens, UNTOLD};
pub use unreadable::{FileFault, FileUnreadable};

/// A login: who issues its tokens, where they are kept, and where each may go.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// Its name, which is also that of the credential of its access token. `claude`, or
    /// `claude-work` for another account.
    pub name: CredentialName,
    /// Where its tokens are kept.
    #[serde(skip)]
    pub place: LoginPlace,
    /// Who renews them; `None` if they do not end.
    pub issuer: Option<Issuer>,
    /// What it consists of.
    pub tokens: Vec<LoginToken>,
}

/// Where a login's tokens are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LoginPlace {
    /// In the file of the program that logged in.
    File(LoginFile),
    /// In the gateway's own state.
    #[default]
    State,
}

/// The file of a program that logged in, and where in it everything is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginFile {
    /// Its absolute path.
    pub path: PathBuf,
    /// Where the sandbox has it, below its home.
    pub inside: PathBuf,
    /// The folder that the program makes while it renews, and removes: its own lock.
    pub lock: Option<PathBuf>,
    /// Its format.
    pub format: FileFormat,
    /// The member of each token, in the terms of the format: a JSON pointer, for example.
    pub members: Vec<(TokenKind, String)>,
    /// The member that says when the access token ends.
    pub expires: Option<String>,
    /// The member that says when it was renewed (RFC 3339).
    pub renewed: Option<String>,
    /// Further members that the sandbox's copy keeps. All others are left out of it.
    pub shown: Vec<String>,
    /// Members that its program needs, and what the copy has there if it shows none of the file.
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

/// An authorization server, and how it is asked for new tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The token endpoint.
    pub endpoint: TokenEndpoint,
    /// Where it takes revocations (RFC 7009), if it does.
    pub revocation: Option<TokenEndpoint>,
    /// The client that the tokens are issued to.
    pub client: Option<String>,
    /// The client's secret, if it has one.
    #[serde(skip)]
    pub secret: Option<ClientSecret>,
    /// What is asked for (RFC 6749 §3.3), where a request says it; if empty, what the issuer grants
    /// by itself.
    pub scopes: Vec<String>,
    /// How new tokens are asked for.
    #[serde(skip)]
    pub grant: TokenGrant,
    /// The format of requests.
    pub requests: RequestFormat,
}

/// An endpoint of an authorization server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenEndpoint {
    /// Its server. Its scheme is https, unless it is a loopback address.
    pub origin: Origin,
    /// Its path, without a query.
    pub path: String,
}

/// The format of requests to a token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestFormat {
    /// A form, as RFC 6749 says.
    #[default]
    Form,
    /// JSON.
    Json,
}

/// One token of a login.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginToken {
    /// Which one.
    pub kind: TokenKind,
    /// The origins that it may go to. Only access tokens have any.
    pub origins: Vec<OriginPattern>,
    /// Where it may stand in requests to them.
    pub places: Vec<Place>,
    /// The shape in which it is issued, if that is fixed.
    pub shape: Option<Shape>,
    /// The claims that its phantom keeps, if it is a JSON Web Token, beside those of every phantom.
    pub claims: Vec<String>,
    /// What happens to other credentials at its origins.
    #[serde(skip)]
    pub foreign: Foreign,
}

impl LoginToken {
    /// A token that is presented nowhere.
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
    /// The name of a token's credential: the login's own for the access token, `NAME.refresh` and
    /// `NAME.id` for the others.
    pub fn credential(&self, kind: TokenKind) -> CredentialName {
        kind.of(&self.name)
    }

    /// Whether a credential is one of its tokens.
    #[must_use]
    pub fn has(&self, credential: &CredentialName) -> bool {
        let mut kinds = self.tokens.iter().map(|token| token.kind);
        kinds.any(|kind| self.credential(kind) == *credential)
    }

    /// What the session may hold of it: one credential for each token.
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
    /// Where the secrets are kept with which it is asked: the client's, and a private key.
    pub fn references(&self) -> impl Iterator<Item = &SecretRef> {
        self.kept_secret().into_iter().chain(self.grant.key())
    }

    /// Where the client's secret is kept, if it is the operator's own.
    pub fn kept_secret(&self) -> Option<&SecretRef> {
        match &self.secret {
            Some(ClientSecret::Kept { from, .. }) => Some(from),
            _ => None,
        }
    }
}

impl TokenEndpoint {
    /// The endpoint that gives tokens for an installation of a GitHub App, at the API that this is.
    #[must_use]
    pub fn installation(self, id: &str) -> Self {
        let base = self.path.trim_end_matches('/');
        let path = format!("{base}/app/installations/{id}/access_tokens");
        Self { path, ..self }
    }

    /// Reads an endpoint's address. `None` if its scheme is not `https`, unless it is a loopback
    /// address; or if it has a query, or names a user.
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

/// Writes its address, with the port only if it is not the scheme's.
impl std::fmt::Display for TokenEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Origin { scheme, .. } = &self.origin;
        write!(f, "{scheme}://{}{}", self.origin.host_field(), self.path)
    }
}
