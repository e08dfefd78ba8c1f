//! Sessions that operators create at run time: for which user, and with which credentials.

use std::time::{Duration, SystemTime};

use gateway_names::{CredentialName, SessionId, User};
use serde::{Deserialize, Serialize};

/// What an operator asks of a session that is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSpec {
    /// The session's name; without one, the gateway chooses it.
    pub name: Option<SessionId>,
    /// The user that the session's tokens stand for.
    pub user: Option<User>,
    /// The groups of the session.
    #[serde(default)]
    pub groups: Vec<String>,
    /// The only credentials that policy may lend it; `None` if policy alone decides.
    pub lend: Option<Vec<CredentialName>>,
    /// The lifetime of the session, in seconds.
    pub seconds: u64,
    /// Caveats that narrow its token further.
    #[serde(default)]
    pub caveats: Vec<String>,
}

/// How a session was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Creation {
    /// A digest of the idempotency key of the request, and of its sender.
    pub key: Option<String>,
    /// When it was created, in seconds since 1970.
    pub made: u64,
    /// The operator's request.
    pub request: SessionSpec,
}

impl Creation {
    /// Returns the time of creation.
    #[must_use]
    pub fn made_at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.made)
    }

    /// Returns when the session ends unless it is extended.
    #[must_use]
    pub fn ends(&self) -> SystemTime {
        // No session lives that long.
        self.made_at() + Duration::from_secs(self.request.seconds.min(u64::from(u32::MAX)))
    }

    /// Encodes the creation for the session's record.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("it has texts and numbers alone")
    }

    /// Decodes a creation; `None` if the text is something else.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
