//! Renews a login: one renewal at a time for all gateways of the user, and the new tokens are on
//! the disk before anyone uses them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gateway_message::Host;
use parking_lot::Mutex;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::super::StoreError;
use super::super::leased::{Failure, Held, Moment};
use super::fault::again;
use super::held::{GrantHolder, HeldLogins};
use super::issuer::{IssuerClients, RenewFault};
use super::lock::{LoginLock, digest, note};
use super::place::{HeldTokens, TokenPlace};
use crate::login::{Issuer, Login, TokenGrant, Tokens};

/// A login, with everything that its renewal needs.
pub(super) struct LoginRenewal<'r> {
    pub(super) login: Arc<Login>,
    pub(super) place: TokenPlace,
    pub(super) holder: GrantHolder,
    pub(super) issuers: &'r IssuerClients,
    pub(super) held: &'r HeldLogins,
    /// The digest of an access token that its service refused. The token counts as expired.
    pub(super) refused: Option<String>,
}

impl LoginRenewal<'_> {
    /// Returns tokens that can be used now. Tokens that end soon are renewed first; if that fails,
    /// they are used until they end.
    pub(super) async fn current(&self) -> Result<HeldTokens, StoreError> {
        if let Some(issuer) = maker(&self.login) {
            return self.made(issuer).await;
        }
        let held = self.read().await?;
        let held = self.kept_later(held).await?;
        match &self.login.issuer {
            _ if !self.is_due(&held) => Ok(held),
            Some(issuer) if held.tokens.refresh.is_some() => {
                let read = held.tokens.access.clone();
                let mut renewed = self.renewed(held, issuer).await?;
                renewed.former = (renewed.tokens.access != read).then_some(read);
                Ok(renewed)
            }
            _ if self.serves(&held) => Ok(held),
            _ => Err(self.over("its access token has ended, and nothing renews it")),
        }
    }

    fn is_refused(&self, held: &HeldTokens) -> bool {
        let refused = self.refused.as_ref();
        refused.is_some_and(|refused| *refused == digest(&held.tokens.access))
    }

    fn is_due(&self, held: &HeldTokens) -> bool {
        held.is_due() || self.is_refused(held)
    }

    fn serves(&self, held: &HeldTokens) -> bool {
        held.serves() && !self.is_refused(held)
    }

    /// Returns tokens that are made with a key or a secret, and stored nowhere.
    async fn made(&self, issuer: &Issuer) -> Result<HeldTokens, StoreError> {
        // Another issuer has other tokens.
        let leased = self.held.renewal(&self.holder, &format!("{issuer:?}"));
        let made = leased.get(async |_| match self.issuers.make(issuer).await {
            Ok(tokens) => Ok(HeldTokens::made(tokens).leased()),
            Err(why) => Err(self.failed(why.into())),
        });
        Ok(HeldTokens::clone(&*made.await?))
    }

    /// Logs why there are no new tokens.
    fn failed(&self, failure: Failure) -> Failure {
        let cause = &failure.cause;
        if self.held.is_new(&self.login.name, &cause.to_string()) {
            tracing::warn!(login = %self.login.name, %cause, "a login was not renewed");
        }
        failure
    }

    /// Reads the tokens. New tokens that could not be stored come first.
    pub(super) async fn read(&self) -> Result<HeldTokens, StoreError> {
        let read = self.place.read(self.held.rows.as_ref()).await?;
        let held = read.ok_or_else(|| StoreError::NoLogin(again(&self.login).into()))?;
        let newer = self.held.renewal(&self.holder, &held.of).held();
        Ok(match newer.filter(|newer| newer.unkept.is_some()) {
            Some(newer) => HeldTokens {
                stamp: held.stamp,
                ..HeldTokens::clone(&newer)
            },
            None => held,
        })
    }

    /// Stores tokens that could not be stored before, if this is possible now.
    async fn kept_later(&self, held: HeldTokens) -> Result<HeldTokens, StoreError> {
        let leased = self.held.renewal(&self.holder, &held.of);
        let (Some(lock), Some(_turn)) = (&held.unkept, leased.free_turn()) else {
            return Ok(held);
        };
        let (rows, new) = (self.held.rows.as_ref(), (&*self.login, &held.tokens));
        match self.place.write(rows, &held, new).await {
            Ok(true) => lock.lock().clear()?,
            _ => return Ok(held),
        }
        self.read().await
    }

    async fn renewed(&self, held: HeldTokens, issuer: &Issuer) -> Result<HeldTokens, StoreError> {
        let leased = self.held.renewal(&self.holder, &held.of);
        // The holder of the turn is renewing the tokens, which can be used meanwhile.
        let turn = match leased.free_turn() {
            Some(turn) => turn,
            None if self.serves(&held) => return Ok(held),
            None => leased.turn().await,
        };
        let Err(cause) = turn.obtain(self.asked(&held, issuer)).await else {
            return self.read().await;
        };
        // Another process may have renewed them meanwhile.
        let now = self.read().await?;
        Some(now).filter(|now| self.serves(now)).ok_or(cause)
    }

    /// Requests new tokens from the issuer, with all locks, and stores them.
    async fn asked(&self, held: &HeldTokens, issuer: &Issuer) -> Result<Held<HeldTokens>, Failure> {
        let wait = if self.serves(held) {
            Duration::ZERO
        } else {
            LONGEST_WAIT
        };
        let lock = match &held.unkept {
            Some(own) => own.clone(),
            None => match self.lock(wait).await? {
                Some(lock) => Arc::new(Mutex::new(lock)),
                None => return Err(StoreError::TimedOut(wait).into()),
            },
        };
        // Another process may have renewed them.
        let held = self.read().await?;
        let Some(refresh) = held.tokens.refresh.clone().filter(|_| self.is_due(&held)) else {
            return Ok(held.leased());
        };
        self.check(&held)
            .await
            .map_err(|why| self.failed(why.into()))?;
        let digest = digest(&refresh);
        lock.lock().note(&note(&digest))?;
        match self.issuers.renew(issuer, &held.tokens, &refresh).await {
            Ok(tokens) => Ok(self.kept(held, &tokens, &lock).await?.leased()),
            Err(RenewFault::Refused(word)) => {
                let now = self.read().await?;
                if now.tokens.refresh.as_ref() == Some(&refresh) {
                    Err(self.refused(word, &digest, &mut lock.lock()))
                } else {
                    // The refused token has been replaced meanwhile.
                    lock.lock().clear()?;
                    Ok(now.leased())
                }
            }
            Err(why) => {
                let failure = Failure::from(why);
                // A token that was sent without a response may be used up.
                let (cause, mut lock) = (&failure.cause, lock.lock());
                if !matches!(cause, StoreError::BrokenOff(_) | StoreError::TimedOut(_)) {
                    lock.clear()?;
                }
                Err(self.failed(failure))
            }
        }
    }

    /// Checks that new tokens could be stored.
    async fn check(&self, held: &HeldTokens) -> Result<(), StoreError> {
        // Tokens in memory are no safer without a renewal.
        if held.unkept.is_some() {
            return Ok(());
        }
        let proven = self.place.check(self.held.rows.as_ref(), held).await;
        proven.map_err(|cause| {
            let why = "is not renewed, since its new tokens could not be kept";
            let text = format!("login `{}` {why}: {cause}", self.login.name).into();
            // Workloads are told of a program's own file, and nothing of what else failed.
            match cause {
                StoreError::LoginUnusable(_) => StoreError::LoginUnusable(text),
                _ => StoreError::LoginState(text),
            }
        })
    }

    async fn lock(&self, wait: Duration) -> Result<Option<LoginLock>, StoreError> {
        if matches!(self.place, TokenPlace::Memory(_)) {
            return Ok(Some(LoginLock::default()));
        }
        let Some(rows) = &self.held.rows else {
            return Err(StoreError::LoginUnusable(NO_STATE.into()));
        };
        let program = match &self.place {
            TokenPlace::File(file) => file.lock.as_deref(),
            _ => None,
        };
        LoginLock::take(&rows.rows, &self.login.name, program, wait).await
    }

    /// Stores new tokens, unless another login was made there meanwhile. Tokens that cannot be
    /// stored are held for as long as the process lives: the previous ones are used up.
    async fn kept(
        &self,
        mut held: HeldTokens,
        tokens: &Tokens,
        lock: &Arc<Mutex<LoginLock>>,
    ) -> Result<HeldTokens, StoreError> {
        if tokens.expires.is_none() {
            tracing::warn!(login = %self.login.name, "an issuer does not say when its token ends; it counts for an hour");
        }
        let used = held.tokens.refresh.clone();
        for _ in 0..MOST_READS {
            let (rows, new) = (self.held.rows.as_ref(), (&*self.login, tokens));
            let is_written = match self.place.write(rows, &held, new).await {
                Ok(is_written) => is_written,
                Err(cause) => {
                    tracing::error!(login = %self.login.name, %cause, "new tokens are in memory alone: they could not be kept");
                    return Ok(HeldTokens {
                        tokens: tokens.clone(),
                        written: SystemTime::now(),
                        unkept: Some(lock.clone()),
                        ..held
                    });
                }
            };
            held = self.read().await?;
            if is_written || held.tokens.refresh != used {
                lock.lock().clear()?;
                return Ok(held);
            }
        }
        Err(StoreError::Unreachable(
            "its tokens change while they are kept",
        ))
    }

    /// Returns the failure for a token that is refused and still in its place. If a gateway was
    /// killed after it had sent the token, its note stays, so that every start reports this.
    fn refused(&self, word: &str, digest: &str, lock: &mut LoginLock) -> Failure {
        let left = lock.left.take().filter(|left| left.starts_with(digest));
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
        let over = Failure::from(self.over(&why));
        Failure {
            // The token is never presented again.
            retry_at: over.retry_at.filter(|_| kept.is_err()),
            ..over
        }
    }

    fn over(&self, why: &str) -> StoreError {
        StoreError::LoginOver(format!("{why}; {}", again(&self.login)).into())
    }
}

