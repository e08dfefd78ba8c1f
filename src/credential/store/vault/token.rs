//! The gateway's own token: obtained by login, renewed early, replaced if it cannot be renewed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::IgnoredAny;
use tokio::sync::Mutex;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::super::file::{blocking, read_shared};
use super::super::{SecretSource, StoreError};
use super::api::{Api, VaultRequest};
use super::reply::{Auth, OwnToken, VaultReply};
use super::settings::{LoginMethod, VaultLogin};

/// The token, and how the gateway gets it.
pub(super) struct VaultTokens {
    login: VaultLogin,
    /// Where the token or the login's secret is kept, if it has one.
    source: Option<SecretSource>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: Option<Arc<Token>>,
    renew_at: Option<Instant>,
    /// The last failure, so that a failing login is retried only once a second.
    failed: Option<(Instant, StoreError)>,
    logins: u64,
}

/// A valid token.
pub(super) struct Token {
    pub(super) text: Zeroizing<String>,
    /// The number of its login. A lease ends with the token that requested it.
    pub(super) login: u64,
    pub(super) expires: Option<Instant>,
    /// Its initial lifetime.
    granted: Duration,
    renewable: bool,
}

#[derive(Serialize)]
pub(super) struct Nothing {}

impl VaultTokens {
    pub(super) fn new(login: VaultLogin, source: Option<SecretSource>) -> Self {
        Self {
            login,
            source,
            state: Mutex::default(),
        }
    }

    fn is_given(&self) -> bool {
        matches!(self.login, VaultLogin::Token(_))
    }

    /// Returns the token. Only one login runs at a time.
    pub(super) async fn token(&self, api: &Api) -> Result<Arc<Token>, StoreError> {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        let held = state.held.clone();
        if let Some(held) = held.filter(|held| held.expires.is_none_or(|end| now < end)) {
            match &self.source {
                // It may have been replaced in its store.
                Some(source) if self.is_given() && !is_current(source, &held).await => {}
                _ => return Ok(held),
            }
        }
        self.log_in(api, &mut state).await
    }

    /// Discards a token that the server no longer accepts, so that the next call logs in again.
    pub(super) async fn reject(&self, token: &Arc<Token>) {
        let mut state = self.state.lock().await;
        state.held.take_if(|held| Arc::ptr_eq(held, token));
    }

    /// Renews the token if that is due, or logs in again.
    pub(super) async fn tend(&self, api: &Api) {
        let mut state = self.state.lock().await;
        if state.renew_at.is_none_or(|due| Instant::now() < due) {
            return;
        }
        let Some(held) = state.held.clone() else {
            return;
        };
        state.renew_at = Some(Instant::now() + TRY_AGAIN);
        match self.renew(api, &held).await {
            Ok(renewed) => state.hold(renewed),
            // It reached its maximum lifetime, or the renewal was refused.
            Err(_) if !self.is_given() => {
                if let Err(cause) = self.log_in(api, &mut state).await {
                    tracing::warn!(%cause, "the gateway could not log in to the vault anew");
                }
            }
            Err(cause) => tracing::warn!(%cause, "the vault's token was not renewed"),
        }
    }

    /// Revokes a token obtained by login, and with it everything issued under it.
    pub(super) async fn close(&self, api: &Api) -> Result<(), StoreError> {
        let held = self.state.lock().await.held.take();
        let Some(held) = held.filter(|_| !self.is_given()) else {
            return Ok(());
        };
        let question = VaultRequest::post("auth/token/revoke-self", &Nothing {});
        api.tell(&question.with_token(&held.text)).await
    }

    async fn log_in(&self, api: &Api, state: &mut State) -> Result<Arc<Token>, StoreError> {
        let failed = state.failed.as_ref();
        if let Some((_, cause)) = failed.filter(|(at, _)| at.elapsed() < TRY_AGAIN) {
            return Err(cause.clone());
        }
        state.logins += 1;
        match self.ask(api, state.logins).await {
            Ok(token) => {
                state.failed = None;
                state.hold(token);
                state.held.clone().ok_or(StoreError::Illegible)
            }
            Err(cause) => {
                let cause = StoreError::Login(Box::new(cause));
                state.failed = Some((Instant::now(), cause.clone()));
                Err(cause)
            }
        }
    }

