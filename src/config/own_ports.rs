//! Ports of the sandbox that would lead to the gateway itself, or nowhere.

use std::net::SocketAddr;

use gateway_message::Origin;

use super::Config;
use super::diagnostic::Hint;

/// Returns the ports that would lead the workload to the gateway itself, or nowhere.
pub(super) fn contradictions(config: &Config) -> Vec<(String, Hint)> {
    let (host, publish) = (&config.sandbox.host_port, &config.sandbox.publish);
    let own = host.iter().filter_map(|port| own_port(config, *port));
    let twice = host.iter().enumerate();
    let twice = twice.filter(|(at, port)| host[..*at].contains(port));
    let twice = twice.map(|(_, port)| {
        let hint = hint!("it is named before"; "name it once");
        (format!("the port {port} of the host is named twice"), hint)
    });
    // One complaint for each port is enough.
    let is_host = |port| host.contains(&port) && own_port(config, port).is_none();
    let inside = publish.iter().filter(|one| is_host(one.inside));
    let inside = inside.map(|one| {
        let hint = hint!("port of the sandbox would be the host's service and the command's own server";
            "publish another port of the sandbox");
        (
            format!("port {} is published and a host port", one.inside),
            hint,
        )
    });
    own.chain(twice).chain(inside).collect()
}

/// Returns which part of the gateway itself listens at a port of the host.
fn own_port(config: &Config, port: u16) -> Option<(String, Hint)> {
    let at = |address: SocketAddr| address.port() == port;
    let published = config.sandbox.publish.iter().any(|one| at(one.address));
    let mut vaults = config.vault.iter().flat_map(|vault| &vault.servers);
    let mut exports = config.exports.iter().map(|export| &export.server);
    let what = match () {
        () if vaults.any(|server| is_here(server, port)) => "its vault",
        () if exports.any(|server| is_here(server, port)) => "the collector of its records",
        () if config.control.metrics_address.is_some_and(at) => "its metrics",
        () if config
            .listeners
            .iter()
            .any(|one| one.address.tcp().is_some_and(at)) =>
        {
            "a listener"
        }
        () if published => "a published port",
        () => return None,
    };
    let hint = hint!("the gateway has {what} there, which is not for the sandbox";
        "name the port of the service that the sandbox needs");
    Some((
        format!("the sandbox would reach port {port} of the host"),
        hint,
    ))
}

/// Whether a server is at a port of this machine's loopback.
fn is_here(server: &Origin, port: u16) -> bool {
    let host = &server.authority.host;
    let is_local = host.ip().is_some_and(|ip| ip.is_loopback()) || host.as_str() == "localhost";
    is_local && server.authority.port == port
}

#[cfg(test)]
mod tests {
    use super::super::port::published;
    use super::*;

    #[test]
    fn the_gateways_own_ports_are_no_ports_for_the_sandbox() {
        let mut config = Config::default();
        config.sandbox.host_port = vec![9100, 3000, 5432, 5432, 80];
        config.sandbox.publish = ["3000", "8080:80"]
            .map(|text| published(text).unwrap())
            .into();
        config.control.metrics_address = Some("127.0.0.1:9100".parse().unwrap());
        let found = contradictions(&config).into_iter().map(|(what, _)| what);
        let found: Vec<String> = found.collect();
        assert!(found[0].contains("9100"), "{found:?}");
        assert!(found[1].contains("3000"), "{found:?}");
        assert!(
            found[2].contains("5432 of the host is named twice"),
            "{found:?}"
        );
        assert!(
            found[3].contains("port 80 is published and a host port"),
            "{found:?}"
        );
        assert_eq!(found.len(), 4);
    }
}
