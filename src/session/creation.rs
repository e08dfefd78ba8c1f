//! Sessions that operators make at run time: for whom, and what they may be lent.

use std::time::{Duration, SystemTime};

use gateway_names::{CredentialName, SessionId, User};
use serde::{Deserialize, Serialize};

/// What an operator asks of a session that is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionRequest {
    /// Its name; it is given one if there is none.
    pub name: Option<SessionId>,
    /// The user that its tokens stand for.
    pub user: Option<User>,
    /// The groups that it is in.
    #[serde(default)]
    pub groups: Vec<String>,
    /// The only credentials that it may be lent, whatever policy says; `None` for what that says.
    pub lend: Option<Vec<CredentialName>>,
    /// After how many seconds it ends.
    pub seconds: u64,
    /// What narrows its token further.
    #[serde(default)]
    pub caveats: Vec<String>,
}

/// How a session was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Creation {
    /// A digest of the key by which a repeated request is known, and of who sent it.
    pub key: Option<String>,
    /// When, in seconds since 1970.
    pub made: u64,
    /// What was asked for.
    pub request: SessionRequest,
}

impl Creation {
    /// When it was.
    #[must_use]
    pub fn made_at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.made)
    }

    /// When the session ends unless it is extended.
    #[must_use]
    pub fn ends(&self) -> SystemTime {
        // No session lives for so long.
        self.made_at() + Duration::from_secs(self.request.seconds.min(u64::from(u32::MAX)))
    }

    /// Writes it for the session's record.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("it has texts and numbers alone")
    }

    /// Reads it as it was written; `None` if this is another text.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
