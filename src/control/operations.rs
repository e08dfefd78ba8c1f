//! The operations of the control socket that the program implements.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gateway_grant::{AllowRequest, AllowResponse, ControlRefusal};
use gateway_names::{SecretLabel, SessionId};
use gateway_server::ClientEnvironment;
use gateway_session::{Creation, SessionStatus};
use gateway_token::{PrefixId, Token};
use serde::{Deserialize, Serialize};

/// The effects of a revocation in this gateway.
#[derive(Debug)]
pub struct RevocationHits {
    /// The credentials, each with the reference of its secret.
    pub lent: Vec<(String, String)>,
    /// The gateway's own uses that go on with the revoked secret, each with its reference.
    pub own: Vec<(String, String)>,
    /// How many connections to origins were severed.
    pub severed: usize,
    /// The replicas that know of it, or why the fleet was not reached.
    pub fleet: FleetAnswer,
}

/// What a fleet did with a decision: nothing without a fleet.
pub type FleetAnswer = Result<Vec<Proven>, String>;

/// How a replica took a decision.
#[derive(Debug, Clone, Serialize)]
pub struct Proven {
    /// Its name.
    pub replica: String,
    /// After how many milliseconds it had applied it; `None` if its lease was over instead.
    pub applied_ms: Option<f64>,
}

/// A replica of a fleet, as the store knows it.
#[derive(Debug, Serialize)]
pub struct ReplicaView {
    /// Its name.
    pub name: String,
    /// Whether its lease lasts.
    pub live: bool,
    /// Whether it is the one that answers.
    pub here: bool,
    /// Its version.
    pub version: String,
    /// The last decision that it has applied.
    pub applied: u64,
    /// How long ago it told so, in milliseconds.
    pub beat_ms: u128,
    /// How long it goes on without the store, in milliseconds.
    pub stale_after_ms: u128,
    /// The SHA-256 of its configuration and policies.
    pub in_force: String,
    /// The last record of its audit log, as `NUMBER:HASH`.
    pub head: String,
    /// Whether it was asked to stop.
    pub drains: bool,
}

/// The program's part of an operator's commands. `app` implements it.
pub trait Operations: Send + Sync + 'static {
    /// The addresses that the gateway listens on, each with its session.
    fn listeners(&self) -> impl Future<Output = Vec<(String, String)>> + Send;

    /// Why a listener does not serve now, if one does not, and where to look.
    fn unready(&self) -> impl Future<Output = Option<(String, &'static str)>> + Send;

    /// Returns the settings that a client of a session's proxy needs.
    ///
    /// # Errors
    /// A refusal if the session has no proxy.
    fn environment(&self, session: &SessionId) -> Result<ClientEnvironment, ControlRefusal>;

    /// Applies changed files, all or none.
    fn reload(&self) -> impl Future<Output = Result<Reloaded, ControlRefusal>> + Send;

    /// Stores a session's status, as an operator set it, for the next start.
    fn keep_status(
        &self,
        session: &SessionId,
        status: SessionStatus,
    ) -> impl Future<Output = Result<Vec<Proven>, ControlRefusal>> + Send;

    /// Stores a secret's revocation for every gateway of this user, and applies all revocations.
    fn keep_revoked(
        &self,
        label: &SecretLabel,
    ) -> impl Future<Output = Result<RevocationHits, ControlRefusal>> + Send;

    /// Undoes each revocation with this label. Returns the labels of the undone ones.
    fn restore(
        &self,
        label: &SecretLabel,
    ) -> impl Future<Output = Result<Vec<SecretLabel>, ControlRefusal>> + Send;

    /// Mints a token of a session. Nothing of it is stored.
    fn mint(
        &self,
        session: &SessionId,
        asked: &MintRequest,
    ) -> impl Future<Output = Result<MintedToken, ControlRefusal>> + Send;

    /// Creates a session that no listener owns, and stores it.
    fn create(
        &self,
        id: &SessionId,
        creation: Creation,
    ) -> impl Future<Output = Result<CreatedSession, ControlRefusal>> + Send;

    /// Loads a session, if an operator created it at another gateway that shares the state.
    fn learn(&self, id: &SessionId) -> impl Future<Output = Result<(), ControlRefusal>> + Send;

    /// Moves the end of a session that was created so, and mints a token that lives as long.
    fn extend(
        &self,
        id: &SessionId,
        asked: MintRequest,
    ) -> impl Future<Output = Result<(MintedToken, SystemTime), ControlRefusal>> + Send;

    /// Stores a token's revocation for every gateway of this user.
    fn keep_revoked_token(
        &self,
        id: PrefixId,
    ) -> impl Future<Output = Result<FleetAnswer, ControlRefusal>> + Send;

    /// Returns every replica of the fleet.
    fn fleet(&self) -> impl Future<Output = Result<Vec<ReplicaView>, ControlRefusal>> + Send;

    /// Asks a replica to stop.
    fn drain(&self, replica: &str) -> impl Future<Output = Result<(), ControlRefusal>> + Send;

    /// How long a change may take until it is kept, and known to the fleet.
    fn kept_within(&self) -> Duration;

    /// Finds the narrowest rule that allows the refused request.
    fn rule(
        &self,
        asked: AllowRequest,
    ) -> impl Future<Output = Result<AllowResponse, ControlRefusal>> + Send;

    /// Applies a rule that was found.
    fn apply(
        &self,
        rule: AllowResponse,
    ) -> impl Future<Output = Result<AllowResponse, ControlRefusal>> + Send;

    /// Connects a session's sandbox with a caller's socket.
    fn enter(
        &self,
        session: &SessionId,
        socket: &Path,
    ) -> impl Future<Output = Result<(), ControlRefusal>> + Send;
}

/// A request for a token.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MintRequest {
    /// For how many seconds.
    pub seconds: u64,
    /// The caveats that narrow it further.
    #[serde(default)]
    pub caveats: Vec<String>,
}

/// A new token. No later response has it.
pub struct MintedToken {
    /// The token.
    pub token: Token,
    /// The id to revoke it by.
    pub id: PrefixId,
}

/// A new session, with all that its workload needs.
pub struct CreatedSession {
    /// The token that selects it.
    pub token: MintedToken,
    /// When both end.
    pub ends: SystemTime,
    /// The environment of its clients.
    pub environment: ClientEnvironment,
}

/// The outcome of a reload.
#[derive(Debug, Serialize)]
pub struct Reloaded {
    /// The generation now in force.
    pub generation: u64,
    /// The changes in words: of policies those that permit more.
    pub changes: Vec<String>,
}

/// How a session is ended.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndRequest {
    /// Whether no later session may have its name.
    #[serde(default)]
    pub(super) for_good: bool,
}

/// How a secret is revoked.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RevokeRequest {
    /// Whether workloads get the service's own answer to a key that it does not know.
    #[serde(default)]
    pub(super) quiet: bool,
}

/// Who wants to run a further command in a sandbox.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnterRequest {
    /// The packet socket at which the caller listens.
    pub socket: PathBuf,
}
