//! Renews a login: one renewal at a time for all gateways of the user, and the new tokens are on
//! the disk before anyone uses them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::super::StoreError;
use super::fault::again;
use super::held::HeldLogins;
use super::issuer::{IssuerClients, NotRenewed};
use super::lock::LoginLock;
use super::place::{HeldTokens, OwnTokens, TokenPlace, UnkeptTokens};
use crate::credential::login::{Issuer, Login, TokenGrant, Tokens};
use crate::message::Host;
use crate::names::hex;

/// A login, and all that its renewal needs.
pub(super) struct LoginRenewal<'r> {
    pub(super) login: &'r Login,
    pub(super) place: &'r TokenPlace,
    pub(super) issuers: &'r IssuerClients,
    pub(super) held: &'r HeldLogins,
}

impl LoginRenewal<'_> {
    /// Returns tokens that can be used now. Those that end soon are renewed first; if that fails,
    /// they serve until they end.
    pub(super) async fn current(&self) -> Result<HeldTokens, StoreError> {
        if let (Some(issuer), TokenPlace::Memory(own)) = (&self.login.issuer, self.place)
            && issuer.grant != TokenGrant::Refresh
        {
            return self.made(issuer, own).await;
        }
        let mut held = self.read().await?;
        if let Some(unkept) = held.unkept.clone() {
            held = self.kept_later(held, &unkept).await?;
        }
        match &self.login.issuer {
            _ if !held.is_due() => Ok(held),
            Some(issuer) if held.tokens.refresh.is_some() => {
                let read = held.tokens.access.clone();
                let mut renewed = self.renewed(held, issuer).await?;
                renewed.former = (renewed.tokens.access != read).then_some(read);
                Ok(renewed)
            }
            _ if held.serves() => Ok(held),
            _ => Err(self.over("its access token has ended, and nothing renews it")),
        }
    }

    /// Returns tokens that are made of a key or a secret.
    async fn made(&self, issuer: &Issuer, own: &OwnTokens) -> Result<HeldTokens, StoreError> {
        let _turn = own.turn.lock().await;
        let held = self.place.read(None).await?;
        if let Some(held) = held.as_ref().filter(|held| !held.is_due()) {
            return Ok(held.clone());
        }
        match self.issuers.make(issuer).await {
            Ok(tokens) => {
                own.put(tokens);
                self.read().await
            }
            Err(why) => {
                let cause = self.of_issuer(why);
                tracing::warn!(login = %self.login.name, %cause, "a token was not made");
                held.filter(HeldTokens::serves).ok_or(cause)
            }
        }
    }

    fn of_issuer(&self, why: NotRenewed) -> StoreError {
        match why {
            NotRenewed::Refused(word) => StoreError::LoginOver(
                format!("its issuer answers `{word}`; correct the `[[login]]`").into(),
            ),
            NotRenewed::Busy(host, until) => {
                if let Some(until) = until {
                    self.held.busy.lock().insert(host.clone(), until);
                }
                busy(&host, until)
            }
            NotRenewed::Failed(cause) => cause,
        }
    }

    pub(super) async fn read(&self) -> Result<HeldTokens, StoreError> {
        let read = self.place.read(self.held.rows.as_ref()).await?;
        let held = read.ok_or_else(|| StoreError::NoLogin(again(self.login).into()))?;
        let refresh = held.tokens.refresh.as_deref();
        let of = refresh.map(|refresh| digest(refresh));
        let unkept = self.held.unkept.lock();
        let newer = unkept.iter().find(|one| Some(&one.of) == of.as_ref());
        Ok(match newer.cloned() {
            Some(newer) => held.with(newer),
            None => held,
        })
    }

    /// Writes tokens to their place that it did not take before, if it takes them now.
    async fn kept_later(
        &self,
        held: HeldTokens,
        unkept: &UnkeptTokens,
    ) -> Result<HeldTokens, StoreError> {
        let Ok(mut lock) = unkept.lock.try_lock() else {
            return Ok(held);
        };
        let (rows, new) = (self.held.rows.as_ref(), (self.login, &unkept.tokens));
        if self.place.write(rows, &held, new).await.is_err() {
            return Ok(held);
        }
        lock.clear()?;
        self.held.unkept.lock().retain(|one| one.of != unkept.of);
        self.read().await
    }

    /// Holds new tokens that their place did not take, for as long as the process lives. Those
    /// before are used up.
    fn unkept(
        &self,
        held: HeldTokens,
        tokens: &Tokens,
        lock: &Arc<tokio::sync::Mutex<LoginLock>>,
    ) -> HeldTokens {
        let used = held.tokens.refresh.as_deref();
        let of = held.unkept.as_ref().map(|before| before.of.clone());
        let new = UnkeptTokens {
            of: of
                .or_else(|| used.map(|used| digest(used)))
                .unwrap_or_default(),
            tokens: tokens.clone(),
            since: SystemTime::now(),
            lock: lock.clone(),
        };
        let mut unkept = self.held.unkept.lock();
        unkept.retain(|one| one.of != new.of);
        unkept.push(new.clone());
        held.with(new)
    }

    async fn renewed(&self, held: HeldTokens, issuer: &Issuer) -> Result<HeldTokens, StoreError> {
        // Who holds the lock is renewing them, and they serve meanwhile.
        let wait = match held.serves() {
            true => Duration::ZERO,
            false => LONGEST_WAIT,
        };
        let lock = match held.unkept.as_ref().map(|unkept| unkept.lock.clone()) {
            Some(own) => own,
            None => match self.lock(wait).await {
                Ok(Some(lock)) => Arc::new(tokio::sync::Mutex::new(lock)),
                Ok(None) | Err(_) if held.serves() => return Ok(held),
                Ok(None) => return Err(StoreError::TimedOut(wait)),
                Err(cause) => return Err(cause),
            },
        };
        let (mut held, mut locked) = (self.read().await?, lock.lock().await);
        for _ in 0..MOST_READS {
            let Some(refresh) = held.tokens.refresh.clone().filter(|_| held.is_due()) else {
                return Ok(held);
            };
            let digest = digest(&refresh);
            if let Err(cause) = self.may_ask(&held, issuer, &digest).await {
                if self.held.is_new(&self.login.name, &cause.to_string()) {
                    tracing::warn!(login = %self.login.name, %cause, "a login was not renewed");
                }
                return match held.serves() {
                    true => Ok(held),
                    false => Err(cause),
                };
            }
            locked.note(&note(&digest))?;
            match self.issuers.renew(issuer, &held.tokens, &refresh).await {
                Ok(tokens) => return self.kept(held, &tokens, (&lock, &mut locked)).await,
                // Somebody else may have renewed them meanwhile.
                Err(NotRenewed::Refused(word)) => {
                    let now = self.read().await?;
                    if now.tokens.refresh.as_ref() == Some(&refresh) {
                        return Err(self.refused(word, digest, &mut locked));
                    }
                    held = now;
                }
                Err(why) => {
                    let cause = self.of_issuer(why);
                    // A token that was sent and not answered may be used up.
                    if !matches!(cause, StoreError::BrokenOff(_) | StoreError::TimedOut(_)) {
                        locked.clear()?;
                    }
                    if self.held.is_new(&self.login.name, &cause.to_string()) {
                        tracing::warn!(login = %self.login.name, %cause, "a login was not renewed");
                    }
                    return match held.serves() {
                        true => Ok(held),
                        false => Err(cause),
                    };
                }
            }
        }
        Err(StoreError::Unreachable(
            "its tokens change while they are renewed",
        ))
    }

    /// Checks that the issuer may be asked: it is not busy, has not refused this token, and what it
    /// answers can be kept.
    async fn may_ask(
        &self,
        held: &HeldTokens,
        issuer: &Issuer,
        digest: &str,
    ) -> Result<(), StoreError> {
        self.check_refused(digest)?;
        let host = &issuer.endpoint.origin.authority.host;
        let until = self.held.busy.lock().get(host).copied();
        if let Some(until) = until.filter(|until| SystemTime::now() < *until) {
            return Err(busy(host, Some(until)));
        }
        // Those in memory are no safer if they stay as they are.
        if held.unkept.is_some() {
            return Ok(());
        }
        self.place.check(held).await.map_err(|cause| {
            let why = "is not renewed, since its new tokens could not be kept";
            StoreError::LoginUnusable(format!("login `{}` {why}: {cause}", self.login.name).into())
        })
    }

    async fn lock(&self, wait: Duration) -> Result<Option<LoginLock>, StoreError> {
        if matches!(self.place, TokenPlace::Memory(_)) {
            return Ok(Some(LoginLock::default()));
        }
        let Some(rows) = &self.held.rows else {
            return Err(StoreError::LoginUnusable(NO_STATE.into()));
        };
        let program = match self.place {
            TokenPlace::File(file) => file.lock.as_deref(),
            _ => None,
        };
        LoginLock::take(&rows.rows, &self.login.name, program, wait).await
    }

    /// Writes new tokens to the place, unless somebody logged in there meanwhile.
    async fn kept(
        &self,
        mut held: HeldTokens,
        tokens: &Tokens,
        (shared, lock): (&Arc<tokio::sync::Mutex<LoginLock>>, &mut LoginLock),
    ) -> Result<HeldTokens, StoreError> {
        if tokens.expires.is_none() {
            tracing::warn!(login = %self.login.name, "an issuer does not say when its token ends; it counts for an hour");
        }
        let used = held.tokens.refresh.clone();
        for _ in 0..MOST_READS {
            let (rows, new) = (self.held.rows.as_ref(), (self.login, tokens));
            let is_written = match self.place.write(rows, &held, new).await {
                Ok(is_written) => is_written,
                Err(cause) => {
                    tracing::error!(login = %self.login.name, %cause, "new tokens are in memory alone: they could not be kept");
                    return Ok(self.unkept(held, tokens, shared));
                }
            };
            if let Some(before) = &held.unkept {
                self.held.unkept.lock().retain(|one| one.of != before.of);
            }
            held = self.read().await?;
            if is_written || held.tokens.refresh != used {
                lock.clear()?;
                return Ok(held);
            }
        }
        Err(StoreError::Unreachable(
            "its tokens change while they are kept",
        ))
    }

    fn check_refused(&self, digest: &str) -> Result<(), StoreError> {
        let refused = self.held.refused.lock();
        match refused.get(&self.login.name) {
            Some((known, why)) if known == digest => Err(StoreError::LoginOver(why.clone())),
            _ => Ok(()),
        }
    }

    /// The issuer refuses a token that is still in its place. If a gateway was ended after it had
    /// sent that token, its note stays, so that every start says so.
    fn refused(&self, word: &str, digest: String, lock: &mut LoginLock) -> StoreError {
        let left = lock.left.take().filter(|left| left.starts_with(&digest));
        let why = match left.as_deref().and_then(|left| left.split_once(' ')) {
            None => format!("its issuer answers `{word}`"),
            Some((_, when)) => format!(
                "its issuer answers `{word}`: a gateway asked for new tokens at {when}, and was ended or \
                 cut off before it had them on the disk"
            ),
        };
        let kept = match &left {
            Some(left) => lock.note(left),
            None => lock.clear(),
        };
        let over = self.over(&why);
        if let (StoreError::LoginOver(why), Ok(())) = (&over, kept) {
            let mut refused = self.held.refused.lock();
            refused.insert(self.login.name.clone(), (digest, why.clone()));
        }
        over
    }

    fn over(&self, why: &str) -> StoreError {
        StoreError::LoginOver(format!("{why}; {}", again(self.login)).into())
    }
}

/// The error of an issuer that takes no request now.
fn busy(host: &Host, until: Option<SystemTime>) -> StoreError {
    let when = match until.and_then(|until| OffsetDateTime::from(until).format(&Rfc3339).ok()) {
        Some(when) => format!("until {when}"),
        None => "and does not say until when".to_owned(),
    };
    StoreError::LoginUnusable(format!("its issuer `{host}` is busy {when}; retry then").into())
}

pub(super) fn digest(token: &str) -> String {
    hex(&Sha256::digest(token.as_bytes()))
}

/// What is left in the lock's file while a renewal is under way: which token was sent, and when.
pub(super) fn note(digest: &str) -> String {
    let now = OffsetDateTime::from(SystemTime::now()).format(&Rfc3339);
    format!("{digest} {}", now.unwrap_or_default())
}

/// How long a login's lock is waited for.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How often a place may change under a renewal.
const MOST_READS: usize = 4;
const NO_STATE: &str = "a login is renewed only where gateways can lock it: let `HOME` or \
                        `XDG_STATE_HOME` name a folder of this user";
