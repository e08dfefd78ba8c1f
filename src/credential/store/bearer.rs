//! Requests to a store with a bearer token: one that is kept, or one that an issuer makes with a
//! key or a client's secret.

use std::sync::Arc;
use std::time::SystemTime;

use gateway_message::Origin;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, StatusCode};
use zeroize::Zeroizing;

use super::http::{HttpAnswer, HttpClient, Refusals, refused};
use super::leased::{Failure, Held, Leased, Moment};
use super::login::{IssuerClients, RenewFault};
use super::material::Lease;
use super::{SecretRef, SecretSource, StoreError};
use crate::login::{Issuer, Tokens, UNTOLD};

/// A client of one store.
pub(super) struct BearerClient {
    client: Arc<dyn HttpClient>,
    token: BearerToken,
}

/// Where the token is from.
enum BearerToken {
    Kept(SecretSource),
    Issued {
        issuer: Box<Issuer>,
        issuers: IssuerClients,
        leased: Arc<Leased<Tokens>>,
    },
}

impl BearerClient {
    /// Returns a client with a token that is kept somewhere.
    pub(super) fn kept(client: Arc<dyn HttpClient>, token: SecretSource) -> Self {
        let token = BearerToken::Kept(token);
        Self { client, token }
    }

    /// Returns a client whose tokens an issuer makes.
    pub(super) fn issued(
        client: Arc<dyn HttpClient>,
        issuer: &Issuer,
        source: impl Fn(&SecretRef) -> SecretSource,
    ) -> Self {
        let issuers = IssuerClients {
            clients: vec![(issuer.endpoint.origin.clone(), client.clone())],
            secrets: issuer.references().map(source).collect(),
        };
        let token = BearerToken::Issued {
            issuer: Box::new(issuer.clone()),
            issuers,
            leased: Arc::default(),
        };
        Self { client, token }
    }

    /// Reads a path. If the server no longer accepts the token, gets another one and asks again.
    pub(super) async fn get(
        &self,
        server: &Origin,
        path: &str,
        known: Refusals,
    ) -> Result<HttpAnswer, StoreError> {
        let mut answer = self.ask(server, path).await?;
        if answer.status == StatusCode::UNAUTHORIZED && self.forget() {
            answer = self.ask(server, path).await?;
        }
        match answer.status {
            status if status.is_success() => Ok(answer),
            status => Err(refused(status.as_u16(), &answer.content, known)),
        }
    }

    async fn ask(&self, server: &Origin, path: &str) -> Result<HttpAnswer, StoreError> {
        let field = self.field().await?;
        let mut request = Request::new(Zeroizing::default());
        *request.uri_mut() = path.parse().map_err(|_| StoreError::Place)?;
        request.headers_mut().insert(AUTHORIZATION, field);
        self.client.send(server, request).await
    }

    /// Drops a token that was made; another will be.
    fn forget(&self) -> bool {
        match &self.token {
            BearerToken::Kept(_) => false,
            BearerToken::Issued { leased, .. } => {
                leased.clear();
                true
            }
        }
    }

    async fn field(&self) -> Result<HeaderValue, StoreError> {
        let login = |cause| StoreError::Login(Box::new(cause));
        let field = match &self.token {
            BearerToken::Kept(source) => {
                let read = source.resolve(None).await.map_err(|why| login(why.cause))?;
                read.secret.bearer_field()
            }
            BearerToken::Issued {
                issuer,
                issuers,
                leased,
            } => {
                let tokens = leased.get(|_| made(issuers, issuer)).await.map_err(login)?;
                let field = Zeroizing::new(format!("Bearer {}", &*tokens.access));
                HeaderValue::from_str(&field).ok().map(|mut field| {
                    field.set_sensitive(true);
                    field
                })
            }
        };
        field.ok_or(StoreError::Unreachable("its token is no field value"))
    }
}

async fn made(issuers: &IssuerClients, issuer: &Issuer) -> Result<Held<Tokens>, Failure> {
    let asked = Moment::now();
    let tokens = issuers.make(issuer).await.map_err(|why| match why {
        RenewFault::Refused(word) => {
            let why = format!("its issuer answers `{word}`; correct the `[[store]]`");
            StoreError::LoginOver(why.into()).into()
        }
        other => Failure::from(other),
    })?;
    let left = tokens
        .expires
        .map(|end| end.duration_since(SystemTime::now()));
    let left = left.map_or(UNTOLD, Result::unwrap_or_default);
    Ok(Held::new(tokens, Some(Lease::of(left)), asked))
}
