//! The content of a row: a login and its tokens, as JSON.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::credential::login::{
    ClientSecret, Issuer, Login, LoginPlace, LoginToken, RequestFormat, TokenEndpoint, TokenGrant,
    TokenKind, Tokens,
};
use crate::names::CredentialName;
use crate::session::phantom::Shape;
use crate::state::unix;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowText<'t> {
    name: Cow<'t, str>,
    #[serde(borrow)]
    issuer: Option<IssuerText<'t>>,
    #[serde(borrow)]
    tokens: Vec<TokenText<'t>>,
    expires: Option<u64>,
    scope: Option<Cow<'t, str>>,
    owner: Option<Cow<'t, str>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuerText<'t> {
    endpoint: Cow<'t, str>,
    revocation: Option<Cow<'t, str>>,
    client: Option<Cow<'t, str>>,
    secret: Option<Cow<'t, str>>,
    scopes: Vec<String>,
    json: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenText<'t> {
    kind: Cow<'t, str>,
    /// Without a text, the issuer gave none.
    text: Option<Cow<'t, str>>,
    origins: Vec<String>,
    places: Vec<String>,
    shape: Option<String>,
    claims: Vec<String>,
}

/// Writes a row's content.
pub(super) fn write(login: &Login, tokens: &Tokens) -> Zeroizing<Vec<u8>> {
    let token = |one| TokenText::of(one, tokens);
    let row = RowText {
        name: login.name.as_str().into(),
        issuer: login.issuer.as_ref().map(IssuerText::of),
        tokens: login.tokens.iter().map(token).collect(),
        expires: tokens.expires.map(unix),
        scope: tokens.scope.as_deref().map(Cow::from),
        owner: tokens.owner.as_deref().map(Cow::from),
    };
    // Room for all of it: a growing vector would leave copies behind.
    let texts = TokenKind::ALL.iter().filter_map(|kind| tokens.of(*kind));
    let room = texts.map(|text| text.len() * 2).sum::<usize>() + ROOM;
    let mut text = Zeroizing::new(Vec::with_capacity(room));
    // Texts and numbers can be written to memory.
    let _ = serde_json::to_writer(&mut *text, &row);
    text
}

/// Reads a row's content; `None` if it is none.
pub(super) fn read(content: &[u8]) -> Option<(Login, Tokens)> {
    let mut row: RowText<'_> = serde_json::from_slice(content).ok()?;
    let mut text = |kind: TokenKind| {
        let mut known = row
            .tokens
            .iter_mut()
            .filter(|one| one.kind == kind.as_str());
        let text = known.next()?.text.take()?;
        Some(Zeroizing::new(text.into_owned()))
    };
    let tokens = Tokens {
        access: text(TokenKind::Access)?,
        refresh: text(TokenKind::Refresh),
        id: text(TokenKind::Id),
        expires: row
            .expires
            .map(|at| SystemTime::UNIX_EPOCH + Duration::from_secs(at)),
        scope: row.scope.map(Cow::into_owned),
        owner: row.owner.map(Cow::into_owned),
    };
    let login = Login {
        name: CredentialName::new(&row.name).ok()?,
        place: LoginPlace::State,
        issuer: match &row.issuer {
            None => None,
            Some(issuer) => Some(issuer.read()?),
        },
        tokens: row
            .tokens
            .iter()
            .map(TokenText::read)
            .collect::<Option<_>>()?,
    };
    Some((login, tokens))
}

impl<'t> IssuerText<'t> {
    fn of(issuer: &'t Issuer) -> Self {
        let url = |at: &TokenEndpoint| Cow::from(at.to_string());
        let secret = issuer.secret.as_ref().and_then(|secret| match secret {
            ClientSecret::Known(text) => Some(text.as_str().into()),
            ClientSecret::Kept { .. } => None,
        });
        Self {
            endpoint: url(&issuer.endpoint),
            revocation: issuer.revocation.as_ref().map(url),
            client: issuer.client.as_deref().map(Cow::from),
            secret,
            scopes: issuer.scopes.clone(),
            json: issuer.requests == RequestFormat::Json,
        }
    }

    fn read(&self) -> Option<Issuer> {
        let secret = self.secret.as_deref();
        Some(Issuer {
            endpoint: TokenEndpoint::parse(&self.endpoint)?,
            revocation: match &self.revocation {
                None => None,
                Some(url) => Some(TokenEndpoint::parse(url)?),
            },
            client: self.client.as_deref().map(str::to_owned),
            secret: secret.map(|text| ClientSecret::Known(text.to_owned().into())),
            scopes: self.scopes.clone(),
            grant: TokenGrant::Refresh,
            requests: match self.json {
                true => RequestFormat::Json,
                false => RequestFormat::Form,
            },
        })
    }
}

impl<'t> TokenText<'t> {
    fn of(token: &'t LoginToken, tokens: &'t Tokens) -> Self {
        Self {
            kind: token.kind.as_str().into(),
            text: tokens.of(token.kind).map(|text| text.as_str().into()),
            origins: token.origins.iter().map(ToString::to_string).collect(),
            places: token.places.iter().map(ToString::to_string).collect(),
            shape: token.shape.as_ref().map(Shape::to_text),
            claims: token.claims.clone(),
        }
    }

    fn read(&self) -> Option<LoginToken> {
        let mut kinds = TokenKind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.as_str() == self.kind)?;
        Some(LoginToken {
            kind,
            origins: self
                .origins
                .iter()
                .map(|one| one.parse().ok())
                .collect::<Option<_>>()?,
            places: self
                .places
                .iter()
                .map(|one| one.parse().ok())
                .collect::<Option<_>>()?,
            shape: match &self.shape {
                None => None,
                Some(text) => Some(Shape::from_text(text).ok()?),
            },
            claims: self.claims.clone(),
            ..LoginToken::kept(kind)
        })
    }
}

/// For what is no token.
const ROOM: usize = 16 * 1024;
