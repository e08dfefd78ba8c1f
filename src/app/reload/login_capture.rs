//! Captures the logins that sessions make, each for its session alone.

use std::sync::{Arc, Weak};

use crate::login::captured::CapturedLogin;
use crate::reload::generation;
use crate::reload::source::LoadedConfig;
use crate::{App, Failure};
use gateway_credential::login::{Login, OAuthRequest, TokenKind, Tokens, UnmappedToken};
use gateway_credential::{ConfiguredCredential, KeptCredentials};
use gateway_message::RequestHead;
use gateway_names::{CredentialName, SessionId};
use gateway_server::{CaptureFuture, Captures, Snapshot};
use gateway_session::Session;
use gateway_state::KeptLogin;

/// Captures the logins of a program's sessions.
pub struct LoginCapture(pub Weak<App>);

impl Captures for LoginCapture {
    fn capture<'a>(
        &'a self,
        session: &'a Arc<Session>,
        asked: &'a OAuthRequest,
        tokens: Tokens,
    ) -> CaptureFuture<'a, Result<Login, UnmappedToken>> {
        Box::pin(async move {
            let app = self.0.upgrade().ok_or(UnmappedToken::Unkept)?;
            app.capture(session, asked, tokens).await
        })
    }

    fn keep<'a>(&'a self, session: &'a SessionId, kept: KeptCredentials) -> CaptureFuture<'a, ()> {
        Box::pin(async move {
            let Some(app) = self.0.upgrade() else { return };
            let keep = async { app.keeper().await?.keep_temporary(session, &kept).await };
            // On failure, they last as long as this process.
            if let Err(failure) = keep.await {
                unkept(&failure);
            }
        })
    }

    fn label<'a>(&'a self, session: &'a SessionId, labels: Vec<String>) -> CaptureFuture<'a, bool> {
        Box::pin(async move {
            let Some(app) = self.0.upgrade() else {
                return false;
            };
            let keep = async { app.keeper().await?.keep_labels(session, labels).await };
            keep.await.unwrap_or_else(|failure| {
                unkept(&failure);
                false
            })
        })
    }

    fn has_homeless(&self) -> bool {
        self.0
            .upgrade()
            .is_some_and(|app| app.logins.has_homeless())
    }

    fn settle<'a>(
        &'a self,
        session: &'a Arc<Session>,
        head: &'a RequestHead,
        is_permitted: &'a (dyn Fn() -> bool + Sync),
    ) -> CaptureFuture<'a, Option<CredentialName>> {
        Box::pin(async move {
            let app = self.0.upgrade()?;
            let homeless = || app.logins.homeless(session, &head.fields);
            homeless().filter(|_| is_permitted())?;
            // Another request with this login waits until the login is in force.
            let _turn = app.logins.turn.lock().await;
            let snapshot = app.shared.current();
            let homeless = homeless()?;
            let settled = homeless.clone().settled(&snapshot, session, &head.origin)?;
            let (login, logins) = (&settled.login, snapshot.credentials.stores().logins());
            if let Err(cause) = logins.rewrite(session.id(), login).await {
                tracing::warn!(login = %login.name, %cause, "what a login is for is in memory alone");
            }
            let name = login.name.clone();
            match app.put_login_in_force(settled).await {
                Ok(()) => Some(name),
                Err(failure) => {
                    app.logins.replace(homeless);
                    unkept(&failure);
                    None
                }
            }
        })
    }

    fn end<'a>(&'a self, session: &'a Arc<Session>, login: &'a Login) -> CaptureFuture<'a, ()> {
        Box::pin(async move {
            if let Some(app) = self.0.upgrade() {
                let stores = app.shared.current().credentials.stores().clone();
                stores.logins().end(session.id(), &login.name).await;
                app.logins.end(session.id(), &login.name, true);
                app.keep_login(session.id(), login, true).await;
                if let Err(failure) = app.reissue(session, None).await {
                    unkept(&failure);
                }
            }
        })
    }
}

impl App {
    async fn capture(
        self: &Arc<Self>,
        session: &Arc<Session>,
        asked: &OAuthRequest,
        tokens: Tokens,
    ) -> Result<Login, UnmappedToken> {
        let _turn = match self.logins.known(session.id(), asked) {
            Some(_) => None,
            None => Some(self.logins.turn.lock().await),
        };
        let snapshot = self.shared.current();
        let kinds = TokenKind::ALL.into_iter();
        let kinds: Vec<_> = kinds.filter(|kind| tokens.of(*kind).is_some()).collect();
        let (login, new) = match self.logins.known(session.id(), asked) {
            Some(login) => (login, None),
            None => {
                let captured = self.logins.begin(&snapshot, session, asked)?;
                (captured.login.clone(), Some(captured))
            }
        };
        self.logins.measure(session.id(), &login.name, &tokens)?;
        let logins = snapshot.credentials.stores().logins();
        let taken = logins.take(session.id(), &login, tokens).await;
        taken.map_err(|error| unkept(&Failure::of("a login cannot be kept", &error)))?;
        self.logins.end(session.id(), &login.name, false);
        let phantoms = session.phantoms();
        let lacks = |kind: &TokenKind| phantoms.of(&login.credential(*kind)).is_none();
        if new.is_some() || kinds.iter().any(lacks) {
            let issued = self.reissue(session, new).await;
            issued.map_err(|failure| unkept(&failure))?;
        }
        self.keep_login(session.id(), &login, false).await;
        Ok(login)
    }

