//! What is done with logins besides lending them: those of sessions are taken, kept and forgotten.

use std::sync::Arc;
use std::time::SystemTime;

use gateway_message::Origin;
use gateway_names::{CredentialName, SessionId};
use gateway_state::{GrantId, RowName};
use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::super::{Backend, HttpClient, StoreError, Stores};
use super::fault::of_state;
use super::held::SessionGrant;
use super::lock::{LoginLock, digest};
use super::place::TokenPlace;
use super::renewing::{LONGEST_WAIT, LoginRenewal};
use super::rows::{RowLogin, SealedRows};
use super::serving::LoginStore;
use crate::login::{Login, LoginPlace, Tokens};
use crate::secret::Secret;

/// The logins of the stores, and what sessions have of them.
pub struct Logins {
    stores: Stores,
    store: Arc<LoginStore>,
}

/// What was forgotten of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten {
    /// Whether anything was kept.
    pub was_kept: bool,
    /// Whether the issuer said that it ended the grant.
    pub is_revoked: bool,
}

/// What is kept of a login cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the login `{}` cannot be read: {cause}", name.login)]
pub struct UnreadRow {
    /// The row.
    pub name: RowName,
    cause: StoreError,
}

impl Stores {
    /// The logins.
    pub fn logins(&self) -> Logins {
        Logins {
            stores: self.clone(),
            store: self.login_store().clone(),
        }
    }
}

impl Logins {
    /// Whether this was not said of a login lately.
    pub(crate) fn is_new(&self, name: &CredentialName, why: &str) -> bool {
        self.store.held.is_new(name, why)
    }

    /// Writes down what a session's login is for now.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read or written.
    pub async fn rewrite(&self, session: &SessionId, login: &Login) -> Result<(), StoreError> {
        let (_, place) = self.store.of_session(session, &login.name)?;
        let held = place.read(self.store.held.rows.as_ref()).await?;
        let held = held.ok_or(StoreError::Absent)?;
        self.take(session, login, held.tokens).await
    }

    /// Takes a login that a session made: it is the session's until it ends. It is written down,
    /// so that a person may keep it; where that cannot be done, it is in memory alone.
    ///
    /// # Errors
    /// [`StoreError`] if others hold its lock.
    pub async fn take(
        &self,
        session: &SessionId,
        login: &Login,
        mut tokens: Tokens,
    ) -> Result<(), StoreError> {
        if tokens.refresh.is_none() {
            tokens.refresh = self.former_refresh(session, login, &tokens).await;
        }
        let login = Arc::new(Login {
            place: LoginPlace::State,
            ..login.clone()
        });
        let place = match self.written(session, &login, &tokens).await {
            Ok(name) => TokenPlace::Row(name),
            Err(cause) => {
                tracing::warn!(login = %login.name, %cause, "a login is held for its session alone");
                TokenPlace::Memory(Arc::new(Mutex::new((tokens, SystemTime::now()))))
            }
        };
        let of = (session.clone(), login.name.clone());
        let own = SessionGrant::Captured(login.clone(), place);
        self.store.held.of_sessions.lock().insert(of, own);
        self.drop_read(session, &login.name).await;
        Ok(())
    }

    /// The refresh token that a session was given before: an issuer may give it with the first
    /// answer alone.
    async fn former_refresh(
        &self,
        session: &SessionId,
        login: &Login,
        tokens: &Tokens,
    ) -> Option<Zeroizing<String>> {
        let Some(SessionGrant::Captured(former, place)) = self.store.held.own(session, &login.name)
        else {
            return None;
        };
        let rows = self.store.held.rows.as_ref();
        let held = place.read(rows).await.ok().flatten()?.tokens;
        let (was, is) = (held.account(), tokens.account());
        let is_same = former.issuer == login.issuer && (was == is || was.is_none() || is.is_none());
        held.refresh.filter(|_| is_same)
    }

    /// Ends a session's login, as when it logs out. What the user keeps outside stays; a grant that
    /// the session was given is ended at its issuer. Returns whether the issuer said that it did.
    pub async fn end(&self, session: &SessionId, name: &CredentialName) -> bool {
        let of = (session.clone(), name.clone());
        let before = self
            .store
            .held
            .of_sessions
            .lock()
            .insert(of, SessionGrant::Ended);
        self.drop_read(session, name).await;
        let Some(SessionGrant::Captured(login, place)) = before else {
            return false;
        };
        let rows = self.store.held.rows.as_ref();
        let tokens = place.read(rows).await.ok().flatten();
        if let (TokenPlace::Row(name), Some(rows)) = (&place, rows) {
            match rows.remove(name).await {
                Ok(true) => {}
                // A person has kept it.
                Ok(false) => return false,
                Err(cause) => {
                    tracing::warn!(login = %login.name, %cause, "a login was not forgotten");
                }
            }
        }
        match tokens {
            Some(held) => self.revoked(&login, &held.tokens).await,
            None => false,
        }
    }

