//! Hosts, origins and networks that the operator names, and those that no operator may name.

use std::net::{IpAddr, Ipv4Addr};

use gateway_intercept::GATEWAY_NAME;
use gateway_message::{HostPattern, Origin, OriginPattern, PatternMalformed, Scheme};
use gateway_origin::vet::metadata_within;
use ipnet::IpNet;

use super::diagnostic::Hint;

/// Reads `api.example.com`, `*.example.com`, or an address, with an optional port.
///
/// # Errors
/// Returns a [`Hint`] if it is not such a pattern, or an address that no origin can have.
pub fn host_and_port(text: &str, default_port: u16) -> Result<(HostPattern, u16), Hint> {
    let (hosts, port) = HostPattern::with_port(text, default_port)?;
    named(&hosts)?;
    Ok((hosts, port))
}

/// Reads `https://host[:port]`; the host may start with `*.`.
///
/// # Errors
/// Returns a [`Hint`] if it is not such a pattern, or an address that no origin can have.
pub fn origin(text: &str) -> Result<OriginPattern, Hint> {
    let pattern: OriginPattern = text.parse()?;
    named(&pattern.hosts)?;
    Ok(pattern)
}

/// Reads the origin of one server. A pattern of several is refused with the hint.
pub(super) fn server(text: &str, several: Hint) -> Result<Origin, Hint> {
    origin(text)?.exact().ok_or(several)
}

/// Reads the URL of one server: its origin, and a path that may be empty.
pub(super) fn url(text: &str, example: &str) -> Result<(Origin, String), Hint> {
    if !text.contains("://") {
        return refused!("it has no scheme, which says whether what is sent can be read on the way";
            "write for example `{example}`");
    }
    let (origin, path) = split(text);
    let several = hint!("it names one server"; "write for example `{example}`");
    let server = server(origin, several)?;
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"?#%\\".contains(&byte);
    if !path.bytes().all(fits) {
        return refused!("its path may have no query and no escapes";
            "write for example `{example}`");
    }
    Ok((server, path.to_owned()))
}

/// Whether the network can read what is sent to a server.
pub(super) fn is_open(server: &Origin) -> bool {
    server.scheme == Scheme::Http && !server.authority.host.is_loopback()
}

/// Reads what `--allow` names: a host and port, or an origin. The default scheme is https.
///
/// # Errors
/// Returns a [`Hint`] as [`host_and_port`] does, or if an http origin is a whole domain.
pub(super) fn allowed(text: &str) -> Result<OriginPattern, Hint> {
    let pattern = origin(split(text).0)?;
    match (pattern.scheme, &pattern.hosts) {
        (Scheme::Http, HostPattern::Below(_)) => Err(whole_domain_in_clear_text()),
        _ => Ok(pattern),
    }
}

/// Splits a URL into its origin and the rest.
pub(super) fn split(text: &str) -> (&str, &str) {
    let begin = text.find("://").map_or(0, |at| at + 3);
    let end = text[begin..].find(['/', '?', '#']);
    text.split_at(end.map_or(text.len(), |end| begin + end))
}

/// Whether a URL has more than a host. A person may paste one to name its host.
pub(super) fn has_path(text: &str) -> bool {
    !matches!(split(text).1, "" | "/")
}

/// Explains why a whole domain is not reached in clear text.
pub(super) fn whole_domain_in_clear_text() -> Hint {
    hint!("what goes there can be read and changed on the way, so each host is a decision";
        "name the host, or `connect` to a tunnel's end on loopback in `[[origin]]`")
}

fn named(hosts: &HostPattern) -> Result<(), Hint> {
    if matches!(hosts, HostPattern::Exact(host) if host.as_str() == GATEWAY_NAME) {
        return refused!("in a sandbox, `{GATEWAY_NAME}` is the gateway itself: no server of that name is reached";
            "give the server another name");
    }
    hosts.host().ip().map_or(Ok(()), reachable)
}

impl From<PatternMalformed> for Hint {
    fn from(malformed: PatternMalformed) -> Self {
        Self::new(malformed.to_string(), malformed.remedy())
    }
}