    /// Extends the token's life. Fails if that is not worthwhile.
    async fn renew(&self, api: &Api, held: &Token) -> Result<Token, StoreError> {
        if !held.renewable {
            return Err(StoreError::NotRenewable);
        }
        let asked = Instant::now();
        let question = VaultRequest::post("auth/token/renew-self", &Nothing {});
        let question = question.with_token(&held.text);
        let auth = auth(api, &question).await?;
        let granted = Duration::from_secs(auth.lease_duration);
        // Near the maximum lifetime, less and less is granted; a new login gives more.
        if granted < held.granted / 2 && !self.is_given() {
            return Err(StoreError::NotRenewable);
        }
        Ok(Token {
            text: held.text.clone(),
            login: held.login,
            expires: end(asked, granted),
            granted: held.granted,
            renewable: auth.renewable,
        })
    }

    async fn ask(&self, api: &Api, number: u64) -> Result<Token, StoreError> {
        let secret = match &self.source {
            Some(source) => Some(text(source).await?),
            None => None,
        };
        let asked = Instant::now();
        let VaultLogin::Method { mount, method } = &self.login else {
            return adopt(api, secret.ok_or(StoreError::Absent)?, number).await;
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
        Ok(Token::of(auth(api, &question).await?, asked, number))
    }
}

impl State {
    fn hold(&mut self, token: Token) {
        // After two thirds of the remaining time, like Vault's own agent.
        self.renew_at = token.expires.map(|end| {
            let now = Instant::now();
            now + end.saturating_duration_since(now) * 2 / 3
        });
        self.held = Some(Arc::new(token));
    }
}

impl Token {
    fn of(auth: Auth, asked: Instant, login: u64) -> Self {
        let granted = Duration::from_secs(auth.lease_duration);
        Self {
            text: auth.client_token.0,
            login,
            expires: end(asked, granted),
            granted,
            renewable: auth.renewable,
        }
    }
}

async fn auth(api: &Api, question: &VaultRequest<'_>) -> Result<Auth, StoreError> {
    let reply: VaultReply<IgnoredAny> = api.ask(question).await?;
    reply.auth.ok_or(StoreError::Illegible)
}

/// Takes a configured token, and asks the server for its lifetime.
async fn adopt(api: &Api, token: Zeroizing<String>, login: u64) -> Result<Token, StoreError> {
    let asked = Instant::now();
    let question = VaultRequest::get("auth/token/lookup-self").with_token(&token);
    let reply: VaultReply<OwnToken> = api.ask(&question).await?;
    let known = reply.data.ok_or(StoreError::Illegible)?;
    let granted = Duration::from_secs(known.ttl);
    Ok(Token {
        text: token,
        login,
        expires: end(asked, granted),
        granted,
        renewable: known.renewable,
    })
}

async fn is_current(source: &SecretSource, held: &Token) -> bool {
    let kept = source.resolve(None).await;
    // If it cannot be read now, the held token stays in use.
    kept.map_or(true, |kept| kept.secret.is(held.text.as_bytes()))
}

async fn text(source: &SecretSource) -> Result<Zeroizing<String>, StoreError> {
    let kept = source.resolve(None).await.map_err(|why| why.cause)?;
    Ok(kept.secret.text())
}

/// Reads the token file that Kubernetes writes. Other users of the container may read it, which is
/// how Kubernetes sets it up; only root and this user may write it.
async fn service_account_token(path: &Path) -> Result<Zeroizing<String>, StoreError> {
    let path = path.to_owned();
    blocking(move || read_shared(&path)).await
}

/// When a grant ends; one without a duration never does.
fn end(asked: Instant, granted: Duration) -> Option<Instant> {
    (!granted.is_zero()).then(|| asked + granted)
}

const TRY_AGAIN: Duration = Duration::from_secs(1);
