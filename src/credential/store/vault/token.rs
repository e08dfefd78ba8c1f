//! The gateway's own token: obtained by login, renewed early, replaced if it cannot be renewed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::IgnoredAny;
use zeroize::Zeroizing;

use super::super::file::{blocking, read_shared};
use super::super::leased::{Failure, Held, Leased, Moment};
use super::super::material::Lease;
use super::super::{SecretSource, StoreError};
use super::api::{Api, VaultRequest};
use super::reply::{Auth, OwnToken, VaultReply};
use super::settings::{LoginMethod, VaultLogin};

/// The gateway's token, and the login that obtains it.
pub(super) struct VaultTokens {
    login: VaultLogin,
    /// Where the token or the login's secret is kept, if it has one.
    source: Option<SecretSource>,
    leased: Arc<Leased<Token>>,
    logins: AtomicU64,
}

/// A valid token.
pub(super) struct Token {
    pub(super) text: Zeroizing<String>,
    /// The number of its login. A lease ends with the token that requested it.
    pub(super) login: u64,
    /// Its initial lifetime.
    granted: Duration,
    renewable: bool,
}

#[derive(Serialize)]
pub(super) struct EmptyReply {}

impl VaultTokens {
    pub(super) fn new(login: VaultLogin, source: Option<SecretSource>) -> Self {
        Self {
            login,
            source,
            leased: Arc::default(),
            logins: AtomicU64::new(0),
        }
    }

    fn is_given(&self) -> bool {
        matches!(self.login, VaultLogin::Token(_))
    }

    /// Returns the token, renewed if that is due. Only one login runs at a time.
    pub(super) async fn token(&self, api: &Api) -> Result<Arc<Held<Token>>, StoreError> {
        if let (true, Some(source)) = (self.is_given(), &self.source)
            && let Some(held) = self.leased.serving(Moment::now())
            && !is_current(source, &held).await
        {
            // The token was replaced in its store.
            self.leased.reject(&held);
        }
        self.leased.get(|held| self.next(api, held)).await
    }

    /// Discards a token that the server no longer accepts, so that the next call logs in again.
    pub(super) fn reject(&self, token: &Arc<Held<Token>>) {
        self.leased.reject(token);
    }

    /// Renews the token if that is due, or logs in again.
    pub(super) async fn tend(&self, api: &Api) -> Result<(), StoreError> {
        let now = Moment::now();
        if self
            .leased
            .serving(now)
            .is_some_and(|held| held.is_due(now))
        {
            self.token(api).await.map(drop)
        } else {
            Ok(())
        }
    }

    /// Revokes a token obtained by login, and with it everything issued under it.
    pub(super) async fn close(&self, api: &Api) -> Result<(), StoreError> {
        let held = self.leased.end().await;
        let Some(held) = held.filter(|_| !self.is_given()) else {
            return Ok(());
        };
        let question = VaultRequest::post("auth/token/revoke-self", &EmptyReply {});
        api.tell(&question.with_token(&held.text)).await
    }

    /// Renews the held token, or logs in.
    async fn next(
        &self,
        api: &Api,
        held: Option<Arc<Held<Token>>>,
    ) -> Result<Held<Token>, Failure> {
        let renewed = match &held {
            Some(held) => Some(self.renew(api, held).await),
            None => None,
        };
        let next = match renewed {
            Some(renewed) if renewed.is_ok() || self.is_given() => renewed,
            // It reached its maximum lifetime, or the renewal was refused.
            _ => {
                let number = self.logins.fetch_add(1, Ordering::Relaxed) + 1;
                let token = self.ask(api, number).await;
                token.map_err(|cause| StoreError::Login(Box::new(cause)))
            }
        };
        next.map_err(|cause| {
            if held.is_some() {
                tracing::warn!(%cause, "the vault's token was not renewed");
            }
            cause.into()
        })
    }