    /// Forgets what a session did with logins, of which the next one of its name has nothing.
    pub fn leave(&self, session: &SessionId) {
        self.store.end(session);
    }

    /// The row of what a session logged in to, if that is written down.
    pub fn grant(&self, session: &SessionId, name: &CredentialName) -> Option<GrantId> {
        match self.store.held.own(session, name)? {
            SessionGrant::Captured(_, TokenPlace::Row(name)) => name.grant,
            _ => None,
        }
    }

    /// Has what a session did with a login before the gateway started: it logged in by this grant,
    /// or logged out. Returns the login; `None` if it is there no more.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub async fn restore(
        &self,
        session: &SessionId,
        name: &CredentialName,
        grant: Option<GrantId>,
    ) -> Result<Option<Login>, StoreError> {
        let of = RowName {
            login: name.clone(),
            grant,
        };
        let row = match of.grant {
            None => None,
            Some(_) => self.state()?.read_grant(&of).await?,
        };
        let (own, login) = match row {
            Some(row) => {
                let login = Arc::new(row.login.clone());
                let own = SessionGrant::Captured(login, TokenPlace::Row(of));
                (own, Some(row.login))
            }
            None => (SessionGrant::Ended, None),
        };
        let of = (session.clone(), name.clone());
        self.store.held.of_sessions.lock().insert(of, own);
        Ok(login)
    }

    /// What the access token of a session's login may do, if its issuer said it.
    pub async fn scope(&self, session: &SessionId, name: &CredentialName) -> Option<String> {
        let read = self.store.renewal(session, name).ok()?.read().await;
        read.ok()?.tokens.scope
    }

    /// Notes that a service refused the access token of a session's login.
    pub(crate) fn refuse(&self, session: &SessionId, name: &CredentialName, token: &Secret) {
        if let Ok(renewal) = self.store.renewal(session, name) {
            let digest = digest(&token.text());
            self.store.held.refuse(renewal.holder, digest);
        }
    }

    /// Renews a session's login if its access token is the one that its service refused, however
    /// long that would hold by the clock. One token is renewed for that once, and one a minute.
    ///
    /// # Errors
    /// [`StoreError`] if there is no other token.
    pub(crate) async fn replace_refused(
        &self,
        session: &SessionId,
        name: &CredentialName,
    ) -> Result<(), StoreError> {
        let holder = self.store.renewal(session, name)?.holder;
        let Some(refused) = self.store.held.refused(&holder) else {
            return Ok(());
        };
        let (store, of, login) = (self.store.clone(), session.clone(), name.clone());
        // Spawned, so that a client that disconnects does not lose what the issuer has answered.
        let renewed = tokio::spawn(async move {
            let renewal = store.renewal(&of, &login)?;
            let refused = Some(refused);
            LoginRenewal { refused, ..renewal }
                .current()
                .await
                .map(drop)
        });
        let renewed = renewed.await;
        renewed.map_err(|_| StoreError::Unreachable("the renewing task ended"))??;
        self.store.held.replaced(holder);
        self.drop_read(session, name).await;
        Ok(())
    }

    /// The rows of what live sessions logged in to.
    pub fn taken(&self) -> Vec<RowName> {
        let of_sessions = self.store.held.of_sessions.lock();
        let row = |own: &SessionGrant| match own {
            SessionGrant::Captured(_, TokenPlace::Row(name)) => Some(name.clone()),
            _ => None,
        };
        of_sessions.values().filter_map(row).collect()
    }

    /// The logins in the state of which `is_wanted` holds, by their names: those that are kept, and
    /// those of sessions. One that cannot be read keeps nobody from the others.
    ///
    /// # Errors
    /// [`StoreError`] if there is no key for them, or their folder cannot be read.
    pub async fn rows(
        &self,
        is_wanted: impl Fn(&RowName) -> bool,
    ) -> Result<Vec<Result<RowLogin, UnreadRow>>, StoreError> {
        let Some(rows) = &self.store.held.rows else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for name in rows.names().await?.into_iter().filter(is_wanted) {
            rows.key().await?;
            let read = rows.read(&name).await.transpose();
            found.extend(read.map(|read| read.map_err(|cause| UnreadRow { name, cause })));
        }
        Ok(found)
    }

    /// Keeps the tokens of a login for the user.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be written.
    pub async fn write(&self, login: &Login, tokens: &Tokens) -> Result<(), StoreError> {
        let rows = self.state()?;
        let _lock = locked(rows, &login.name).await?;
        let name = RowName::kept(login.name.clone());
        let before = rows.read(&name).await?.map_or(0, |row| row.version);
        rows.write(&name, before, (login, tokens)).await
    }

    /// Keeps for the user what a session logged in to. Returns whether it is still there.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read or written.
    pub async fn keep(&self, of: &RowName) -> Result<bool, StoreError> {
        let rows = self.state()?;
        let _lock = locked(rows, &of.login).await?;
        let Some(row) = rows.read(of).await? else {
            return Ok(false);
        };
        let kept = RowName::kept(of.login.clone());
        let before = rows.read(&kept).await?;
        let endpoint = |login: &Login| login.issuer.as_ref().map(|one| one.endpoint.clone());
        if let Some(before) = &before
            && endpoint(&before.login) != endpoint(&row.login)
        {
            // A command names the host that its login is for, and so the login.
            return Err(StoreError::LoginUnusable(of_other_issuer(&of.login).into()));
        }
        let version = before.map_or(0, |row| row.version);
        let new = (&row.login, &row.tokens);
        rows.write(&kept, version, new).await?;
        rows.remove(of).await
    }

    /// Removes what a session logged in to, and ends it where the issuer takes that.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be removed.
    pub async fn drop(&self, of: &RowLogin) -> Result<(), StoreError> {
        let rows = self.state()?;
        let _lock = locked(rows, &of.name.login).await?;
        rows.remove(&of.name).await?;
        self.revoked(&of.login, &of.tokens).await;
        Ok(())
    }

    /// Forgets all that is kept of a login, and ends its grants where the issuer takes that.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be removed.
    pub async fn forget(&self, name: &CredentialName) -> Result<Forgotten, StoreError> {
        let mut forgotten = Forgotten {
            was_kept: false,
            is_revoked: true,
        };
        let rows = self.state()?;
        let _lock = locked(rows, name).await?;
        for of in rows.names().await? {
            if of.login != *name {
                continue;
            }
            // What cannot be read can still be removed.
            let row = rows.read(&of).await.ok().flatten();
            forgotten.was_kept |= rows.remove(&of).await?;
            forgotten.is_revoked &= match row {
                Some(row) => self.revoked(&row.login, &row.tokens).await,
                None => false,
            };
        }
        forgotten.is_revoked &= forgotten.was_kept;
        Ok(forgotten)
    }

    /// The client for a server of an issuer, for the next generation.
    pub fn client(&self, server: &Origin) -> Option<Arc<dyn HttpClient>> {
        self.store.issuers.client(server).cloned()
    }

    async fn revoked(&self, login: &Login, tokens: &Tokens) -> bool {
        match &login.issuer {
            Some(issuer) => self.store.issuers.revoke(issuer, tokens).await,
            None => false,
        }
    }

    /// Writes down what a session logged in to, in the row of what it logged in to before.
    async fn written(
        &self,
        session: &SessionId,
        login: &Login,
        tokens: &Tokens,
    ) -> Result<RowName, StoreError> {
        let rows = self.state()?;
        let _lock = locked(rows, &login.name).await?;
        let name = match self.store.held.own(session, &login.name) {
            Some(SessionGrant::Captured(_, TokenPlace::Row(name))) if rows.rows.has(&name) => name,
            _ => RowName::granted(login.name.clone()).map_err(|why| of_state(&why))?,
        };
        let before = rows.read(&name).await?.map_or(0, |row| row.version);
        rows.write(&name, before, (login, tokens)).await?;
        Ok(name)
    }

    async fn drop_read(&self, session: &SessionId, name: &CredentialName) {
        let backend = Backend::Login(name.clone());
        self.stores.forget(&backend, session).await;
    }

    fn state(&self) -> Result<&SealedRows, StoreError> {
        let rows = self.store.held.rows.as_ref();
        rows.ok_or_else(|| StoreError::LoginUnusable("there is no state folder".into()))
    }
}

fn of_other_issuer(name: &CredentialName) -> String {
    format!(
        "what is kept as `{name}` is of another issuer; to replace it, run `gateway login forget {name}`, \
         and log in again"
    )
}

async fn locked(rows: &SealedRows, login: &CredentialName) -> Result<LoginLock, StoreError> {
    let lock = LoginLock::take(&rows.rows, login, None, LONGEST_WAIT).await?;
    lock.ok_or(StoreError::TimedOut(LONGEST_WAIT))
}