/// Reads an exception to the address floor: a network as `address/prefix`, or one address.
///
/// # Errors
/// Returns a [`Hint`] if it is neither, has bits set after its prefix, is wider than any exception
/// should be, or includes a cloud metadata service.
pub fn exception(text: &str) -> Result<IpNet, Hint> {
    let network = network(text)?;
    let narrowest_wide = match network {
        IpNet::V4(_) => 8,
        IpNet::V6(_) => 32,
    };
    if network.prefix_len() < narrowest_wide {
        return refused!("an exception that wide lifts the floor that keeps the workload from the operator's own network";
            "name the network that the origin lies in, such as `10.1.0.0/16`");
    }
    if let Some(metadata) = metadata_within(&network) {
        return refused!("it reaches {metadata}, a cloud's metadata service, which hands out the machine's own credentials";
            "name a narrower network that leaves it out");
    }
    reachable(network.addr())?;
    Ok(network)
}

fn network(text: &str) -> Result<IpNet, Hint> {
    // The standard library parses the address and rejects leading zeros.
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| {
        hint!("it is no address and prefix"; "write for example `10.1.0.0/16` or `fd12:3456::/48`")
    })?;
    if address.to_canonical() != address {
        return refused!("an IPv4 network is written as IPv4"; "write it without `::ffff:`");
    }
    let network = match prefix {
        None => Ok(IpNet::from(address)),
        Some(_) => text.parse::<IpNet>(),
    };
    let network = network.map_err(|_| {
        hint!("the prefix is no number of bits of that address";
            "write 0 to 32, or 0 to 128 for IPv6")
    })?;
    if network.trunc() != network {
        return refused!("bits are set behind the prefix";
            "write the network's first address, or one address without a prefix");
    }
    Ok(network)
}

/// Refuses addresses that no origin can have: unspecified, multicast, broadcast, metadata.
///
/// # Errors
/// Returns a [`Hint`] that names the kind of address.
pub fn reachable(address: IpAddr) -> Result<(), Hint> {
    let address = address.to_canonical();
    let kind = if address.is_unspecified() {
        "the unspecified address"
    } else if address.is_multicast() {
        "a multicast address"
    } else if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        "the broadcast address"
    } else if metadata_within(&IpNet::from(address)).is_some() {
        "a cloud's metadata service, which hands out the machine's own credentials"
    } else {
        return Ok(());
    };
    refused!("{address} is {kind}"; "write the address of the origin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_private_network_is_a_fit_exception() {
        for text in [
            "10.1.0.0/16",
            "10.0.0.0/8",
            "192.168.7.9",
            "127.0.0.1",
            "::1",
            "fd12:3456:789a::/48",
        ] {
            assert!(exception(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn the_gateways_own_name_is_no_servers() {
        for text in [
            "gateway.internal",
            "http://gateway.internal:8080",
            "GATEWAY.internal",
        ] {
            let hint = allowed(text).unwrap_err();
            assert!(hint.why.contains("the gateway itself"), "{text} {hint:?}");
        }
        assert!(allowed("api.gateway.internal").is_ok());
    }

    #[test]
    fn everything_wide_or_metadata_is_refused() {
        for text in [
            "0.0.0.0/0",
            "::/0",
            "0.0.0.0/7",
            "fc00::/7",
            "169.254.169.254",
            "169.254.42.42",
            "169.254.0.0/16",
            "100.64.0.0/10",
            "168.63.129.16/32",
            "fd00:ec2::254",
            "fd00:ec2::/32",
            "::ffff:169.254.169.254",
            "224.0.0.0/8",
            "255.255.255.255",
            "0.0.0.0",
            "::",
        ] {
            assert!(exception(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_network_with_bits_behind_its_prefix_or_odd_digits_is_refused() {
        for text in [
            "10.1.2.3/16",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "10.0.0/8",
            "010.0.0.0/8",
            "localhost",
            "",
        ] {
            assert!(exception(text).is_err(), "{text}");
        }
    }
}