    /// Extends the lifetime of the token. Fails if that is not worthwhile.
    async fn renew(&self, api: &Api, held: &Token) -> Result<Held<Token>, StoreError> {
        if !held.renewable {
            return Err(StoreError::NotRenewable);
        }
        let asked = Moment::now();
        let question = VaultRequest::post("auth/token/renew-self", &EmptyReply {});
        let question = question.with_token(&held.text);
        let auth = auth(api, &question).await?;
        let granted = Duration::from_secs(auth.lease_duration);
        // Near the maximum lifetime, less and less is granted; a new login gives more.
        if granted < held.granted / 2 && !self.is_given() {
            return Err(StoreError::NotRenewable);
        }
        let token = Token {
            text: held.text.clone(),
            renewable: auth.renewable,
            ..*held
        };
        Ok(token.held(granted, asked))
    }

    async fn ask(&self, api: &Api, login: u64) -> Result<Held<Token>, StoreError> {
        let secret = match &self.source {
            Some(source) => Some(text(source).await?),
            None => None,
        };
        let asked = Moment::now();
        let VaultLogin::Method { mount, method } = &self.login else {
            return adopt(api, secret.ok_or(StoreError::Absent)?, login).await;
        };
        let secret = match method {
            LoginMethod::Kubernetes { token_file, .. } => {
                Some(service_account_token(token_file).await?)
            }
            _ => secret,
        };
        let secret = secret.as_ref().map(|text| text.as_str());
        let members = match method {
            LoginMethod::AppRole { role_id, .. } => {
                [("role_id", Some(&**role_id)), ("secret_id", secret)]
            }
            LoginMethod::Jwt { role, .. } | LoginMethod::Kubernetes { role, .. } => {
                [("role", Some(&**role)), ("jwt", secret)]
            }
            LoginMethod::Certificate { role, .. } => [("name", role.as_deref()), ("", None)],
        };
        let members = members
            .into_iter()
            .filter_map(|(name, text)| Some((name, text?)));
        let members: BTreeMap<&str, &str> = members.collect();
        let question = VaultRequest::post(format!("auth/{mount}/login"), &members);
        let auth = auth(api, &question).await?;
        let granted = Duration::from_secs(auth.lease_duration);
        let token = Token {
            text: auth.client_token.0,
            login,
            granted,
            renewable: auth.renewable,
        };
        Ok(token.held(granted, asked))
    }
}

impl Token {
    /// Returns this token with the granted lifetime; unlimited if that is zero. It is renewed after
    /// two thirds of the lifetime, as by Vault's own agent.
    fn held(self, granted: Duration, asked: Moment) -> Held<Self> {
        let lease = Lease {
            refresh_after: granted.saturating_mul(2) / 3,
            ..Lease::of(granted)
        };
        Held::new(self, (!granted.is_zero()).then_some(lease), asked)
    }
}

async fn auth(api: &Api, question: &VaultRequest<'_>) -> Result<Auth, StoreError> {
    let reply: VaultReply<IgnoredAny> = api.ask(question).await?;
    reply.auth.ok_or(StoreError::Illegible)
}

/// Uses a configured token, after reading its lifetime from the server.
async fn adopt(api: &Api, text: Zeroizing<String>, login: u64) -> Result<Held<Token>, StoreError> {
    let asked = Moment::now();
    let question = VaultRequest::get("auth/token/lookup-self").with_token(&text);
    let reply: VaultReply<OwnToken> = api.ask(&question).await?;
    let known = reply.data.ok_or(StoreError::Illegible)?;
    let granted = Duration::from_secs(known.ttl);
    let token = Token {
        text,
        login,
        granted,
        renewable: known.renewable,
    };
    Ok(token.held(granted, asked))
}

async fn is_current(source: &SecretSource, held: &Token) -> bool {
    let kept = source.resolve(None).await;
    // If it cannot be read now, the held token stays in use.
    kept.map_or(true, |kept| kept.secret.is(held.text.as_bytes()))
}

async fn text(source: &SecretSource) -> Result<Zeroizing<String>, StoreError> {
    let kept = source.resolve(None).await;
    let kept = kept.map_err(|why| StoreError::LoginState(why.to_string().into()))?;
    Ok(kept.secret.text())
}

/// Reads the token file that Kubernetes writes. Other users of the container may read it, which is
/// how Kubernetes sets it up; only root and this user may write it.
async fn service_account_token(path: &Path) -> Result<Zeroizing<String>, StoreError> {
    let path = path.to_owned();
    blocking(move || read_shared(&path)).await
}
