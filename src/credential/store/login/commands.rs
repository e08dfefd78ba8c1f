//! Operations on logins other than lending: those of sessions are taken, kept and forgotten.

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

/// The logins of the stores, and the logins that sessions made.
pub struct Logins {
    stores: Stores,
    store: Arc<LoginStore>,
}

/// The result of forgetting a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForgetOutcome {
    /// Whether any row was removed.
    pub was_kept: bool,
    /// Whether the issuer confirmed that it ended the grants.
    pub is_revoked: bool,
}

/// A stored login cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the login `{}` cannot be read: {cause}", name.login)]
pub struct UnreadRow {
    /// The row.
    pub name: RowName,
    cause: StoreError,
}

impl Stores {
    /// Returns the logins.
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

    /// Stores a session's login again, with its present settings.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read or written.
    pub async fn rewrite(&self, session: &SessionId, login: &Login) -> Result<(), StoreError> {
        let (_, place) = self.store.of_session(session, &login.name)?;
        let held = place.read(self.store.held.rows.as_ref()).await?;
        let held = held.ok_or(StoreError::Absent)?;
        self.take(session, login, held.tokens).await
    }

    /// Takes a login that a session made, which belongs to the session until it ends. The login is
    /// stored, so that a person may keep it; if that fails, it is in memory alone.
    ///
    /// # Errors
    /// [`StoreError`] if another process holds its lock.
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

    /// Returns the refresh token that the session was given before: an issuer may give it only with
    /// the first response.
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

    /// Ends a session's login, as when it logs out. The user's own login stays; a grant of the
    /// session is ended at its issuer. Returns whether the issuer confirmed that.
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
                // A person has kept the grant.
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

    /// Forgets what a session did with logins. The next session of its name starts without logins.
    pub fn leave(&self, session: &SessionId) {
        self.store.end(session);
    }

    /// Returns the row of a login that a session made, if the login is stored.
    pub fn grant(&self, session: &SessionId, name: &CredentialName) -> Option<GrantId> {
        match self.store.held.own(session, name)? {
            SessionGrant::Captured(_, TokenPlace::Row(name)) => name.grant,
            _ => None,
        }
    }

    /// Restores what a session did with a login before the gateway started: it logged in by this
    /// grant, or logged out. Returns the login; `None` if it is no longer stored.
    ///
    /// # Errors
    /// [`StoreError`] if the login cannot be read.
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

    /// Returns the scope of the access token of a session's login, if its issuer named it.
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
    /// long that token would be valid. Renews one token once, and at most one per minute.
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
        // Spawned, so that a client that disconnects does not lose the issuer's response.
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

    /// Returns the rows of the logins that live sessions made.
    pub fn taken(&self) -> Vec<RowName> {
        let of_sessions = self.store.held.of_sessions.lock();
        let row = |own: &SessionGrant| match own {
            SessionGrant::Captured(_, TokenPlace::Row(name)) => Some(name.clone()),
            _ => None,
        };
        of_sessions.values().filter_map(row).collect()
    }

    /// Returns the stored logins for which `is_wanted` holds, by name: those of the user, and those
    /// of sessions. One that cannot be read does not hide the others.
    ///
    /// # Errors
    /// [`StoreError`] if there is no key for them, or their database cannot be read.
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

    /// Keeps for the user a login that a session made. Returns whether it still existed.
    ///
    /// # Errors
    /// [`StoreError`] if the login cannot be read or written.
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
            // Commands choose a login by its name, so one name must not change its issuer.
            return Err(StoreError::LoginUnusable(of_other_issuer(&of.login).into()));
        }
        let version = before.map_or(0, |row| row.version);
        let new = (&row.login, &row.tokens);
        rows.write(&kept, version, new).await?;
        rows.remove(of).await
    }

    /// Removes a login that a session made, and ends its grant at an issuer that supports this.
    ///
    /// # Errors
    /// [`StoreError`] if the login cannot be removed.
    pub async fn drop(&self, of: &RowLogin) -> Result<(), StoreError> {
        let rows = self.state()?;
        let _lock = locked(rows, &of.name.login).await?;
        rows.remove(&of.name).await?;
        self.revoked(&of.login, &of.tokens).await;
        Ok(())
    }

    /// Forgets all rows of a login, and ends its grants at an issuer that supports this.
    ///
    /// # Errors
    /// [`StoreError`] if a row cannot be removed.
    pub async fn forget(&self, name: &CredentialName) -> Result<ForgetOutcome, StoreError> {
        let mut forgotten = ForgetOutcome {
            was_kept: false,
            is_revoked: true,
        };
        let rows = self.state()?;
        let _lock = locked(rows, name).await?;
        for of in rows.names().await? {
            if of.login != *name {
                continue;
            }
            // A row that cannot be read can still be removed.
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

    /// Returns the client for a server of an issuer, for the next generation.
    pub fn client(&self, server: &Origin) -> Option<Arc<dyn HttpClient>> {
        self.store.issuers.client(server).cloned()
    }

    async fn revoked(&self, login: &Login, tokens: &Tokens) -> bool {
        match &login.issuer {
            Some(issuer) => self.store.issuers.revoke(issuer, tokens).await,
            None => false,
        }
    }

    /// Stores a login that a session made, in the row of the session's earlier login.
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
