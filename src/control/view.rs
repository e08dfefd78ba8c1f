//! The views in responses: the gateway and its sessions, without any secret or phantom.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use super::operations::Proven;
use gateway_names::CredentialName;
use gateway_server::SharedState;
use gateway_session::{Moment, Session, SessionStatus};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The facts about the gateway that are fixed at its start.
#[derive(Clone, Debug)]
pub struct GatewayInfo {
    /// `serve` or `exec`.
    pub kind: &'static str,
    /// The configuration file, if there is one.
    pub config: Option<PathBuf>,
    /// The file of granted rules.
    pub granted: Option<PathBuf>,
    /// The folder that it was started in.
    pub directory: Option<PathBuf>,
    /// The address of its metrics port, if it has one.
    pub metrics_address: Option<SocketAddr>,
    /// The address of its control port, if it has one.
    pub control_address: Option<SocketAddr>,
    /// When it was started, by both clocks.
    pub started: (SystemTime, Instant),
}

/// The state of a gateway.
#[derive(Serialize)]
pub(super) struct GatewayView<'a> {
    version: &'static str,
    pid: u32,
    kind: &'static str,
    state: &'static str,
    started: Option<String>,
    uptime_seconds: u64,
    directory: &'a Option<PathBuf>,
    config: &'a Option<PathBuf>,
    audit: Option<&'a Path>,
    granted: &'a Option<PathBuf>,
    listeners: Vec<ListenerView>,
    metrics_address: Option<SocketAddr>,
    control_address: Option<SocketAddr>,
    policies: PoliciesView,
    credentials: Vec<CredentialView>,
    /// The revoked credentials, including those that this gateway does not have.
    revoked: Vec<String>,
    sessions: usize,
    connections: usize,
    exchanges: usize,
    refused: u64,
}

#[derive(Serialize)]
struct ListenerView {
    address: String,
    session: String,
}

/// A credential, and the variables that hold its phantom or its secret.
#[derive(Serialize)]
struct CredentialView {
    name: String,
    variables: Vec<String>,
}

#[derive(Serialize)]
struct PoliciesView {
    generation: u64,
    count: usize,
}

/// The state of a session.
#[derive(Serialize)]
pub(super) struct SessionView {
    id: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<&'static str>,
    /// Its user: a caller's, or the one that an operator created it for.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    groups: Vec<String>,
    /// What its requests did, as policies call it.
    labels: Vec<String>,
    /// The only credentials that it may be lent, if an operator named them at its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    lend: Option<Vec<String>>,
    credentials: Vec<String>,
    /// Its revoked credentials.
    revoked: Vec<String>,
    connections: usize,
    exchanges: usize,
    ends_in_seconds: Option<u64>,
    /// The idle time after which it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_seconds: Option<u64>,
    /// The replicas that know of what was just decided about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fleet: Vec<Proven>,
}

impl<'a> GatewayView<'a> {
    pub(super) fn of(
        about: &'a GatewayInfo,
        shared: &'a SharedState,
        listeners: Vec<(String, String)>,
    ) -> Self {
        let sessions = shared.sessions.all();
        let policies = shared.current().policies.current();
        let (wall, monotonic) = about.started;
        let snapshot = shared.current();
        let credential = |(name, variables): (&CredentialName, Vec<&str>)| CredentialView {
            name: name.to_string(),
            variables: variables.into_iter().map(str::to_owned).collect(),
        };
        let listener = |(address, session)| ListenerView { address, session };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            kind: about.kind,
            state: if shared.draining.is_cancelled() {
                "draining"
            } else {
                "serving"
            },
            started: OffsetDateTime::from(wall).format(&Rfc3339).ok(),
            uptime_seconds: monotonic.elapsed().as_secs(),
            directory: &about.directory,
            config: &about.config,
            audit: shared.log.path(),
            granted: &about.granted,
            listeners: listeners.into_iter().map(listener).collect(),
            metrics_address: about.metrics_address,
            control_address: about.control_address,
            policies: PoliciesView {
                generation: policies.number(),
                count: policies.len(),
            },
            credentials: snapshot.credentials.variables().map(credential).collect(),
            revoked: texts(snapshot.credentials.all_revoked()),
            connections: shared.open.load(std::sync::atomic::Ordering::Relaxed),
            exchanges: sessions.iter().map(|session| session.load().1).sum(),
            sessions: sessions.len(),
            refused: shared.refused.reasons().map(|(_, count)| count).sum(),
        }
    }
}

fn texts(names: impl IntoIterator<Item: ToString>) -> Vec<String> {
    names.into_iter().map(|name| name.to_string()).collect()
}

impl SessionView {
    pub(super) fn of(session: &Session, shared: &SharedState) -> Self {
        let status = session.status();
        let (connections, exchanges) = session.load();
        let ended = match status {
            SessionStatus::Ended(why) => Some(why.as_str()),
            _ => None,
        };
        let snapshot = shared.current();
        let credentials = snapshot.credentials.bindings().all();
        let made = session.creation().map(|made| &made.request);
        Self {
            id: session.id().to_string(),
            status: status.as_str(),
            ended,
            groups: session
                .last_groups()
                .iter()
                .map(ToString::to_string)
                .collect(),
            labels: session
                .labels()
                .map(|labels| texts(labels.iter()))
                .unwrap_or_default(),
            user: session.user().map(|user| user.as_str().to_owned()),
            lend: made.and_then(|made| made.lend.as_ref()).map(texts),
            idle_seconds: session.idle().map(|idle| idle.as_secs()),
            credentials: credentials
                .filter(|binding| session.may_hold(binding))
                .map(|binding| binding.credential.to_string())
                .collect(),
            revoked: texts(snapshot.credentials.revoked()),
            connections,
            exchanges,
            ends_in_seconds: session
                .lifetime()
                .filter(|_| ended.is_none())
                .map(|lifetime| lifetime.remaining(Moment::now()).as_secs()),
            fleet: Vec::new(),
        }
    }

    /// Adds who knows of what was just decided.
    pub(super) fn proven(self, fleet: Vec<Proven>) -> Self {
        Self { fleet, ..self }
    }
}
