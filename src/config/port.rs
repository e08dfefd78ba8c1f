//! Ports that connect a sandbox with the host's loopback: `publish` and `host_port`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::diagnostic::Hint;

/// A server in the sandbox, reached at an address of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedPort {
    /// The address that the host listens at.
    pub address: SocketAddr,
    /// The server's port in the sandbox.
    pub inside: u16,
}

/// Reads `[HOST:]PORT[:INSIDE]`. HOST is an address; the default is 127.0.0.1.
pub(super) fn published(text: &str) -> Result<PublishedPort, Hint> {
    let malformed = || {
        hint!("it is not [HOST:]PORT[:INSIDE], where HOST is an address of this machine";
            "write for example `3000`, `8080:80` or `127.0.0.2:3000`")
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

/// Splits the address off the front, if there is one.
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
        hint!("it is no port from 1 to 65535";
            "write for example `5432`: the sandbox reaches 127.0.0.1:5432 of this machine there")
    })
}

fn number(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
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
}
