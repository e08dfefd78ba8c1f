//! What the control socket asks of the program, beyond what it sees itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::StatusCode;
use serde::{Deserialize, Serialize};

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

    /// Finds the narrowest rule that allows the refused request.
    fn rule(
        &self,
        asked: AllowRequest,
    ) -> impl Future<Output = Result<GrantedRule, ControlRefusal>> + Send;

    /// Applies a rule that was found.
    fn apply(
        &self,
        rule: GrantedRule,
    ) -> impl Future<Output = Result<GrantedRule, ControlRefusal>> + Send;

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
    /// The changes other than those of policies, in words.
    pub changes: Vec<String>,
}

/// Who wants to run a further command in a sandbox.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnterRequest {
    /// The packet socket at which the caller listens.
    pub socket: PathBuf,
}

/// What an operator wants to allow. Exactly one of `host`, `exchange` and `last` is set.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AllowRequest {
    /// Every request to this host, with its port: 443 unless given.
    pub host: Option<String>,
    /// What this refused exchange or proposal asked for: its id.
    pub exchange: Option<String>,
    /// What the last refused exchange asked for.
    pub last: bool,
    /// The session that may; of an exchange, its own.
    pub session: Option<String>,
    /// After how many seconds it ends by itself, if it does.
    pub seconds: Option<u64>,
    /// The rule, as an earlier answer showed it. Without it, nothing is applied.
    pub policy: Option<String>,
}

/// A rule that allows a refused request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct GrantedRule {
    /// The rule, in Cedar.
    pub policy: String,
    /// Whether it is in force now.
    pub applied: bool,
    /// The generation of policies in force.
    pub generation: u64,
    /// Where it is kept for the next start.
    pub file: String,
    /// When it ends by itself, in seconds since 1970, if it does.
    pub until: Option<i64>,
    /// What a person refused and the rule would permit, as it was shown.
    pub denied: Vec<String>,
    /// What the host needs besides, if the rule alone does not let a request through.
    #[serde(default)]
    pub needs: Option<String>,
}

/// Why the gateway refuses an act.
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
