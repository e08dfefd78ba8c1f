//! What the listeners of a configuration lack: an address to bind, the keys of an issuer, or a
//! tailnet's daemon. Certificates and passwords are read with the configuration.

use std::io::ErrorKind;
use std::net::TcpListener;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use serde::Serialize;

use crate::app::listen::issuers::keys_at;
use crate::config::{Config, Listener, ListenerAddress};

/// What is reported about a listener.
#[derive(Serialize)]
pub(super) struct ListenerFinding {
    pub(super) listener: String,
    pub(super) session: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lacks: Option<String>,
}

/// Looks at each listener.
pub(super) async fn check(config: &Config) -> Vec<ListenerFinding> {
    let mut findings = Vec::new();
    for listener in &config.listeners {
        let lacks = lacks(config, listener).await;
        findings.push(ListenerFinding {
            listener: listener.address.to_string(),
            session: listener.session.as_str().to_owned(),
            lacks: (!lacks.is_empty()).then(|| lacks.join("; ")),
        });
    }
    findings
}

async fn lacks(config: &Config, listener: &Listener) -> Vec<String> {
    let mut lacks = Vec::from_iter(unbound(&listener.address));
    if let Some(url) = listener.jwt.as_ref().and_then(|jwt| jwt.url())
        && let Err(why) = keys_at(config, url).await
    {
        lacks.push(format!("the keys at {url} cannot be had: {why}"));
    }
    for tailnet in listener.who.iter().filter_map(|one| one.tailnet()) {
        lacks.extend(tailnet.works().await.err());
    }
    lacks
}

/// Why an address cannot be bound. One that is in use may be that of a gateway that runs.
fn unbound(address: &ListenerAddress) -> Option<String> {
    match address {
        ListenerAddress::Tcp(address) => {
            let why = TcpListener::bind(address).err()?;
            let is_taken = why.kind() == ErrorKind::AddrInUse;
            (!is_taken).then(|| format!("it cannot listen there: {why}"))
        }
        ListenerAddress::Unix(path) => {
            let folder = path.parent()?;
            // `serve` locks the folder, and makes the socket in it.
            let all = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
            let why = accessat(CWD, folder, all, AtFlags::EACCESS).err()?;
            Some(format!(
                "its folder `{}` cannot be used: {why}",
                folder.display()
            ))
        }
    }
}
