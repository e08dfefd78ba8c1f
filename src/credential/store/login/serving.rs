//! The store of logins: gives the tokens of a session's login, renewed in time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::super::material::Material;
use super::super::{Backend, HttpClient, SecretStore, StoreError, StoreFuture};
use super::held::{HeldLogins, OwnLogin};
use super::place::TokenPlace;
use super::renewing::Renewal;
use super::rows::{KeySource, SealedRows};
use crate::credential::login::{Login, LoginPlace, TokenEndpoint};
use crate::message::Origin;
use crate::names::{CredentialName, SessionId};
use crate::state::{LoginRows, RowName};

/// The logins of a configuration, and how their issuers are reached.
#[derive(Default)]
pub struct LoginSettings {
    /// The logins.
    pub logins: Vec<Login>,
    /// The client for each server of their issuers.
    pub clients: Vec<(Origin, Arc<dyn HttpClient>)>,
    /// Where rows are kept, and their key; `None` if there is no state.
    pub rows: Option<(LoginRows, KeySource)>,
}

/// The logins that the gateway renews.
#[derive(Default)]
pub(in super::super) struct LoginStore {
    logins: Vec<Arc<Login>>,
    clients: Vec<(Origin, Arc<dyn HttpClient>)>,
    pub(super) held: Arc<HeldLogins>,
}

impl LoginStore {
    pub(in super::super) fn new(settings: LoginSettings) -> Self {
        let rows = settings.rows;
        let rows = rows.map(|(rows, key)| SealedRows::new(rows, key));
        Self {
            logins: settings.logins.into_iter().map(Arc::new).collect(),
            clients: settings.clients,
            held: Arc::new(HeldLogins::new(rows)),
        }
    }

    /// These logins, with what the process holds of them.
    pub(in super::super) fn after(&self, before: &Self) -> Self {
        Self {
            logins: self.logins.clone(),
            clients: self.clients.clone(),
            held: before.held.clone(),
        }
    }

    /// Whether a login is kept where it was, and renewed as it was.
    pub(in super::super) fn is_same(&self, before: &Self, name: &CredentialName) -> bool {
        let (Some(one), Some(other)) = (self.named(name), before.named(name)) else {
            return false;
        };
        let way = |store: &Self| Some(store.client(&one.issuer.as_ref()?.endpoint)?.clone());
        let is_same_way = match (way(self), way(before)) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one, &other),
            (one, other) => one.is_none() && other.is_none(),
        };
        one.place == other.place && one.issuer == other.issuer && is_same_way
    }

    /// A login of the configuration.
    pub(super) fn named(&self, name: &CredentialName) -> Option<&Arc<Login>> {
        self.logins.iter().find(|login| login.name == *name)
    }

    /// The client for an endpoint's server.
    pub(super) fn client(&self, at: &TokenEndpoint) -> Option<&Arc<dyn HttpClient>> {
        let mut known = self
            .clients
            .iter()
            .filter(|(server, _)| *server == at.origin);
        known.next().map(|(_, client)| client)
    }

    /// The client for a server, for the next generation.
    pub(super) fn client_of(&self, server: &Origin) -> Option<Arc<dyn HttpClient>> {
        let mut known = self.clients.iter().filter(|(known, _)| known == server);
        known.next().map(|(_, client)| client.clone())
    }

    /// Forgets what a session did with logins, when it ends.
    pub(in super::super) fn end(&self, session: &SessionId) {
        self.held.end(session);
    }

    /// A session's login of this name, and where its tokens are: what the session logged in to
    /// itself comes first.
    pub(super) fn of_session(
        &self,
        session: &SessionId,
        name: &CredentialName,
    ) -> Result<(Arc<Login>, TokenPlace), StoreError> {
        match self.held.own(session, name) {
            Some(OwnLogin::Captured(login, place)) => return Ok((login, place)),
            Some(OwnLogin::Ended) => return Err(StoreError::Ended),
            None => {}
        }
        let login = self.named(name).ok_or(StoreError::Absent)?;
        let place = match &login.place {
            LoginPlace::File(file) => TokenPlace::File(file.clone()),
            LoginPlace::State => TokenPlace::Row(RowName::kept(name.clone())),
        };
        Ok((login.clone(), place))
    }

    async fn tokens(&self, from: &Backend, session: &SessionId) -> Result<Material, StoreError> {
        let Backend::Login(name) = from else {
            return Err(StoreError::Absent);
        };
        let (login, place) = self.of_session(session, name)?;
        let endpoint = login.issuer.as_ref().map(|issuer| &issuer.endpoint);
        let renewal = Renewal {
            login: &login,
            place: &place,
            client: endpoint.and_then(|at| self.client(at)).map(Arc::as_ref),
            held: &self.held,
        };
        let current = renewal.current().await?;
        let told = (current.end(), current.tokens.scope.clone());
        let of = (session.clone(), name.clone());
        self.held.told.lock().insert(of, told);
        Ok(current.material())
    }
}

impl SecretStore for LoginStore {
    fn fetch<'a>(
        &'a self,
        from: &'a Backend,
        session: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Material> {
        Box::pin(async move {
            let session = session.ok_or(StoreError::NoSession)?;
            self.tokens(from, session).await
        })
    }

    /// Waits for renewals under way: their answers would be lost.
    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let waited = timeout(ENDING, self.held.renewals.write()).await;
            waited.map(drop).map_err(|_| StoreError::TimedOut(ENDING))
        })
    }
}

/// Longer than a client waits for an answer.
const ENDING: Duration = Duration::from_secs(15);
