//! What the control socket asks of the program, beyond what it sees itself.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::gateway::ClientEnvironment;
use crate::grant::{AllowAnswer, AllowRequest, ControlRefusal};
use crate::names::{SecretLabel, SessionId};
use crate::session::{Creation, SessionStatus};
use crate::token::{PrefixId, Token};

/// What a revocation hit here.
#[derive(Debug, Default)]
pub struct RevocationHits {
    /// The credentials, each with the place of its secret.
    pub lent: Vec<(String, String)>,
    /// What the gateway itself goes on doing with what is revoked, each with its place.
    pub own: Vec<(String, String)>,
    /// How many connections to origins were severed.
    pub severed: usize,
}

/// What the program does when an operator asks for it. `cli` implements it.
pub trait Operations: Send + Sync + 'static {
    /// The addresses that the gateway listens on, each with its session.
    fn listeners(&self) -> impl Future<Output = Vec<(String, String)>> + Send;

    /// Why a listener serves nobody now, if one does, and what to look at.
    fn unready(&self) -> impl Future<Output = Option<(String, &'static str)>> + Send;

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

    /// Keeps, for every gateway of this user, that a secret is revoked, and obeys all that is kept.
    fn keep_revoked(
        &self,
        label: &SecretLabel,
    ) -> impl Future<Output = Result<RevocationHits, ControlRefusal>> + Send;

    /// Takes each revocation back that is called so. Returns the labels of these.
    fn restore(
        &self,
        label: &SecretLabel,
    ) -> impl Future<Output = Result<Vec<SecretLabel>, ControlRefusal>> + Send;

    /// Mints a token of a session. Nothing is kept of it.
    fn mint(
        &self,
        session: &SessionId,
        asked: &MintRequest,
    ) -> impl Future<Output = Result<MintedToken, ControlRefusal>> + Send;

    /// Makes a session that no listener owns, and keeps it.
    fn create(
        &self,
        id: &SessionId,
        creation: Creation,
    ) -> impl Future<Output = Result<CreatedSession, ControlRefusal>> + Send;

    /// Has a session, if an operator made it at another gateway that shares the state.
    fn learn(&self, id: &SessionId) -> impl Future<Output = Result<(), ControlRefusal>> + Send;

    /// Moves the end of a session that was made so, and mints a token that lives as long.
    fn extend(
        &self,
        id: &SessionId,
        asked: MintRequest,
    ) -> impl Future<Output = Result<(MintedToken, SystemTime), ControlRefusal>> + Send;

    /// Keeps, for every gateway of this user, that a token is revoked.
    fn keep_revoked_token(
        &self,
        id: PrefixId,
    ) -> impl Future<Output = Result<(), ControlRefusal>> + Send;

    /// Finds the narrowest rule that allows the refused request.
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

/// What a token is to allow.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MintRequest {
    /// For how many seconds.
    pub seconds: u64,
    /// What narrows it further.
    #[serde(default)]
    pub caveats: Vec<String>,
}

/// A token that was minted. No later answer has it.
pub struct MintedToken {
    /// The token.
    pub token: Token,
    /// The id that it is revoked by.
    pub id: PrefixId,
}

/// A session that was made, with all that its workload needs.
pub struct CreatedSession {
    /// The token that selects it.
    pub token: MintedToken,
    /// When both end.
    pub ends: SystemTime,
    /// What its clients need.
    pub environment: ClientEnvironment,
}

/// What a reload put in force.
#[derive(Debug, Serialize)]
pub struct Reloaded {
    /// The generation now in force.
    pub generation: u64,
    /// The changes other than those of policies, in words.
    pub changes: Vec<String>,
}

/// How a session is ended.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndRequest {
    /// Whether no other one of its name may follow.
    #[serde(default)]
    pub(super) for_good: bool,
}

/// Who wants to run a further command in a sandbox.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnterRequest {
    /// The packet socket at which the caller listens.
    pub socket: PathBuf,
}
