//! What the control socket asks of the program, beyond what it sees itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::grant::{AllowAnswer, AllowRequest, GrantError};
use crate::names::{CredentialName, SessionId};
use crate::session::SessionStatus;

/// What the program does when an operator asks for it. `cli` implements it.
pub trait Operations: Send + Sync + 'static {
    /// The addresses that the gateway listens on, each with its session.
    fn listeners(&self) -> impl Future<Output = Vec<(String, String)>> + Send;

    /// What a client of a session's proxy needs.
    ///
    /// # Errors
    /// A refusal if the session has no proxy.
    fn environment(&self, session: &SessionId) -> Result<ClientEnvironment, ControlRefusal>;

    /// Applies changed files, all or none.
    fn reload(&self) -> impl Future<Output = Result<Reloaded, ControlRefusal>> + Send;

    /// Keeps for the next start what an operator made of a session.
    fn keep_status(
        &self,
        session: &SessionId,
        status: SessionStatus,
    ) -> impl Future<Output = Result<(), ControlRefusal>> + Send;

    /// Keeps, for every gateway of this user, that a credential is revoked or no longer is, and
    /// obeys all that is kept. Returns how many connections to origins were severed.
    fn keep_revoked(
        &self,
        credential: &CredentialName,
        is_revoked: bool,
    ) -> impl Future<Output = Result<usize, ControlRefusal>> + Send;

    /// Finds the narrowest rule that allows what was refused.
    fn rule(
        &self,
        asked: AllowRequest,
    ) -> impl Future<Output = Result<AllowAnswer, ControlRefusal>> + Send;

    /// Applies a rule that was found.
    fn apply(
        &self,
        rule: AllowAnswer,
    ) -> impl Future<Output = Result<AllowAnswer, ControlRefusal>> + Send;

    /// Connects a session's sandbox with a caller's socket.
    fn enter(
        &self,
        session: &SessionId,
        socket: &Path,
    ) -> impl Future<Output = Result<(), ControlRefusal>> + Send;
}

/// What a client of a session's proxy needs. No other answer has phantoms.
#[derive(Deserialize, Serialize)]
pub struct ClientEnvironment {
    /// The user whose password the proxy asks for. The password is not in the variables.
    pub user: Option<String>,
    /// The variables: the proxy, its CA, git's settings and the phantoms.
    pub variables: BTreeMap<String, String>,
}

/// What a reload put in force.
#[derive(Debug, Serialize)]
pub struct Reloaded {
    /// The generation now in force.
    pub generation: u64,
    /// What changed beside the policies, in words.
    pub changes: Vec<String>,
}

/// Who wants to run a further command in a sandbox.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnterRequest {
    /// The packet socket at which the caller listens.
    pub socket: PathBuf,
}

/// Why the gateway does not do what was asked.
#[derive(Clone, Debug)]
pub struct ControlRefusal {
    /// The status of the answer.
    pub status: StatusCode,
    /// What happened.
    pub what: String,
    /// Why.
    pub why: Option<String>,
    /// What to do next.
    pub next: Option<String>,
}

impl ControlRefusal {
    /// A refusal with this status.
    pub fn new(status: StatusCode, what: impl Into<String>) -> Self {
        Self {
            status,
            what: what.into(),
            why: None,
            next: None,
        }
    }

    /// Adds the reason.
    #[must_use]
    pub fn because(self, why: impl Into<String>) -> Self {
        let why = Some(why.into());
        Self { why, ..self }
    }

    /// Adds the next step.
    #[must_use]
    pub fn next(self, next: impl Into<String>) -> Self {
        let next = Some(next.into());
        Self { next, ..self }
    }
}

impl From<GrantError> for ControlRefusal {
    fn from(error: GrantError) -> Self {
        let GrantError {
            status,
            what,
            why,
            next,
        } = error;
        Self {
            status,
            what,
            why,
            next,
        }
    }
}
