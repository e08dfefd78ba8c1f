//! `[control]`: the control socket, who may use it, and its ports.

use std::net::SocketAddr;
use std::path::PathBuf;

use gateway_intercept::{Evidence, HTTP1};

use super::diagnostic::Hint;
use super::listener::{ListenerTls, tls};
use super::section::Section;
use super::settings::policy_file;

/// Settings of the control socket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControlSettings {
    /// The socket's path. Without one, the socket is in the user's runtime directory.
    pub path: Option<PathBuf>,
    /// The policies for operators. Without them, the gateway's user and root may do everything, and
    /// nobody else anything.
    pub policy: Option<PathBuf>,
    /// The address of the metrics port, for metrics and health over TCP.
    pub metrics_address: Option<SocketAddr>,
    /// The address of the control port, which serves what the socket does to holders of client
    /// certificates, and its TLS.
    pub port: Option<(SocketAddr, ListenerTls)>,
}

impl ControlSettings {
    /// Returns the address of the control port, if there is one.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.port.as_ref().map(|(address, _)| *address)
    }
}

pub(super) fn control(section: &Section<'_, '_>) -> ControlSettings {
    let tls = section.inner("tls", "control.tls");
    // Where a certificate is the only evidence, no client without one is taken.
    let tls = tls.and_then(|inner| tls::tls(&inner, &[Evidence::Certificate], &[HTTP1]));
    if section.has("address") {
        require!(section, "tls"; "operators are known by their certificates there, also on loopback";
            "add `tls = {{ certificate = \"gateway.pem\", key = \"gateway.key\", client_roots = \"operators.pem\" }}`");
    } else {
        let why = hint!("nothing listens for operators with certificates";
            "add `address = \"127.0.0.1:9443\"`, or remove it");
        section.refuse(&["tls"], "is of the control port", why);
    }
    ControlSettings {
        path: section.path("path"),
        policy: section.get("policy", |text| policy_file(section, text)),
        metrics_address: section.get("metrics_address", address),
        port: section.get("address", address).zip(tls),
    }
}

fn address(text: &str) -> Result<SocketAddr, Hint> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() != 0 && !address.ip().is_multicast() => Ok(address),
        _ => refused!("it is no address and port"; "write for example `127.0.0.1:9100`"),
    }
}
