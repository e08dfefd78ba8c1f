//! What the process holds of logins from one generation to the next.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gateway_names::{CredentialName, SessionId};
use parking_lot::Mutex;

use super::super::leased::{Leased, Moment};
use super::place::{HeldTokens, TokenPlace};
use super::rows::SealedRows;
use crate::login::Login;

/// What the process holds of logins.
#[derive(Default)]
pub(super) struct HeldLogins {
    /// `None` where there is no state.
    pub(super) rows: Option<SealedRows>,
    /// What sessions did with logins themselves.
    pub(super) of_sessions: Mutex<HashMap<(SessionId, CredentialName), SessionGrant>>,
    /// What became of the refresh token that is in a login's place, by its digest: new tokens that
    /// the place did not take, or why there are none; and the tokens that were made of a key.
    renewals: Mutex<HashMap<GrantHolder, Renewal>>,
    /// What services refused of the tokens of logins.
    refused: Mutex<HashMap<GrantHolder, RefusedToken>>,
    /// What was said lately of each login that is of no use.
    said: Mutex<HashMap<CredentialName, VecDeque<String>>>,
}

/// The digest of a refresh token or key, and what is held of its renewal.
type Renewal = (String, Arc<Leased<HeldTokens>>);

/// The access token that a login's service refused last.
#[derive(Default)]
struct RefusedToken {
    /// Its digest, until it is replaced.
    digest: Option<String>,
    /// From when on another may be replaced so. A workload can have any token refused.
    again: Option<Moment>,
}

/// A login, and the session that logged in itself, if one did.
pub(super) type GrantHolder = (CredentialName, Option<SessionId>);

/// What a session did with a login.
#[derive(Clone)]
pub(super) enum SessionGrant {
    /// It logged in, and its tokens are there.
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

    /// What a session did with a login, if anything.
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

    /// The renewal of what has this digest. That of what was there before is forgotten.
    pub(super) fn renewal(&self, holder: &GrantHolder, of: &str) -> Arc<Leased<HeldTokens>> {
        let mut renewals = self.renewals.lock();
        let known = renewals.entry(holder.clone()).or_default();
        if known.0 != of {
            *known = (of.to_owned(), Arc::default());
        }
        known.1.clone()
    }

    /// Notes that a service refused the access token of this digest, unless one before it was
    /// replaced just now.
    pub(super) fn refuse(&self, holder: GrantHolder, digest: String) {
        let mut refused = self.refused.lock();
        let known = refused.entry(holder).or_default();
        if known.again.is_none_or(|at| at.has_come(Moment::now())) {
            known.digest = Some(digest);
        }
    }

    /// The digest of the access token that is to be replaced because its service refused it.
    pub(super) fn refused(&self, holder: &GrantHolder) -> Option<String> {
        self.refused.lock().get(holder)?.digest.clone()
    }

    /// Notes that it was replaced.
    pub(super) fn replaced(&self, holder: GrantHolder) {
        let replaced = RefusedToken {
            digest: None,
            again: Some(Moment::now().after(REPLACED_EVERY)),
        };
        self.refused.lock().insert(holder, replaced);
    }

    /// Forgets what a session did.
    pub(super) fn end(&self, session: &SessionId) {
        self.of_sessions.lock().retain(|(of, _), _| of != session);
        let is_others = |(_, of): &GrantHolder| of.as_ref() != Some(session);
        self.renewals.lock().retain(|holder, _| is_others(holder));
        self.refused.lock().retain(|holder, _| is_others(holder));
    }
}

/// A login's token is replaced so often because its service refused it.
const REPLACED_EVERY: Duration = Duration::from_secs(60);
/// So many causes are remembered of a login. An issuer that a workload chose may say any number.
const MOST_SAID: usize = 8;
