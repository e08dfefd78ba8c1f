//! What the process holds of logins from one generation to the next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::place::{OwnTokens, TokenPlace, UnkeptTokens};
use super::rows::SealedRows;
use crate::credential::login::Login;
use crate::message::Host;
use crate::names::{CredentialName, SessionId};

/// What the process holds of logins.
#[derive(Default)]
pub(super) struct HeldLogins {
    /// `None` where there is no state.
    pub(super) rows: Option<SealedRows>,
    /// What sessions did with logins themselves.
    pub(super) of_sessions: Mutex<HashMap<(SessionId, CredentialName), SessionGrant>>,
    /// What was last read for a session: until when, and for what.
    pub(super) told: Mutex<HashMap<(SessionId, CredentialName), HeldUntil>>,
    /// The digest of the refresh token that each issuer refused, and why.
    pub(super) refused: Mutex<HashMap<CredentialName, (String, Box<str>)>>,
    /// New tokens that their place did not take.
    pub(super) unkept: Mutex<Vec<UnkeptTokens>>,
    /// Issuers that are busy, and until when.
    pub(super) busy: Mutex<HashMap<Host, SystemTime>>,
    /// What was last said of each login that is of no use.
    said: Mutex<HashMap<CredentialName, String>>,
    /// The tokens that were made of keys.
    made: Mutex<HashMap<CredentialName, OwnTokens>>,
}

/// When an access token ends, and what it may do.
pub(super) type HeldUntil = (Option<SystemTime>, Option<String>);

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

    /// Whether this was not what was last said of a login. It is said once.
    pub(super) fn is_new(&self, name: &CredentialName, why: &str) -> bool {
        let mut said = self.said.lock();
        let before = said.insert(name.clone(), why.to_owned());
        before.as_deref() != Some(why)
    }

    /// The place of tokens that are made of a key.
    pub(super) fn made(&self, name: &CredentialName) -> TokenPlace {
        let mut made = self.made.lock();
        TokenPlace::Memory(made.entry(name.clone()).or_default().clone())
    }

    /// Forgets what a session did.
    pub(super) fn end(&self, session: &SessionId) {
        self.of_sessions.lock().retain(|(of, _), _| of != session);
        self.told.lock().retain(|(of, _), _| of != session);
    }
}
