//! `[control]`: the control socket, who may use it, and the metrics port.

use std::net::SocketAddr;
use std::path::PathBuf;

use toml::Spanned;

use crate::policy::Source;

use super::diagnostic::Hint;
use super::section::Section;
use super::settings::path;

/// Settings of the control socket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControlSettings {
    /// The socket. Without it, one of the user's runtime directory is used.
    pub path: Option<PathBuf>,
    /// The policies for operators. Without them, the gateway's user and root may do everything.
    pub policy: Option<PathBuf>,
    /// Where metrics and health are served over TCP.
    pub metrics_address: Option<SocketAddr>,
}

pub(super) fn control(section: &Section<'_, '_>) -> ControlSettings {
    let policy = section.parsed("policy", |text| {
        let path = section.document.path(text)?;
        Source::read(&path)?;
        Ok(path)
    });
    let address = section.parsed("metrics_address", |text| {
        text.parse::<SocketAddr>()
            .ok()
            .filter(|address| address.port() != 0)
            .ok_or_else(|| {
                Hint::new(
                    "it is no address and port",
                    "write for example `127.0.0.1:9100`",
                )
            })
    });
    ControlSettings {
        path: path(section, "path"),
        policy: policy.map(Spanned::into_inner),
        metrics_address: address.map(Spanned::into_inner),
    }
}
