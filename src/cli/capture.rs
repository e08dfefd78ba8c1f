//! Keeps the logins that sessions make, each for its session alone.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::app::App;
use super::failure::Failure;
use super::generation;
use crate::credential::Stored;
use crate::credential::login::{
    AskedTokens, ClientSecret, Issuer, KnownLogin, Login, LoginHolder, LoginPlace, LoginToken,
    RequestFormat, TokenGrant, TokenKind, Tokens, UnmappedToken,
};
use crate::gateway::{CaptureFuture, Captures, Snapshot};
use crate::message::{Authority, HostPattern, Origin, OriginPattern, Place, Scheme};
use crate::names::{CredentialName, SessionId};
use crate::policy::{Source, generate};
use crate::session::{Foreign, Session};

/// A login that a session made where nobody had configured one.
#[derive(Clone)]
pub(super) struct CapturedLogin {
    pub(super) session: SessionId,
    /// Where its client wanted to use it.
    resource: Option<String>,
    pub(super) login: Login,
}

/// What sessions made of logins, and ended.
#[derive(Default)]
pub(super) struct SessionLogins(Mutex<Known>);

#[derive(Default)]
struct Known {
    captured: Vec<CapturedLogin>,
    /// The logins that were ended for a session.
    ended: BTreeSet<(SessionId, CredentialName)>,
}

impl CapturedLogin {
    /// What its session may hold of it. Its origins take other credentials as before.
    pub(super) fn stored(&self) -> Vec<Stored> {
        let mut stored = self.login.stored();
        for one in &mut stored {
            one.binding.foreign = Foreign::Pass;
        }
        stored
    }

    /// The policies that lend it to its session.
    pub(super) fn policies(&self) -> Source {
        let name = self.login.credential(TokenKind::Access);
        let origins = self.login.tokens.iter().flat_map(|token| &token.origins);
        let lend = |origin: &OriginPattern| {
            let (host, port) = (origin.hosts.to_string(), Some(origin.port));
            generate::permit_lend(Some(&self.session), &name, &host, port)
        };
        let text: String = origins.map(lend).collect();
        Source::new(&format!("login {name}"), text)
    }

    /// Where its endpoint is known.
    pub(super) fn known(&self) -> KnownLogin {
        KnownLogin {
            login: self.login.clone(),
            holder: LoginHolder::Session(self.session.clone()),
        }
    }

    fn is_of(&self, session: &SessionId, asked: &AskedTokens) -> bool {
        let issuer = self.login.issuer.as_ref();
        self.session == *session
            && self.resource == asked.request.resource
            && issuer.is_some_and(|one| one.endpoint.is(&asked.endpoint) && asked.is_by(one))
    }
}

impl SessionLogins {
    /// The logins of sessions for which `lives` holds. The others are forgotten.
    pub(super) fn of_live(&self, lives: impl Fn(&SessionId) -> bool) -> Vec<CapturedLogin> {
        let mut known = self.0.lock();
        known.captured.retain(|one| lives(&one.session));
        known.ended.retain(|(session, _)| lives(session));
        known.captured.clone()
    }

    /// Whether a session may hold this credential, as far as it is a token of a login.
    pub(super) fn may_hold(&self, session: &SessionId, credential: &CredentialName) -> bool {
        let known = self.0.lock();
        let of_login = |one: &&CapturedLogin| one.login.has(credential);
        let mut captured = known.captured.iter().filter(of_login).peekable();
        let is_own = captured.peek().is_none() || captured.any(|one| one.session == *session);
        is_own && !known.ended.contains(&(session.clone(), credential.clone()))
    }

    fn end(&self, session: &SessionId, login: &Login, has_ended: bool) {
        let mut known = self.0.lock();
        for kind in TokenKind::ALL {
            let one = (session.clone(), login.credential(kind));
            match has_ended {
                true => known.ended.insert(one),
                false => known.ended.remove(&one),
            };
        }
    }
}

