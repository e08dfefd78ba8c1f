//! The logins whose endpoints are known.

use std::sync::Arc;

use gateway_message::Host;
use gateway_names::{CredentialName, Map, SessionId};

use super::{Login, TokenEndpoint, TokenKind};

/// The logins whose endpoints are known.
#[derive(Default)]
pub struct KnownLogins {
    /// The logins by the hosts of their endpoints.
    hosts: Map<Host, Vec<Arc<KnownLogin>>>,
    /// The tokens of logins that a session made, and that session.
    own: Map<CredentialName, SessionId>,
}

/// A login and its holder.
pub struct KnownLogin {
    /// The login.
    pub login: Login,
    /// The sessions that have the login.
    pub holder: LoginHolder,
}

/// The holder of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginHolder {
    /// Every session.
    Everyone,
    /// The session that logged in.
    Session(SessionId),
    /// No session yet: a preset describes how a session could log in.
    Nobody,
}

/// The purpose of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointUse {
    /// It issues tokens (RFC 6749 §3.2).
    Issues,
    /// It revokes tokens (RFC 7009).
    Revokes,
}

impl KnownLogins {
    /// Indexes the logins by their hosts.
    pub fn new(all: impl IntoIterator<Item = KnownLogin>) -> Self {
        let mut hosts: Map<Host, Vec<Arc<KnownLogin>>> = Map::default();
        let mut own = Map::default();
        for known in all.into_iter().map(Arc::new) {
            if let LoginHolder::Session(session) = &known.holder {
                let tokens = TokenKind::ALL.map(|kind| known.login.credential(kind));
                own.extend(tokens.map(|token| (token, session.clone())));
            }
            let endpoints = known.login.issuer.iter();
            let endpoints =
                endpoints.flat_map(|one| [Some(&one.endpoint), one.revocation.as_ref()]);
            for endpoint in endpoints.flatten() {
                let at = hosts.entry(endpoint.origin.authority.host.clone());
                let at = at.or_default();
                if !at.iter().any(|one| Arc::ptr_eq(one, &known)) {
                    at.push(known.clone());
                }
            }
        }
        Self { hosts, own }
    }

    /// Whether a credential is a token of a login that another session made.
    pub(crate) fn is_of_another(&self, credential: &CredentialName, session: &SessionId) -> bool {
        let maker = self.own.get(credential);
        maker.is_some_and(|maker| maker != session)
    }

    /// Whether a login has an endpoint at this host.
    pub fn are_at(&self, host: &Host) -> bool {
        !self.hosts.is_empty() && self.hosts.contains_key(host)
    }

    /// Returns the purpose of this endpoint, and its logins that a session has or may make.
    pub(super) fn of(
        &self,
        endpoint: &TokenEndpoint,
        session: &SessionId,
    ) -> Option<(EndpointUse, Vec<Arc<KnownLogin>>)> {
        let all = self.hosts.get(&endpoint.origin.authority.host)?;
        let visible = all.iter().filter(|known| match &known.holder {
            LoginHolder::Session(holder) => holder == session,
            LoginHolder::Everyone | LoginHolder::Nobody => true,
        });
        let serves = |known: &KnownLogin, what| {
            let issuer = known.login.issuer.as_ref();
            let at = issuer.and_then(|issuer| match what {
                EndpointUse::Issues => Some(&issuer.endpoint),
                EndpointUse::Revokes => issuer.revocation.as_ref(),
            });
            at.is_some_and(|at| at.is(endpoint))
        };
        let mut uses = [EndpointUse::Issues, EndpointUse::Revokes].into_iter();
        uses.find_map(|what| {
            let known = visible.clone().filter(|known| serves(known, what));
            let known: Vec<_> = known.cloned().collect();
            (!known.is_empty()).then_some((what, known))
        })
    }
}

impl TokenEndpoint {
    /// Whether a server may read both paths as the same path.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let plain = |path: &str| {
            let segments = path.split('/').map(|segment| segment.split(';').next());
            let segments = segments.flatten().filter(|segment| !segment.is_empty());
            segments.collect::<Vec<_>>().join("/").to_ascii_lowercase()
        };
        self.origin == other.origin && plain(&self.path) == plain(&other.path)
    }
}
