//! The store of logins: provides the tokens of a session's login, renewed in time.

use std::sync::Arc;
use std::time::Duration;

use gateway_message::Origin;
use gateway_names::{CredentialName, SessionId};
use gateway_state::{LoginRows, RowName};

use super::super::material::Material;
use super::super::{
    Backend, HttpClient, SecretRef, SecretSource, SecretStore, StoreError, StoreFuture,
};
use super::held::{HeldLogins, SessionGrant};
use super::issuer::IssuerClients;
use super::place::TokenPlace;
use super::renewing::{LoginRenewal, maker};
use super::rows::{KeySource, SealedRows};
use crate::login::{Issuer, Login, LoginPlace};

/// The logins of a configuration, and the clients for their issuers.
#[derive(Default)]
pub struct LoginSettings {
    /// The logins.
    pub logins: Vec<Login>,
    /// The client for each server of their issuers.
    pub clients: Vec<(Origin, Arc<dyn HttpClient>)>,
    /// The stored rows and their key; `None` without a state folder.
    pub rows: Option<(LoginRows, KeySource)>,
}

/// The logins that the gateway renews.
#[derive(Default)]
pub(in super::super) struct LoginStore {
    logins: Vec<Arc<Login>>,
    pub(super) issuers: IssuerClients,
    pub(super) held: Arc<HeldLogins>,
}

impl LoginStore {
    /// Creates a store of these logins; `source` provides the secrets for requests to issuers.
    pub(in super::super) fn new(
        settings: LoginSettings,
        source: impl Fn(&SecretRef) -> SecretSource,
    ) -> Self {
        let rows = settings.rows;
        if let Some((rows, _)) = &rows
            && let Err(cause) = rows.forget_unkept(LONGEST_UNKEPT)
        {
            tracing::warn!(%cause, "what sessions logged in to long ago was not forgotten");
        }
        let logins = settings.logins.iter();
        let issuers = logins.filter_map(|login| login.issuer.as_ref());
        let secrets = issuers.flat_map(Issuer::references).map(source);
        let issuers = IssuerClients {
            clients: settings.clients,
            secrets: secrets.collect(),
        };
        let rows = rows.map(|(rows, key)| SealedRows::new(rows, key));
        Self {
            logins: settings.logins.into_iter().map(Arc::new).collect(),
            issuers,
            held: Arc::new(HeldLogins::new(rows)),
        }
    }

    /// Returns these logins, with the state that the process has of them.
    pub(in super::super) fn after(&self, before: &Self) -> Self {
        Self {
            logins: self.logins.clone(),
            issuers: self.issuers.clone(),
            held: before.held.clone(),
        }
    }

    /// Whether a login has the same place, and is renewed in the same way.
    pub(in super::super) fn is_same(&self, before: &Self, name: &CredentialName) -> bool {
        let (Some(one), Some(other)) = (self.named(name), before.named(name)) else {
            return false;
        };
        let server = one.issuer.as_ref().map(|issuer| &issuer.endpoint.origin);
        let way = |store: &'_ Self| Some(store.issuers.client(server?)?.clone());
        let is_same_way = match (way(self), way(before)) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one, &other),
            (one, other) => one.is_none() && other.is_none(),
        };
        one.place == other.place && one.issuer == other.issuer && is_same_way
    }

    /// Returns a login of the configuration.
    pub(super) fn named(&self, name: &CredentialName) -> Option<&Arc<Login>> {
        self.logins.iter().find(|login| login.name == *name)
    }

    /// Forgets what a session did with logins, when it ends.
    pub(in super::super) fn end(&self, session: &SessionId) {
        self.held.end(session);
    }

    /// Whether there are any logins.
    pub(in super::super) fn is_any(&self) -> bool {
        !self.logins.is_empty()
    }

    /// Returns a session's login of this name, and the place of its tokens: a login that the
    /// session made comes first, then the row kept for the user, then the file of its program.
    pub(super) fn of_session(
        &self,
        session: &SessionId,
        name: &CredentialName,
    ) -> Result<(Arc<Login>, TokenPlace), StoreError> {
        match self.held.own(session, name) {
            Some(SessionGrant::Captured(login, place)) => return Ok((login, place)),
            Some(SessionGrant::Ended) => return Err(StoreError::Ended),
            None => {}
        }
        let login = self.named(name).ok_or(StoreError::Absent)?;
        let kept = RowName::kept(name.clone());
        let is_kept = || {
            self.held
                .rows
                .as_ref()
                .is_some_and(|rows| rows.rows.has(&kept))
        };
        let place = match &login.place {
            LoginPlace::File(file) if !is_kept() => TokenPlace::File(Arc::new(file.clone())),
            _ => TokenPlace::Row(kept),
        };
        Ok((login.clone(), place))
    }

    /// Returns a session's login, with everything that its renewal needs.
    pub(super) fn renewal(
        &self,
        session: &SessionId,
        name: &CredentialName,
    ) -> Result<LoginRenewal<'_>, StoreError> {
        let own = self.held.own(session, name).map(|_| session.clone());
        let (login, place) = self.of_session(session, name)?;
        Ok(LoginRenewal {
            login,
            place,
            holder: (name.clone(), own),
            issuers: &self.issuers,
            held: &self.held,
            refused: None,
        })
    }

    async fn tokens(
        &self,
        (from, session): (&Backend, Option<&SessionId>),
        renews: bool,
    ) -> Result<Material, StoreError> {
        let session = session.ok_or(StoreError::NoSession)?;
        let Backend::Login(name) = from else {
            return Err(StoreError::Absent);
        };
        let renewal = self.renewal(session, name)?;
        let held = if renews || maker(&renewal.login).is_some() {
            renewal.current().await?
        } else {
            renewal.read().await?
        };
        Ok(held.material())
    }
}

impl SecretStore for LoginStore {
    fn fetch<'a>(
        &'a self,
        from: &'a Backend,
        session: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Material> {
        Box::pin(self.tokens((from, session), true))
    }

    fn look<'a>(
        &'a self,
        from: &'a Backend,
        session: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Material> {
        Box::pin(self.tokens((from, session), false))
    }
}

/// How long a person may keep a login that a session made, from its last renewal on.
const LONGEST_UNKEPT: Duration = Duration::from_secs(30 * 24 * 3600);