    /// Stores a session's change of a login for as long as the session lives.
    async fn keep_login(&self, session: &SessionId, login: &Login, has_ended: bool) {
        let stores = self.shared.current().credentials.stores().clone();
        let made = self.logins.made(session, &login.name);
        let kept = KeptLogin {
            grant: stores.logins().grant(session, &login.name),
            resource: made.and_then(|made| made.resource),
        };
        if kept.grant.is_none() && !has_ended {
            // Its tokens are only in memory.
            return;
        }
        let keep = async {
            self.keeper()
                .await?
                .keep_login(session, &login.name, kept)
                .await
        };
        // On failure, it lasts as long as this process.
        if let Err(failure) = keep.await {
            unkept(&failure);
        }
    }

    /// Restores the logins that sessions made before this process started, for sessions that are
    /// opened next. A login that cannot be read is over.
    ///
    /// # Errors
    /// Returns a [`Failure`] if a record cannot be read.
    pub async fn restore_logins(
        &self,
        read: &LoadedConfig,
        sessions: impl IntoIterator<Item = &SessionId>,
    ) -> Result<(), Failure> {
        let (before, mut is_new) = (self.shared.current(), false);
        let logins = before.credentials.stores().logins();
        let lives = |id: &&SessionId| self.shared.sessions.get(id).is_some();
        for id in sessions.into_iter().filter(|id| !lives(id)) {
            for (name, kept) in self.keeper().await?.logins(id).await? {
                let Ok(name) = CredentialName::new(&name) else {
                    continue;
                };
                let restored = logins.restore(id, &name, kept.grant).await;
                let restored = restored.unwrap_or_else(|error| {
                    unkept(&Failure::of("a login cannot be read", &error));
                    None
                });
                let known = read.resolved.logins.iter().find(|one| one.name == name);
                match (restored, known) {
                    (None, _) => self.logins.end(id, &name, true),
                    (Some(login), None) => {
                        is_new |= self.logins.add(CapturedLogin {
                            session: id.clone(),
                            is_homeless: false,
                            resource: kept.resource,
                            login,
                        });
                    }
                    (Some(_), Some(_)) => {}
                }
            }
        }
        if is_new {
            let captured = self.logins.of_live(|_| true, &read.resolved.stored);
            // A login that workloads made must not keep a gateway from starting.
            match generation::with_logins(&before, read, &captured) {
                Ok(next) => self.shared.replace(next),
                Err(failure) => drop(unkept(&failure)),
            }
        }
        Ok(())
    }

    /// Reissues the phantoms that a session may hold now, with a login that it made.
    async fn reissue(
        self: &Arc<Self>,
        session: &Arc<Session>,
        new: Option<CapturedLogin>,
    ) -> Result<(), Failure> {
        let (app, session) = (self.clone(), session.clone());
        let run = async move {
            let latest = app.reloading.latest.lock().await;
            let before = app.shared.current();
            let next = match &new {
                None => None,
                Some(new) => Some(app.with_login(&before, &latest.read, new.clone())?),
            };
            let current = next.as_ref().unwrap_or(&before);
            let issued = app.issue_next(&before, current, &session).await;
            if let (Err(_), Some(new)) = (&issued, &new) {
                app.logins.remove(new);
            }
            if let Some(phantoms) = issued? {
                session.hold(&phantoms);
            }
            if let Some(next) = next {
                app.shared.replace(next);
            }
            Ok(())
        };
        self.beside(run).await
    }

    /// Puts a generation in force that has the current state of a session's login.
    async fn put_login_in_force(self: &Arc<Self>, login: CapturedLogin) -> Result<(), Failure> {
        let app = self.clone();
        let run = async move {
            let latest = app.reloading.latest.lock().await;
            app.logins.replace(login);
            let captured = app.captured(&latest.read.resolved.stored);
            let before = app.shared.current();
            let next = generation::with_logins(&before, &latest.read, &captured)?;
            app.shared.replace(next);
            Ok(())
        };
        self.beside(run).await
    }

    /// Returns the next generation, with a login that a session made.
    fn with_login(
        &self,
        before: &Snapshot,
        read: &LoadedConfig,
        login: CapturedLogin,
    ) -> Result<Snapshot, Failure> {
        if !self.logins.add(login.clone()) {
            let what = "a session logs in at too many services at once";
            return Err(Failure::new(what));
        }
        let next = generation::with_logins(before, read, &self.captured(&read.resolved.stored));
        next.inspect_err(|_| self.logins.remove(&login))
    }

    /// Returns the logins that live sessions made and that these credentials leave free.
    pub fn captured(&self, stored: &[ConfiguredCredential]) -> Vec<CapturedLogin> {
        let live = |id: &SessionId| {
            let session = self.shared.sessions.get(id);
            session.is_some_and(|session| !session.is_over())
        };
        self.logins.of_live(live, stored)
    }
}

fn unkept(failure: &Failure) -> UnmappedToken {
    let why = failure.why.as_deref().unwrap_or_default();
    tracing::error!("{}: {why}", failure.what);
    UnmappedToken::Unkept
}
