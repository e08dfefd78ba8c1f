//! Renews a login: one renewal at a time for all gateways of the user, and the new tokens are on
//! the disk before anyone uses them.

use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use super::super::StoreError;
use super::fault::again;
use super::held::HeldLogins;
use super::issuer::{IssuerClients, NotRenewed};
use super::lock::LoginLock;
use super::place::{HeldTokens, OwnTokens, TokenPlace};
use crate::credential::login::{Issuer, Login, TokenGrant, Tokens};
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
        let held = self.read().await?;
        match &self.login.issuer {
            _ if !held.is_due() => Ok(held),
            Some(issuer) if held.tokens.refresh.is_some() => self.renewed(held, issuer).await,
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
            NotRenewed::Failed(cause) => cause,
        }
    }

    pub(super) async fn read(&self) -> Result<HeldTokens, StoreError> {
        let read = self.place.read(self.held.rows.as_ref()).await?;
        read.ok_or_else(|| StoreError::NoLogin(again(self.login).into()))
    }

    async fn renewed(&self, held: HeldTokens, issuer: &Issuer) -> Result<HeldTokens, StoreError> {
        // Who holds the lock is renewing them, and they serve meanwhile.
        let wait = match held.serves() {
            true => Duration::ZERO,
            false => LONGEST_WAIT,
        };
        let mut lock = match self.lock(wait).await {
            Ok(Some(lock)) => lock,
            Ok(None) | Err(_) if held.serves() => return Ok(held),
            Ok(None) => return Err(StoreError::TimedOut(wait)),
            Err(cause) => return Err(cause),
        };
        let mut held = self.read().await?;
        for _ in 0..MOST_READS {
            let Some(refresh) = held.tokens.refresh.clone().filter(|_| held.is_due()) else {
                return Ok(held);
            };
            self.place.check(&held)?;
            let digest = digest(&refresh);
            self.check_refused(&digest)?;
            lock.note(&note(&digest))?;
            match self.issuers.renew(issuer, &held.tokens, &refresh).await {
                Ok(tokens) => return self.kept(held, &tokens, &mut lock).await,
                // Somebody else may have renewed them meanwhile.
                Err(NotRenewed::Refused(word)) => {
                    let now = self.read().await?;
                    if now.tokens.refresh.as_ref() == Some(&refresh) {
                        return Err(self.refused(word, digest, &mut lock));
                    }
                    held = now;
                }
                Err(NotRenewed::Failed(cause)) => {
                    // A token that was sent and not answered may be used up.
                    if !matches!(cause, StoreError::BrokenOff(_) | StoreError::TimedOut(_)) {
                        lock.clear()?;
                    }
                    tracing::warn!(login = %self.login.name, %cause, "a login was not renewed");
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
        lock: &mut LoginLock,
    ) -> Result<HeldTokens, StoreError> {
        if tokens.expires.is_none() {
            tracing::warn!(login = %self.login.name, "an issuer does not say when its token ends; it counts for an hour");
        }
        let used = held.tokens.refresh.clone();
        for _ in 0..MOST_READS {
            let (rows, new) = (self.held.rows.as_ref(), (self.login, tokens));
            let written = self.place.write(rows, &held, new).await;
            let is_written = written.map_err(|cause| {
                self.over(&format!("its new tokens could not be kept: {cause}"))
            })?;
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

pub(super) fn digest(token: &str) -> String {
    hex(&Sha256::digest(token.as_bytes()))
}

/// What is left in the lock's file while a renewal is under way: which token was sent, and when.
pub(super) fn note(digest: &str) -> String {
    let now = time::OffsetDateTime::from(SystemTime::now());
    let now = now.format(&time::format_description::well_known::Rfc3339);
    format!("{digest} {}", now.unwrap_or_default())
}

/// How long a login's lock is waited for.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How often a place may change under a renewal.
const MOST_READS: usize = 4;
const NO_STATE: &str = "a login is renewed only where gateways can lock it: let `HOME` or \
                        `XDG_STATE_HOME` name a folder of this user";
