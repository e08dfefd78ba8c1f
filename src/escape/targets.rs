//! The targets of the probes: the host's side creates them, and the sandbox's side gets their
//! names.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The targets of the probes. All of them are on the host, and none is a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Targets {
    /// The text in the planted things, so that nothing else is mistaken for them.
    pub nonce: String,
    /// Servers that greet with the nonce.
    pub tcp: Vec<SocketAddr>,
    /// The ports that the sandbox was given.
    pub ports: Option<OpenedPorts>,
    /// Sockets that wait for the nonce.
    pub udp: Vec<SocketAddr>,
    /// An abstract Unix socket.
    pub abstract_socket: Option<String>,
    /// Unix sockets by path.
    pub sockets: Vec<PathBuf>,
    /// Unix sockets that are created a moment after the planting.
    pub late_sockets: Vec<PathBuf>,
    /// Folders that everybody may write to, each with a file `planted` that everybody may write.
    pub folders: Vec<PathBuf>,
    /// Files that contain the nonce.
    pub files: Vec<PathBuf>,
    /// The customary credential stores that the home directory really has; not planted.
    pub hidden: Vec<PathBuf>,
    /// A process with the nonce in its environment.
    pub pid: Option<u32>,
    /// A terminal.
    pub terminal: Option<PathBuf>,
    /// A folder of the project with repositories.
    pub repositories: Option<PathBuf>,
    /// Whether the host has a git that runs in them afterwards.
    pub git: bool,
    /// Variables that contain the nonce where the sandbox is started.
    pub variables: Vec<String>,
    /// Whether the standard input is a file.
    pub input: bool,
}

/// Ports that connect the sandbox with the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedPorts {
    /// The port of the host that the sandbox reaches.
    pub host: u16,
    /// How the server there greets.
    pub greeting: String,
    /// The port of the host that leads to a server in the sandbox.
    pub published: u16,
    /// The port of that server.
    pub inside: u16,
}

impl Targets {
    /// Reads the targets from [`TARGETS_VARIABLE`]; without the variable, nothing was planted.
    ///
    /// # Errors
    /// If the variable has another form.
    pub fn told() -> serde_json::Result<Self> {
        match std::env::var(TARGETS_VARIABLE) {
            Ok(text) => serde_json::from_str(&text),
            Err(_) => Ok(Self::default()),
        }
    }
}

/// The variable that carries the [`Targets`] into the sandbox, as JSON.
pub const TARGETS_VARIABLE: &str = "GATEWAY_ESCAPE_TARGETS";
/// How long after the planting the late sockets are created.
pub const LATE: Duration = Duration::from_millis(700);
/// The file in each planted folder.
pub const PLANTED: &str = "planted";
/// The variable that carries the nonce in the planted process.
pub const CANARY_VARIABLE: &str = "GATEWAY_ESCAPE_CANARY";
