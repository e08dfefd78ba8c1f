//! Ports that connect a sandbox with the host's loopback: `publish` and `host_port`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Config;
use super::diagnostic::Hint;

/// A server in the sandbox that an address of the host leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedPort {
    /// Where the host listens.
    pub address: SocketAddr,
    /// The server's port in the sandbox.
    pub inside: u16,
}

/// Reads `[HOST:]PORT[:INSIDE]`. HOST is an address, and 127.0.0.1 unless named.
pub(super) fn published(text: &str) -> Result<PublishedPort, Hint> {
    let malformed = || {
        Hint::new(
            "it is not [HOST:]PORT[:INSIDE], where HOST is an address of this machine",
            "write for example `3000`, `8080:80` or `127.0.0.2:3000`",
        )
    };
    let (host, ports) = split_host(text).ok_or_else(malformed)?;
    let mut ports = ports
        .split(':')
        .map(|port| number(port).ok_or_else(malformed));
    let outside = ports.next().ok_or_else(malformed)??;
    let inside = ports.next().transpose()?.unwrap_or(outside);
    match ports.next() {
        Some(_) => Err(malformed()),
        None => Ok(PublishedPort {
            address: (host, outside).into(),
            inside,
        }),
    }
}

/// Takes the address off the front, if there is one.
fn split_host(text: &str) -> Option<(IpAddr, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, ports) = rest.split_once("]:")?;
        return Some((IpAddr::V6(host.parse().ok()?), ports));
    }
    match text.split_once(':') {
        Some((host, ports)) if host.contains('.') => Some((host.parse().ok()?, ports)),
        _ => Some((Ipv4Addr::LOCALHOST.into(), text)),
    }
}

/// Reads a port of the host.
pub(super) fn host_port(text: &str) -> Result<u16, Hint> {
    number(text).ok_or_else(|| {
        Hint::new(
            "it is no port from 1 to 65535",
            "write for example `5432`: the sandbox reaches 127.0.0.1:5432 of this machine there",
        )
    })
}

fn number(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

/// Returns the ports that would lead the workload to the gateway itself, or nowhere.
pub(super) fn contradictions(config: &Config) -> Vec<(String, Hint)> {
    let (host, publish) = (&config.sandbox.host_port, &config.sandbox.publish);
    let own = host.iter().filter_map(|port| own_port(config, *port));
    let twice = host.iter().enumerate();
    let twice = twice.filter(|(at, port)| host[..*at].contains(port));
    let twice = twice.map(|(_, port)| {
        let hint = Hint::new("it is named before", "name it once");
        (format!("the port {port} of the host is named twice"), hint)
    });
    let inside = publish.iter().filter(|one| host.contains(&one.inside));
    let inside = inside.map(|one| {
        let why = "port of the sandbox would be the host's service and the command's own server";
        let hint = Hint::new(why, "publish another port of the sandbox");
        (
            format!("port {} is published and a host port", one.inside),
            hint,
        )
    });
    own.chain(twice).chain(inside).collect()
}

/// What of the gateway itself listens at a port of the host.
fn own_port(config: &Config, port: u16) -> Option<(String, Hint)> {
    let at = |address: SocketAddr| address.port() == port;
    let published = config.sandbox.publish.iter().any(|one| at(one.address));
    let what = match () {
        () if config.control.metrics_address.is_some_and(at) => "its metrics",
        () if config.listeners.iter().any(|one| at(one.address)) => "a listener",
        () if published => "a published port",
        () => return None,
    };
    let hint = Hint::new(
        format!("the gateway has {what} there, which is not for the sandbox"),
        "name the port of the service that the sandbox needs",
    );
    Some((
        format!("the sandbox would reach port {port} of the host"),
        hint,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_port_is_read_in_each_form() {
        let read = |text| published(text).map(|one| (one.address.to_string(), one.inside));
        let forms = [
            ("3000", "127.0.0.1:3000", 3000),
            ("8080:80", "127.0.0.1:8080", 80),
            ("127.0.0.2:3000", "127.0.0.2:3000", 3000),
            ("0.0.0.0:8080:80", "0.0.0.0:8080", 80),
            ("[::1]:8080:80", "[::1]:8080", 80),
        ];
        for (text, address, inside) in forms {
            assert_eq!(read(text), Ok((address.to_owned(), inside)), "{text}");
        }
        for text in [
            "", "0", "x", "1:2:3", "host:80", "::1:80", "1.1.1.1", "70000", "+80", "80:0",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

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
