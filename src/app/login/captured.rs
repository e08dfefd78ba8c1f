//! The logins that sessions made, and the origins that each is for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use memchr::memmem;
use parking_lot::Mutex;

use gateway_credential::ConfiguredCredential;
use gateway_credential::login::{
    ClientSecret, Issuer, KnownLogin, Login, LoginHolder, LoginPlace, LoginToken, OAuthRequest,
    RequestFormat, TokenGrant, TokenKind, Tokens, UnmappedToken,
};
use gateway_message::{Authority, HostPattern, Origin, OriginPattern, Place, Scheme};
use gateway_names::{CredentialName, SessionId};
use gateway_policy::{Requester, Source, generate};
use gateway_server::Snapshot;
use gateway_session::{Foreign, Session};

/// A login that a session made and that no configuration has.
#[derive(Clone)]
pub struct CapturedLogin {
    pub(crate) session: SessionId,
    /// The resource that its client wanted to use it for.
    pub resource: Option<String>,
    pub(crate) login: Login,
    /// Whether nothing named an origin for its token. It is then for its server until it is
    /// presented elsewhere, and from then on for that host alone.
    pub is_homeless: bool,
}

/// The logins that sessions made and ended.
#[derive(Default)]
pub struct SessionLogins {
    made: Mutex<CapturedLogins>,
    /// Whether any login has no host of its own yet. Each request checks this.
    has_homeless: AtomicBool,
    /// Held while a login begins, until it is in force, so that the next gets another name.
    pub turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct CapturedLogins {
    captured: Vec<CapturedLogin>,
    /// The logins that were ended for a session.
    ended: BTreeSet<(SessionId, CredentialName)>,
    /// The length of the tokens of each login of a session, in bytes.
    lengths: BTreeMap<(SessionId, CredentialName), usize>,
}

impl CapturedLogin {
    /// Returns the credentials that its session may hold. Its origins accept others as before.
    pub fn stored(&self) -> Vec<ConfiguredCredential> {
        let mut stored = self.login.stored();
        for one in &mut stored {
            one.binding.foreign = Foreign::Pass;
        }
        stored
    }

    /// Returns the policies that lend it to its session.
    pub fn policies(&self) -> Source {
        let name = self.login.credential(TokenKind::Access);
        let origins = self.login.tokens.iter().flat_map(|token| &token.origins);
        let lend = |origin: &OriginPattern| {
            let (host, port) = (origin.hosts.to_string(), Some(origin.port));
            generate::permit_lend(Some(&self.session), &name, &host, port)
        };
        let text: String = origins.map(lend).collect();
        Source::new(format!("login {name}"), text)
    }

    /// Whether these credentials leave its name and its origins free. Credentials that let others
    /// pass do.
    fn is_beside(&self, stored: &[ConfiguredCredential]) -> bool {
        let origins = self.login.tokens.iter().flat_map(|token| &token.origins);
        stored.iter().map(|one| &one.binding).all(|binding| {
            let shares = |origin: &OriginPattern| {
                let mut bound = binding.origins.iter();
                bound.any(|bound| bound.overlaps(origin))
            };
            let guards = binding.foreign != Foreign::Pass && origins.clone().any(shares);
            !self.login.has(&binding.credential) && !guards
        })
    }

    /// Returns the login as one that is known at its endpoint.
    pub fn known(&self) -> KnownLogin {
        KnownLogin {
            login: self.login.clone(),
            holder: LoginHolder::Session(self.session.clone()),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.session == other.session && self.login.name == other.login.name
    }

    fn is_of(&self, session: &SessionId, asked: &OAuthRequest) -> bool {
        let issuer = self.login.issuer.as_ref();
        self.session == *session
            && self.resource == asked.request.resource
            && issuer.is_some_and(|one| one.endpoint.is(&asked.endpoint) && asked.is_by(one))
    }
}

impl SessionLogins {
    /// Returns the logins of sessions that `lives` accepts and that these credentials leave free.
    /// The others are forgotten.
    pub fn of_live(
        &self,
        lives: impl Fn(&SessionId) -> bool,
        stored: &[ConfiguredCredential],
    ) -> Vec<CapturedLogin> {
        let mut known = self.made.lock();
        let holds = |one: &CapturedLogin| lives(&one.session) && one.is_beside(stored);
        known.captured.retain(holds);
        known.ended.retain(|(session, _)| lives(session));
        known.lengths.retain(|(session, _), _| lives(session));
        self.note(&known);
        known.captured.clone()
    }

