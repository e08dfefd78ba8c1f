//! The gateway's own token: obtained by login, renewed early, replaced if it cannot be renewed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::IgnoredAny;
use tokio::sync::Mutex;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::super::{SecretSource, StoreError};
use super::api::{Api, VaultRequest};
use super::reply::{Auth, OwnToken, VaultReply};

/// The token, and how the gateway gets it.
pub(super) struct VaultTokens {
    login: TokenFrom,
    state: Mutex<State>,
}

/// How the gateway gets its token, with the sources of the login's secrets.
pub(super) enum TokenFrom {
    Given(SecretSource),
    AppRole {
        mount: String,
        role_id: String,
        secret_id: Option<SecretSource>,
    },
    Jwt {
        mount: String,
        role: String,
        jwt: SecretSource,
    },
    Kubernetes {
        mount: String,
        role: String,
        token_file: PathBuf,
    },
    Certificate {
        mount: String,
        role: Option<String>,
    },
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
struct AppRole<'l> {
    role_id: &'l str,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_id: Option<&'l str>,
}

#[derive(Serialize)]
struct Jwt<'l> {
    role: &'l str,
    jwt: &'l str,
}

#[derive(Serialize)]
struct Certificate<'l> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'l str>,
}

#[derive(Serialize)]
pub(super) struct Nothing {}

impl VaultTokens {
    pub(super) fn new(login: TokenFrom) -> Self {
        let state = Mutex::default();
        Self { login, state }
    }

    /// Returns the token. Only one login runs at a time.
    pub(super) async fn token(&self, api: &Api) -> Result<Arc<Token>, StoreError> {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        let held = state.held.clone();
        if let Some(held) = held.filter(|held| held.expires.is_none_or(|end| now < end)) {
            match &self.login {
                // It may have been replaced in its store.
                TokenFrom::Given(source) if !is_current(source, &held).await => {}
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
            Err(_) if !matches!(self.login, TokenFrom::Given(_)) => {
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
        match (held, &self.login) {
            (None, _) | (_, TokenFrom::Given(_)) => Ok(()),
            (Some(held), _) => {
                let question = VaultRequest::post("auth/token/revoke-self", &Nothing {});
                api.tell(&question.with_token(&held.text)).await
            }
        }
    }

    async fn log_in(&self, api: &Api, state: &mut State) -> Result<Arc<Token>, StoreError> {
        let failed = state.failed.as_ref();
        if let Some((_, cause)) = failed.filter(|(at, _)| at.elapsed() < TRY_AGAIN) {
            return Err(cause.clone());
        }
        state.logins += 1;
        match self.login.ask(api, state.logins).await {
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
        let reply: VaultReply<IgnoredAny> = api.ask(&question).await?;
        let auth = reply.auth.ok_or(StoreError::Illegible)?;
        let granted = Duration::from_secs(auth.lease_duration);
        let is_given = matches!(self.login, TokenFrom::Given(_));
        // Near the maximum lifetime, less and less is granted; a new login gives more.
        if granted < held.granted / 2 && !is_given {
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

impl TokenFrom {
    async fn ask(&self, api: &Api, number: u64) -> Result<Token, StoreError> {
        let asked = Instant::now();
        let auth = match self {
            Self::Given(source) => return adopt(api, source, number).await,
            Self::AppRole {
                mount,
                role_id,
                secret_id,
            } => {
                let secret_id = match secret_id {
                    Some(source) => Some(text(source).await?),
                    None => None,
                };
                let secret_id = secret_id.as_ref().map(|text| text.as_str());
                let content = AppRole { role_id, secret_id };
                let question = VaultRequest::post(login(mount), &content);
                auth(api, &question).await?
            }
            Self::Jwt { mount, role, jwt } => {
                let jwt = text(jwt).await?;
                let question = VaultRequest::post(login(mount), &Jwt { role, jwt: &jwt });
                auth(api, &question).await?
            }
            Self::Kubernetes {
                mount,
                role,
                token_file,
            } => {
                let jwt = service_account_token(token_file).await?;
                let question = VaultRequest::post(login(mount), &Jwt { role, jwt: &jwt });
                auth(api, &question).await?
            }
            Self::Certificate { mount, role } => {
                let name = role.as_deref();
                auth(
                    api,
                    &VaultRequest::post(login(mount), &Certificate { name }),
                )
                .await?
            }
        };
        Ok(Token::of(auth, asked, number))
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

fn login(mount: &str) -> String {
    format!("auth/{mount}/login")
}

async fn auth(api: &Api, question: &VaultRequest<'_>) -> Result<Auth, StoreError> {
    let reply: VaultReply<IgnoredAny> = api.ask(question).await?;
    reply.auth.ok_or(StoreError::Illegible)
}

/// Takes a configured token, and asks the server for its lifetime.
async fn adopt(api: &Api, source: &SecretSource, login: u64) -> Result<Token, StoreError> {
    let token = text(source).await?;
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
    tokio::task::spawn_blocking(move || super::super::file::read_shared(&path))
        .await
        .map_err(|_| StoreError::Unreachable("the reading task ended"))?
}

/// When a grant ends; one without a duration never does.
fn end(asked: Instant, granted: Duration) -> Option<Instant> {
    (!granted.is_zero()).then(|| asked + granted)
}

const TRY_AGAIN: Duration = Duration::from_secs(1);