/// Keeps the logins of a program's sessions.
pub(super) struct LoginCapture(pub(super) Weak<App>);

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
        let snapshot = self.shared.current();
        let kinds = TokenKind::ALL.into_iter();
        let kinds: Vec<_> = kinds.filter(|kind| tokens.of(*kind).is_some()).collect();
        let (login, new) = match self.known_login(session.id(), asked) {
            Some(login) => (login, None),
            None => {
                let captured = self.new_login(&snapshot, session, asked)?;
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

    /// The login that a session has already, whose tokens these are.
    fn known_login(&self, session: &SessionId, asked: &AskedTokens) -> Option<Login> {
        let captured = self.logins.0.lock();
        let captured = captured
            .captured
            .iter()
            .find(|one| one.is_of(session, asked));
        let mut configured = asked
            .logins()
            .filter(|one| one.holder == LoginHolder::Everyone);
        let captured = captured.map(|one| one.login.clone());
        captured.or_else(|| configured.next().map(|one| one.login.clone()))
    }

    /// The login that a session made where none is configured: as a preset knows it, else for the
    /// resource that its client named, else for the endpoint's own origin.
    fn new_login(
        &self,
        snapshot: &Snapshot,
        session: &Session,
        asked: &AskedTokens,
    ) -> Result<CapturedLogin, UnmappedToken> {
        let server = &asked.endpoint.origin;
        if server.scheme == Scheme::Http && !server.authority.host.is_loopback() {
            return Err(UnmappedToken::Cleartext);
        }
        let captured = self.logins.0.lock();
        let own = captured
            .captured
            .iter()
            .filter(|one| one.session == *session.id());
        if own.count() >= MOST_LOGINS {
            return Err(UnmappedToken::TooMany);
        }
        let policies = snapshot.policies.generation();
        let groups = session.groups(policies.number());
        let bindings = snapshot.credentials.bindings();
        let is_free = |origin: &OriginPattern| {
            let host = origin.hosts.host();
            policies.may_resolve(session.id(), &groups, host) && !bindings.guard(origin)
        };
        let mut preset = asked
            .logins()
            .filter(|one| one.holder == LoginHolder::Nobody);
        let mut login = match preset.next() {
            Some(known) => known.login.clone(),
            None => unknown_login(asked).ok_or(UnmappedToken::Host)?,
        };
        for kind in TokenKind::ALL {
            if login.tokens.iter().all(|token| token.kind != kind) {
                login.tokens.push(LoginToken::kept(kind));
            }
        }
        let all = login.tokens.iter_mut();
        all.for_each(|token| token.origins.retain(is_free));
        if login.tokens.iter().all(|token| token.origins.is_empty()) {
            return Err(UnmappedToken::Host);
        }
        let is_taken = |name: &CredentialName| {
            bindings.has(name) || captured.captured.iter().any(|one| one.login.name == *name)
        };
        let base = login.name.clone();
        let others = (2..).map_while(|n| CredentialName::new(&format!("{base}-{n}")).ok());
        let mut names = std::iter::once(base.clone()).chain(others);
        login.name = names
            .find(|name| !is_taken(name))
            .ok_or(UnmappedToken::TooMany)?;
        Ok(CapturedLogin {
            session: session.id().clone(),
            resource: asked.request.resource.clone(),
            login,
        })
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
            let is_new = new.is_some();
            app.logins.0.lock().captured.extend(new);
            let next = match is_new {
                false => None,
                true => Some(generation::with_logins(
                    &before,
                    &latest.read,
                    &app.captured(),
                )?),
            };
            let current = next.as_ref().unwrap_or(&before);
            if let Some(phantoms) = app.issue_next(&before, current, &session).await? {
                session.hold(&phantoms);
            }
            if let Some(next) = next {
                app.shared.replace(next);
            }
            Ok(())
        };
        self.beside(run).await
    }

    /// The logins that live sessions made.
    pub(super) fn captured(&self) -> Vec<CapturedLogin> {
        let live = |id: &SessionId| {
            let session = self.shared.sessions.get(id);
            session.is_some_and(|session| !session.is_over())
        };
        self.logins.of_live(live)
    }
}

fn unkept(failure: &Failure) -> UnmappedToken {
    let why = failure.why.as_deref().unwrap_or_default();
    tracing::error!("{}: {why}", failure.what);
    UnmappedToken::Unkept
}

/// The login of an endpoint that no preset knows.
fn unknown_login(asked: &AskedTokens) -> Option<Login> {
    let request = &asked.request;
    let named = request.resource.as_deref().and_then(origin_of);
    let origin = named.unwrap_or_else(|| asked.endpoint.origin.clone());
    let bearer = "header:authorization:Bearer".parse().ok()?;
    let access = LoginToken {
        origins: vec![OriginPattern {
            scheme: origin.scheme,
            hosts: HostPattern::Exact(origin.authority.host.clone()),
            port: origin.authority.port,
        }],
        places: vec![bearer, Place::BasicPassword],
        ..LoginToken::kept(TokenKind::Access)
    };
    Some(Login {
        name: CredentialName::new(origin.authority.host.as_str()).ok()?,
        place: LoginPlace::State,
        issuer: Some(Issuer {
            endpoint: asked.endpoint.clone(),
            revocation: None,
            client: request.client.clone(),
            client_secret: request.secret.clone().map(ClientSecret),
            secret: None,
            scopes: Vec::new(),
            grant: TokenGrant::Refresh,
            requests: match request.is_json {
                true => RequestFormat::Json,
                false => RequestFormat::Form,
            },
        }),
        tokens: vec![access],
    })
}

/// The origin of a resource's URL, or of the name of a Docker registry.
fn origin_of(resource: &str) -> Option<Origin> {
    let (scheme, rest) = match resource.split_once("://") {
        None => (Scheme::Https, resource),
        Some(("https", rest)) => (Scheme::Https, rest),
        Some(("http", rest)) => (Scheme::Http, rest),
        Some(_) => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = match authority {
        // It issues tokens under the name of its first address.
        "registry.docker.io" => "registry-1.docker.io",
        other => other,
    };
    let authority = Authority::parse(authority.as_bytes(), Some(scheme.default_port())).ok()?;
    let is_host = authority.host.as_str().contains('.') || authority.host.ip().is_some();
    is_host.then_some(Origin { scheme, authority })
}

/// The most logins that one session makes.
const MOST_LOGINS: usize = 64;