    /// Whether a session may hold this credential, if it is a token of a login.
    pub fn may_hold(&self, session: &SessionId, credential: &CredentialName) -> bool {
        let known = self.made.lock();
        let of_login = |one: &&CapturedLogin| one.login.has(credential);
        let mut captured = known.captured.iter().filter(of_login).peekable();
        let is_own = captured.peek().is_none() || captured.any(|one| one.session == *session);
        is_own && !known.ended.contains(&(session.clone(), credential.clone()))
    }

    /// Adds a login that a session made. Returns whether it was added: others may have been added
    /// since it began.
    pub fn add(&self, login: CapturedLogin) -> bool {
        let mut known = self.made.lock();
        let captured = &mut known.captured;
        let mut others = captured.iter();
        let is_free = others.all(|one| one.login.name != login.login.name);
        let may_be = is_free && made_by(captured, &login.session) < MOST_LOGINS;
        if may_be {
            captured.push(login);
            self.note(&known);
        }
        may_be
    }

    /// Returns the login of this name that a session made.
    pub fn made(&self, session: &SessionId, name: &CredentialName) -> Option<CapturedLogin> {
        let known = self.made.lock();
        let is_it = |one: &&CapturedLogin| one.session == *session && one.login.name == *name;
        known.captured.iter().find(is_it).cloned()
    }

    /// Whether any login has no host of its own yet.
    pub fn has_homeless(&self) -> bool {
        self.has_homeless.load(Ordering::Acquire)
    }

    fn note(&self, known: &CapturedLogins) {
        let has_homeless = known.captured.iter().any(|one| one.is_homeless);
        self.has_homeless.store(has_homeless, Ordering::Release);
    }

    /// Returns the login without a host of its own whose token these fields present.
    pub fn homeless(&self, session: &Session, fields: &HeaderMap) -> Option<CapturedLogin> {
        let (presented, phantoms) = (fields.get(AUTHORIZATION)?, session.phantoms());
        let known = self.made.lock();
        let is_it = |one: &&CapturedLogin| {
            let phantom = phantoms.of(&one.login.credential(TokenKind::Access));
            let is_here = |text: &str| memmem::find(presented.as_bytes(), text.as_bytes());
            one.is_homeless
                && one.session == *session.id()
                && phantom.is_some_and(|phantom| is_here(phantom.reveal()).is_some())
        };
        known.captured.iter().find(is_it).cloned()
    }

    /// Replaces a login by its new state.
    pub fn replace(&self, login: CapturedLogin) {
        let mut known = self.made.lock();
        known.captured.retain(|one| !one.is_same(&login));
        known.captured.push(login);
        self.note(&known);
    }

    /// Removes a login that could not be put in force.
    pub fn remove(&self, login: &CapturedLogin) {
        let mut known = self.made.lock();
        known.captured.retain(|one| !one.is_same(login));
        self.note(&known);
    }

    /// Forgets the logins that a session made and ended.
    pub fn forget(&self, session: &SessionId) {
        let mut known = self.made.lock();
        known.captured.retain(|one| one.session != *session);
        known.ended.retain(|(of, _)| of != session);
        known.lengths.retain(|(of, _), _| of != session);
        self.note(&known);
    }

