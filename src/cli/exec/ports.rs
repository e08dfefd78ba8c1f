//! `--publish` and `--host-port`: the ports that connect a sandbox with the host's loopback.

use std::net::SocketAddr;

use crate::app::Failure;
use crate::cli::operate::gateways::ChosenGateway;
use crate::config::{PublishedPort, Sandbox};
use crate::launch::ports::{MOST_HOST, Ports};

/// Returns the ports that the launcher sets up for a sandbox.
///
/// # Errors
/// Returns a [`Failure`] if the gateway itself uses one inside, or if there are too many.
pub(crate) fn of(sandbox: &Sandbox) -> Result<Ports, Failure> {
    let inside = sandbox.publish.iter().map(|one| ("--publish", one.inside));
    let host = sandbox.host_port.iter().map(|port| ("--host-port", *port));
    for (flag, port) in inside.chain(host) {
        if let Some(why) = Ports::taken_inside(port) {
            return Err(
                Failure::usage(format!("`{flag}` cannot be port {port} inside"))
                    .because(why)
                    .next("name another port"),
            );
        }
    }
    if sandbox.host_port.len() > MOST_HOST {
        return Err(Failure::usage("too many ports of the host are named")
            .because(format!("a sandbox reaches at most {MOST_HOST}"))
            .next("name fewer with `--host-port`"));
    }
    Ok(Ports {
        host: sandbox.host_port.clone(),
        inward: !sandbox.publish.is_empty(),
    })
}

/// Refuses a port of the host at which another gateway of this user serves: the sandbox could use
/// that gateway's session, or read its metrics. A gateway that does not answer is not known to
/// serve there.
///
/// # Errors
/// Returns a [`Failure`] that names the gateway.
pub(crate) fn refuse_other_gateways(sandbox: &Sandbox) -> Result<(), Failure> {
    let asked = !sandbox.host_port.is_empty();
    let others = asked.then(|| ChosenGateway::default().find());
    for gateway in others.transpose()?.unwrap_or_default() {
        let state = gateway.get("/v1/status").unwrap_or_default();
        let listeners = state["listeners"].as_array().into_iter().flatten();
        let served = listeners.map(|one| &one["address"]);
        let own = [&state["metrics_address"], &state["control_address"]];
        let ports = served.chain(own).filter_map(|one| {
            let address: SocketAddr = one.as_str()?.parse().ok()?;
            Some(address.port())
        });
        let named = |port: &u16| sandbox.host_port.contains(port);
        if let Some(port) = ports.into_iter().find(named) {
            let name = &gateway.name;
            return Err(Failure::usage(format!("`--host-port {port}` is refused"))
                .because(format!(
                    "gateway `{name}` serves there, and the command would reach its sessions"
                ))
                .next("name the port of the service that the command needs"));
        }
    }
    Ok(())
}

/// Returns the summary's lines about the ports.
pub(crate) fn told(sandbox: &Sandbox) -> Vec<(&'static str, String)> {
    let published = sandbox.publish.iter().map(|one| {
        let PublishedPort { address, inside } = one;
        let others = if address.ip().is_loopback() {
            ""
        } else {
            ", also from other machines"
        };
        let text = format!("http://{address} of this machine is port {inside} inside{others}");
        ("publish", text)
    });
    let host = sandbox.host_port.iter().map(|port| {
        let text = format!("127.0.0.1:{port} inside is this machine's; no secret is injected");
        ("host port", text)
    });
    published.chain(host).collect()
}
