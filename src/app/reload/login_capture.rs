//! Keeps the logins that sessions make, each for its session alone.

use std::sync::{Arc, Weak};

use crate::app::login::captured::CapturedLogin;
use crate::app::reload::generation;
use crate::app::reload::source::ReadConfig;
use crate::app::{App, Failure};
use crate::credential::ConfiguredCredential;
use crate::credential::login::{AskedTokens, Login, TokenKind, Tokens, UnmappedToken};
use crate::gateway::{CaptureFuture, Captures, Snapshot};
use crate::names::SessionId;
use crate::session::Session;

/// Keeps the logins of a program's sessions.
pub(crate) struct LoginCapture(pub(crate) Weak<App>);

impl Captures for LoginCapture {
    fn capture<'a>(
        &'a self,
        session: &'a Arc<Session>,
        asked: &'a AskedTokens,
        tokens: Tokens,
    ) -> CaptureFuture<'a, Result<Login, UnmappedToken>> {
        Box::pin(async move {
            let app = self.0.upgrade().ok_or(UnmappedToken::Unkept)?;
            app.capture(session, asked, tokens).await
        })
    }

    fn end<'a>(&'a self, session: &'a Arc<Session>, login: &'a Login) -> CaptureFuture<'a, ()> {
        Box::pin(async move {
            if let Some(app) = self.0.upgrade() {
                let stores = app.shared.current().credentials.stores().clone();
                stores.logins().end(session.id(), &login.name).await;
                app.logins.end(session.id(), login, true);
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
        asked: &AskedTokens,
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
        let logins = snapshot.credentials.stores().logins();
        let taken = logins.take(session.id(), &login, tokens).await;
        taken.map_err(|error| unkept(&Failure::of("a login cannot be kept", &error)))?;
        self.logins.end(session.id(), &login, false);
        let phantoms = session.phantoms();
        let lacks = |kind: &TokenKind| phantoms.of(&login.credential(*kind)).is_none();
        if new.is_some() || kinds.iter().any(lacks) {
            let issued = self.reissue(session, new).await;
            issued.map_err(|failure| unkept(&failure))?;
        }
        Ok(login)
    }

    /// Has a session hold the phantoms of what it may hold now, with a login that it made.
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

    /// The next generation, with a login that a session made.
    fn with_login(
        &self,
        before: &Snapshot,
        read: &ReadConfig,
        login: CapturedLogin,
    ) -> Result<Snapshot, Failure> {
        if !self.logins.add(login.clone()) {
            let what = "a session logs in at too many services at once";
            return Err(Failure::new(what));
        }
        let next = generation::with_logins(before, read, &self.captured(&read.resolved.stored));
        next.inspect_err(|_| self.logins.remove(&login))
    }

    /// The logins that live sessions made, beside the credentials of a configuration.
    pub(crate) fn captured(&self, stored: &[ConfiguredCredential]) -> Vec<CapturedLogin> {
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