    /// Records the length of the tokens of a session's login.
    ///
    /// # Errors
    /// [`UnmappedToken::TooLong`] if they are too long together with the session's others: each is
    /// searched for in all of the session's responses.
    pub fn measure(
        &self,
        session: &SessionId,
        name: &CredentialName,
        tokens: &Tokens,
    ) -> Result<(), UnmappedToken> {
        let texts = TokenKind::ALL.into_iter();
        let texts = texts.filter_map(|kind| tokens.of(kind));
        let length = texts.map(|text| text.len()).sum::<usize>();
        let (lengths, of) = (
            &mut self.made.lock().lengths,
            (session.clone(), name.clone()),
        );
        let others = lengths
            .iter()
            .filter(|(other, _)| other.0 == of.0 && **other != of);
        if others.map(|(_, length)| length).sum::<usize>() + length > LONGEST_TOKENS {
            return Err(UnmappedToken::TooLong);
        }
        lengths.insert(of, length);
        Ok(())
    }

    /// Notes whether a login was ended for a session.
    pub fn end(&self, session: &SessionId, login: &CredentialName, has_ended: bool) {
        let mut known = self.made.lock();
        for kind in TokenKind::ALL {
            let one = (session.clone(), kind.of(login));
            if has_ended {
                known.ended.insert(one)
            } else {
                known.ended.remove(&one)
            };
        }
    }

    /// Returns the login, if the session has it already, that these tokens belong to.
    pub fn known(&self, session: &SessionId, asked: &OAuthRequest) -> Option<Login> {
        let captured = self.made.lock();
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

    /// Returns the login that a session makes where none is configured: a preset's, else one for
    /// the resource that its client named, else one for the endpoint's own origin.
    ///
    /// # Errors
    /// [`UnmappedToken`] if the session may have none.
    pub fn begin(
        &self,
        snapshot: &Snapshot,
        session: &Session,
        asked: &OAuthRequest,
    ) -> Result<CapturedLogin, UnmappedToken> {
        let server = &asked.endpoint.origin;
        if server.scheme == Scheme::Http && !server.authority.host.is_loopback() {
            return Err(UnmappedToken::Cleartext);
        }
        let captured = self.made.lock();
        if made_by(&captured.captured, session.id()) >= MOST_LOGINS {
            return Err(UnmappedToken::TooMany);
        }
        let bindings = snapshot.credentials.bindings();
        let is_free = |origin: &OriginPattern| is_free(snapshot, session, origin);
        let login = begun(asked, is_free).ok_or(UnmappedToken::Host)?;
        let is_taken = |name: &CredentialName| {
            bindings.has(name) || captured.captured.iter().any(|one| one.login.name == *name)
        };
        let base = &login.name;
        let others = (2..).map_while(|n| CredentialName::new(&format!("{base}-{n}")).ok());
        let mut names = std::iter::once(base.clone()).chain(others);
        let name = names.find(|name| !is_taken(name));
        Ok(CapturedLogin {
            session: session.id().clone(),
            is_homeless: named(asked).is_none() && of_known_issuer(asked).next().is_none(),
            resource: asked.request.resource.clone(),
            login: Login {
                name: name.ok_or(UnmappedToken::TooMany)?,
                ..login
            },
        })
    }
}

impl CapturedLogin {
    /// Returns it for this origin alone; `None` if it may not be for it.
    pub fn settled(mut self, snapshot: &Snapshot, session: &Session, to: &Origin) -> Option<Self> {
        let to = exactly(to);
        if to.scheme == Scheme::Http || !is_free(snapshot, session, &to) {
            return None;
        }
        let tokens = self.login.tokens.iter_mut();
        for token in tokens.filter(|token| token.kind == TokenKind::Access) {
            token.origins = vec![to.clone()];
        }
        self.is_homeless = false;
        Some(self)
    }
}

/// Counts the logins that a session made.
fn made_by(captured: &[CapturedLogin], session: &SessionId) -> usize {
    let own = captured.iter().filter(|one| one.session == *session);
    own.count()
}

/// Returns the login that a request begins, for its free origins; `None` if none is free.
fn begun(asked: &OAuthRequest, is_free: impl Fn(&OriginPattern) -> bool) -> Option<Login> {
    let mut presets = asked
        .logins()
        .filter(|one| one.holder == LoginHolder::Nobody);
    let mut login = match presets.next() {
        Some(known) => known.login.clone(),
        None => unknown_login(asked)?,
    };
    for token in &mut login.tokens {
        token.origins.retain(&is_free);
    }
    let is_for_none = login.tokens.iter().all(|token| token.origins.is_empty());
    // Its issuer may also give kinds of tokens that the login does not name.
    for kind in TokenKind::ALL {
        if login.tokens.iter().all(|token| token.kind != kind) {
            login.tokens.push(LoginToken::kept(kind));
        }
    }
    (!is_for_none).then_some(login)
}

/// Returns the login of an endpoint that no preset knows.
fn unknown_login(asked: &OAuthRequest) -> Option<Login> {
    let request = &asked.request;
    let named = named(asked).filter(|origin| is_of_issuer(asked, origin));
    let origin = named.unwrap_or_else(|| asked.endpoint.origin.clone());
    let target = asked.target.as_ref();
    let scheme = target.map_or("Bearer", |target| &*target.scheme);
    let bearer = format!("header:authorization:{scheme}").parse().ok()?;
    let access = LoginToken {
        origins: vec![exactly(&origin)],
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
            secret: request.secret.clone().map(ClientSecret::Known),
            scopes: Vec::new(),
            grant: TokenGrant::Refresh,
            requests: if request.is_json {
                RequestFormat::Json
            } else {
                RequestFormat::Form
            },
        }),
        tokens: vec![access],
    })
}