impl From<RenewFault> for Failure {
    fn from(why: RenewFault) -> Self {
        match why {
            RenewFault::Refused(word) => {
                let why = format!("its issuer answers `{word}`; correct the `[[login]]`");
                StoreError::LoginOver(why.into()).into()
            }
            RenewFault::Busy(host, until) => {
                let failure = Self::from(busy(&host, until));
                let left = until.and_then(|until| until.duration_since(SystemTime::now()).ok());
                Self {
                    retry_at: left.map_or(failure.retry_at, |left| Some(Moment::now().after(left))),
                    ..failure
                }
            }
            RenewFault::Failed(cause) => cause.into(),
        }
    }
}

/// Returns the error for an issuer that accepts no request now.
fn busy(host: &Host, until: Option<SystemTime>) -> StoreError {
    let when = match until.and_then(|until| OffsetDateTime::from(until).format(&Rfc3339).ok()) {
        Some(when) => format!("until {when}"),
        None => "and does not say until when".to_owned(),
    };
    StoreError::LoginUnusable(format!("its issuer `{host}` is busy {when}; retry then").into())
}

/// Returns the issuer that makes tokens with a key or a secret, so that they need no place.
pub(super) fn maker(login: &Login) -> Option<&Issuer> {
    let issuer = login.issuer.as_ref();
    issuer.filter(|issuer| issuer.grant != TokenGrant::Refresh)
}

/// How long to wait for a login's lock.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How often a place may change during a renewal.
const MOST_READS: usize = 4;
const NO_STATE: &str = "a login is renewed only where gateways can lock it: let `HOME` or \
                        `XDG_STATE_HOME` name a folder of this user";
