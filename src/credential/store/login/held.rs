//! The state of logins that the process keeps from one generation to the next.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gateway_names::{CredentialName, SessionId};
use parking_lot::Mutex;

use super::super::leased::{Leased, Moment};
use super::place::{HeldTokens, TokenPlace};
use super::rows::SealedRows;
use crate::login::Login;

/// The state of logins in the process.
#[derive(Default)]
pub(super) struct HeldLogins {
    /// The stored rows; `None` without a state folder.
    pub(super) rows: Option<SealedRows>,
    /// What sessions did with logins themselves.
    pub(super) of_sessions: Mutex<HashMap<(SessionId, CredentialName), SessionGrant>>,
    /// The renewal of each login, by the digest of its refresh token: new tokens that could not be
    /// stored, or why there are none; and tokens that were made with a key.
    renewals: Mutex<HashMap<GrantHolder, Renewal>>,
    /// The tokens of logins that services refused.
    refused: Mutex<HashMap<GrantHolder, RefusedToken>>,
    /// What was said lately of each login that is of no use.
    said: Mutex<HashMap<CredentialName, VecDeque<String>>>,
}

/// The digest of a refresh token or key, and the state of its renewal.
type Renewal = (String, Arc<Leased<HeldTokens>>);

/// The access token of a login that its service refused last.
#[derive(Default)]
struct RefusedToken {
    /// Its digest, until it is replaced.
    digest: Option<String>,
    /// When another may be replaced for this reason. A workload can have any token refused.
    again: Option<Moment>,
}

/// A login, and the session that made it, if one did.
pub(super) type GrantHolder = (CredentialName, Option<SessionId>);

/// What a session did with a login.
#[derive(Clone)]
pub(super) enum SessionGrant {
    /// It logged in, and its tokens are in this place.
    Captured(Arc<Login>, TokenPlace),
    /// It logged out.
    Ended,
}

impl HeldLogins {
    pub(super) fn new(rows: Option<SealedRows>) -> Self {
        Self {
            rows,
            ..Self::default()
        }
    }

    /// Returns what a session did with a login, if anything.
    pub(super) fn own(&self, session: &SessionId, name: &CredentialName) -> Option<SessionGrant> {
        let of_sessions = self.of_sessions.lock();
        of_sessions.get(&(session.clone(), name.clone())).cloned()
    }

    /// Whether this was not said of a login lately. A cause that comes back is no news.
    pub(super) fn is_new(&self, name: &CredentialName, why: &str) -> bool {
        let mut said = self.said.lock();
        let said = said.entry(name.clone()).or_default();
        let is_new = said.iter().all(|before| before != why);
        if is_new {
            said.truncate(MOST_SAID - 1);
            said.push_front(why.to_owned());
        }
        is_new
    }

    /// Returns the renewal of the token or key with this digest. Forgets that of an earlier one.
    pub(super) fn renewal(&self, holder: &GrantHolder, of: &str) -> Arc<Leased<HeldTokens>> {
        let mut renewals = self.renewals.lock();
        let known = renewals.entry(holder.clone()).or_default();
        if known.0 != of {
            *known = (of.to_owned(), Arc::default());
        }
        known.1.clone()
    }

    /// Notes that a service refused the access token with this digest, unless an earlier one was
    /// replaced just now.
    pub(super) fn refuse(&self, holder: GrantHolder, digest: String) {
        let mut refused = self.refused.lock();
        let known = refused.entry(holder).or_default();
        if known.again.is_none_or(|at| at.has_come(Moment::now())) {
            known.digest = Some(digest);
        }
    }

    /// Returns the digest of the access token to replace because its service refused it.
    pub(super) fn refused(&self, holder: &GrantHolder) -> Option<String> {
        self.refused.lock().get(holder)?.digest.clone()
    }

    /// Notes that the refused token was replaced.
    pub(super) fn replaced(&self, holder: GrantHolder) {
        let replaced = RefusedToken {
            digest: None,
            again: Some(Moment::now().after(REPLACED_EVERY)),
        };
        self.refused.lock().insert(holder, replaced);
    }

    /// Forgets what a session did with logins.
    pub(super) fn end(&self, session: &SessionId) {
        self.of_sessions.lock().retain(|(of, _), _| of != session);
        let is_others = |(_, of): &GrantHolder| of.as_ref() != Some(session);
        self.renewals.lock().retain(|holder, _| is_others(holder));
        self.refused.lock().retain(|holder, _| is_others(holder));
    }
}

/// How often a login's token is replaced because its service refused it.
const REPLACED_EVERY: Duration = Duration::from_secs(60);
/// So many causes are remembered of a login. An issuer that a workload chose may say any number.
const MOST_SAID: usize = 8;