/// Returns the origin that a response, or its request, names for the tokens.
fn named(asked: &OAuthRequest) -> Option<Origin> {
    let target = asked.target.as_ref().map(|target| &*target.address);
    let named = target.or(asked.request.resource.as_deref());
    named.and_then(origin_of)
}

fn exactly(origin: &Origin) -> OriginPattern {
    OriginPattern {
        scheme: origin.scheme,
        hosts: HostPattern::Exact(origin.authority.host.clone()),
        port: origin.authority.port,
    }
}

/// Whether a session may have a login for an origin: policy allows the host, and no other
/// credential guards it.
fn is_free(snapshot: &Snapshot, session: &Session, origin: &OriginPattern) -> bool {
    let policies = snapshot.policies.generation();
    let asker = Requester::of(session, None, policies.number());
    let is_allowed = policies.may_resolve(asker.principal(), origin.hosts.host());
    is_allowed && !snapshot.credentials.bindings().guard(origin)
}

/// Whether tokens of this endpoint may be for an origin that their client names. An issuer without
/// support for resources gives tokens for its own services, so the tokens of a known issuer are for
/// no others.
fn is_of_issuer(asked: &OAuthRequest, origin: &Origin) -> bool {
    let mut tokens = of_known_issuer(asked).peekable();
    let are_unknown = tokens.peek().is_none();
    let mut origins = tokens.flat_map(|token| &token.origins);
    are_unknown || origins.any(|known| known.matches(origin))
}

/// Returns the tokens that the configuration or a preset knows of an endpoint.
fn of_known_issuer(asked: &OAuthRequest) -> impl Iterator<Item = &LoginToken> {
    let known = asked.known.iter();
    let known = known.filter(|one| !matches!(one.holder, LoginHolder::Session(_)));
    known.flat_map(|one| &one.login.tokens)
}

/// Returns the origin of a resource's URL, or of the name of a Docker registry.
fn origin_of(resource: &str) -> Option<Origin> {
    let (scheme, rest) = match resource.split_once("://") {
        None => (Scheme::Https, resource),
        Some(("https", rest)) => (Scheme::Https, rest),
        Some(("http", rest)) => (Scheme::Http, rest),
        Some(_) => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = match authority {
        // The registry issues tokens under the name of its first address.
        "registry.docker.io" => "registry-1.docker.io",
        other => other,
    };
    let authority = Authority::parse(authority.as_bytes(), Some(scheme.default_port())).ok()?;
    let is_host = authority.host.as_str().contains('.') || authority.host.ip().is_some();
    is_host.then_some(Origin { scheme, authority })
}

/// The most bytes of tokens of one session.
const LONGEST_TOKENS: usize = 16 * 1024;
/// The most logins that one session makes.
const MOST_LOGINS: usize = 64;
