//! Reads patterns of hosts and origins, and says what is wrong with one.

use crate::message::{Authority, Host, HostPattern, OriginPattern, Scheme};

use super::mistake::Doubt;

/// Reads `api.example.com`, `*.example.com`, or an address, with its port.
///
/// # Errors
/// A [`Doubt`] where it is no host and port, or where the domain is a whole top-level one.
pub fn host_and_port(text: &str, default_port: u16) -> Result<(HostPattern, u16), Doubt> {
    let (below, rest) = match text.strip_prefix("*.") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if rest.contains('*') {
        return Err(Doubt::new(
            "`*` stands for whole labels, once, at the start",
            "write `*.example.com`, or each host by its name",
        ));
    }
    let authority = Authority::parse(rest.as_bytes(), Some(default_port)).map_err(|malformed| {
        Doubt::new(
            malformed.to_string(),
            "write `api.example.com`, `*.example.com` or `host:port`",
        )
    })?;
    if !below {
        return Ok((HostPattern::Exact(authority.host), authority.port));
    }
    narrow_enough(&authority.host)?;
    Ok((HostPattern::Below(authority.host), authority.port))
}

/// Reads `https://host[:port]`; the host may start with `*.`.
///
/// # Errors
/// A [`Doubt`] where the scheme is missing or another one, something follows the port, or the host
/// is none.
pub fn origin(text: &str) -> Result<OriginPattern, Doubt> {
    let (scheme, rest) = match text.split_once("://") {
        Some(("https", rest)) => (Scheme::Https, rest),
        Some(("http", rest)) => (Scheme::Http, rest),
        Some(_) => {
            return Err(Doubt::new(
                "the scheme of an origin is https or http",
                "write `https://host`",
            ));
        }
        None => {
            return Err(Doubt::new(
                "an origin starts with its scheme",
                "write `https://host` or `https://host:port`",
            ));
        }
    };
    if rest.contains(['/', '?', '#']) {
        return Err(Doubt::new(
            "an origin is a scheme, a host and a port",
            "leave out what follows the host; `path` of [[credential]] narrows a credential to a path",
        ));
    }
    let (hosts, port) = host_and_port(rest, scheme.default_port())?;
    Ok(OriginPattern {
        scheme,
        hosts,
        port,
    })
}

/// Refuses a pattern over a whole top-level domain, or over a registry's second level such as
/// `co.uk` (threats B12).
fn narrow_enough(domain: &Host) -> Result<(), Doubt> {
    if domain.ip().is_some() {
        return Err(Doubt::new(
            "an address has no names below it",
            "write the address without `*.`",
        ));
    }
    let labels: Vec<_> = domain.as_str().split('.').collect();
    let registry = match labels[..] {
        [_] => true,
        [second, country] => country.len() == 2 && REGISTRY_LABELS.contains(&second),
        _ => false,
    };
    if registry {
        return Err(Doubt::new(
            format!("`*.{domain}` covers domains that anyone can register"),
            "name the domain that you mean, such as `*.example.com`",
        ));
    }
    Ok(())
}

/// The second-level labels under which countries' registries sell names.
const REGISTRY_LABELS: &[&str] = &[
    "ac", "co", "com", "edu", "gob", "gov", "go", "mil", "ne", "net", "nom", "or", "org",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_over_what_a_registry_sells_is_refused() {
        for text in [
            "*.com",
            "*.co.uk",
            "*.com.au",
            "*.",
            "*",
            "*.*.example.com",
            "a.*.example.com",
            "a*.example.com",
            "*.10.0.0.1",
        ] {
            assert!(host_and_port(text, 443).is_err(), "{text}");
        }
        assert!(host_and_port("*.bbc.co.uk", 443).is_ok());
    }

    #[test]
    fn an_origin_is_a_scheme_a_host_and_a_port_and_nothing_else() {
        let read = origin("https://*.Example.com:8443").unwrap();
        assert_eq!(read.to_string(), "https://*.example.com:8443");
        assert_eq!(
            origin("https://[::1]").unwrap().to_string(),
            "https://[::1]"
        );
        for text in [
            "api.github.com",
            "https://",
            "https://a/",
            "https://a?b",
            "https://user@a",
            "https://user:pw@a",
            "ftp://a",
            "HTTPS://a",
            "https://a:0",
            "https://a:99999",
            "https:///a",
        ] {
            assert!(origin(text).is_err(), "{text}");
        }
    }
}
