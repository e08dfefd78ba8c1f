//! `[control]`: the control socket, who may use it, and the metrics port.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::section::Section;
use super::settings::policy_file;

/// Settings of the control socket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControlSettings {
    /// The socket's path. Without one, the socket is in the user's runtime directory.
    pub path: Option<PathBuf>,
    /// The policies for operators. Without them, the gateway's user and root may do everything.
    pub policy: Option<PathBuf>,
    /// The address of the metrics port, for metrics and health over TCP.
    pub metrics_address: Option<SocketAddr>,
}

pub(super) fn control(section: &Section<'_, '_>) -> ControlSettings {
    ControlSettings {
        path: section.path("path"),
        policy: section.get("policy", |text| policy_file(section, text)),
        metrics_address: section.get("metrics_address", |text| match text.parse::<SocketAddr>() {
            Ok(address) if address.port() != 0 => Ok(address),
            _ => refused!("it is no address and port"; "write for example `127.0.0.1:9100`"),
        }),
    }
}
