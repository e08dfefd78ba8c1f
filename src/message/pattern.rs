//! Patterns of hosts and origins: one host, or every name below a domain.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use super::suffix::{SuffixOwner, shared};
use super::{Authority, AuthorityMalformed, Host, Origin, Scheme};

/// A pattern of origins: a scheme, one host or all names below a domain, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OriginPattern {
    /// The scheme. [`Scheme::Http`] matches loopback addresses only.
    pub scheme: Scheme,
    /// The hosts.
    pub hosts: HostPattern,
    /// The port.
    pub port: u16,
}

/// One host, or every name below a domain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Only this host.
    Exact(Host),
    /// Every name below the domain, at any depth, by whole labels. Not the domain itself.
    Below(Host),
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(&host.to_uri()),
            Self::Below(host) => write!(f, "*.{host}"),
        }
    }
}

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternMalformed {
    /// The scheme is neither `https` nor `http`.
    #[error("the scheme of an origin is https or http")]
    Scheme,
    /// Something follows the port.
    #[error("an origin is a scheme, a host and a port, and no path")]
    Path,
    /// A `*` that is not the whole first label.
    #[error("`*` stands for whole labels, once, at the start")]
    Star,
    /// The rest is not a host and a port.
    #[error(transparent)]
    Authority(AuthorityMalformed),
    /// `*.` before an address.
    #[error("an address has no names below it")]
    Address,
    /// Every name below a domain where anyone can register names.
    #[error("`*.{0}` covers domains that anyone can register")]
    Registry(Host),
}

impl PatternMalformed {
    /// What to write instead.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Scheme => "write `https://host`",
            Self::Path => "leave out what follows the host and the port",
            Self::Star => "write `*.example.com`, or each host by its name",
            Self::Authority(_) => "write `api.example.com`, `*.example.com` or `host:port`",
            Self::Address => "write the address without `*.`",
            Self::Registry(_) => "name the domain that you mean, such as `*.example.com`",
        }
    }
}

impl OriginPattern {
    /// Whether an origin matches the pattern.
    #[must_use]
    pub fn matches(&self, origin: &Origin) -> bool {
        self.scheme == origin.scheme
            && self.port == origin.authority.port
            && self.hosts.matches(&origin.authority.host)
    }

    /// Whether any origin matches both patterns.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.port == other.port && self.hosts.overlaps(&other.hosts)
    }

    /// Whether every origin that matches the other pattern matches this one.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let is_covered = match (&self.hosts, &other.hosts) {
            (HostPattern::Below(domain), HostPattern::Below(other)) => {
                other.domains().any(|above| above == domain.as_str())
            }
            (hosts, HostPattern::Exact(host)) => hosts.matches(host),
            (HostPattern::Exact(_), HostPattern::Below(_)) => false,
        };
        self.scheme == other.scheme && self.port == other.port && is_covered
    }

    /// The one origin that matches, if it names a host.
    pub fn exact(&self) -> Option<Origin> {
        match &self.hosts {
            HostPattern::Exact(host) => Some(Origin {
                scheme: self.scheme,
                authority: Authority {
                    host: host.clone(),
                    port: self.port,
                },
            }),
            HostPattern::Below(_) => None,
        }
    }

    /// Whether the name itself shows that the origin is this machine: `localhost` or a loopback
    /// address.
    pub fn is_loopback(&self) -> bool {
        match &self.hosts {
            HostPattern::Exact(host) => host.is_loopback(),
            HostPattern::Below(_) => false,
        }
    }
}

impl HostPattern {
    /// Parses `api.example.com`, `*.example.com`, or an address, with an optional port.
    ///
    /// # Errors
    /// [`PatternMalformed`] if it is not a host and port, or if it covers names that anyone can
    /// register.
    pub fn with_port(text: &str, default_port: u16) -> Result<(Self, u16), PatternMalformed> {
        if text.contains(['/', '?', '#']) {
            return Err(PatternMalformed::Path);
        }
        let (below, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if rest.contains('*') {
            return Err(PatternMalformed::Star);
        }
        // A person writes an IPv6 address also without brackets. Then it has no port.
        let bare = rest.parse::<Ipv6Addr>().is_ok();
        let rest = if bare {
            format!("[{rest}]")
        } else {
            rest.to_owned()
        };
        let Authority { host, port } = Authority::parse(rest.as_bytes(), Some(default_port))
            .map_err(PatternMalformed::Authority)?;
        match (below, host.ip(), shared(host.as_str())) {
            (false, ..) => Ok((Self::Exact(host), port)),
            (true, Some(_), _) => Err(PatternMalformed::Address),
            (true, None, Some(SuffixOwner::Registry)) => Err(PatternMalformed::Registry(host)),
            (true, None, _) => Ok((Self::Below(host), port)),
        }
    }

    /// Whether a host matches the pattern.
    #[must_use]
    pub fn matches(&self, host: &Host) -> bool {
        match self {
            Self::Exact(exact) => exact == host,
            Self::Below(domain) => host.domains().skip(1).any(|above| above == domain.as_str()),
        }
    }

    /// Whether any host matches both patterns.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let is_below = |one: &Host, two: &Host| one.domains().any(|domain| domain == two.as_str());
        match (self, other) {
            (Self::Exact(host), pattern) | (pattern, Self::Exact(host)) => pattern.matches(host),
            (Self::Below(one), Self::Below(two)) => is_below(one, two) || is_below(two, one),
        }
    }

    /// The host or the domain.
    pub fn host(&self) -> &Host {
        match self {
            Self::Exact(host) | Self::Below(host) => host,
        }
    }
}

gateway_names::serde_as_text!(OriginPattern, ToString::to_string, |text| text.parse().ok());

/// Parses `https://host`, `https://*.domain` or `http://127.0.0.1:8080`. The default scheme is
/// `https`.
impl FromStr for OriginPattern {
    type Err = PatternMalformed;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = match text.split_once("://") {
            Some(("https", rest)) => (Scheme::Https, rest),
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(_) => return Err(PatternMalformed::Scheme),
            None => (Scheme::Https, text),
        };
        let (hosts, port) = HostPattern::with_port(rest, scheme.default_port())?;
        Ok(Self {
            scheme,
            hosts,
            port,
        })
    }
}

impl fmt::Display for OriginPattern {
    /// Writes the pattern, without the port if it is the scheme's default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.hosts)?;
        if self.port == self.scheme.default_port() {
            Ok(())
        } else {
            write!(f, ":{}", self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        let pattern: OriginPattern = text.parse().unwrap();
        pattern.hosts
    }

    #[test]
    fn a_pattern_below_a_domain_matches_whole_labels_only() {
        let pattern = pattern("*.good.test");
        let host = |text: &str| Host::parse(text.as_bytes()).unwrap();
        for name in ["a.good.test", "a.b.good.test", "A.GOOD.TEST."] {
            assert!(pattern.matches(&host(name)), "{name}");
        }
        for name in [
            "good.test",
            "evilgood.test",
            "good.test.evil",
            "a.good.testing",
            "test",
            "a.good.test.evil.test",
        ] {
            assert!(!pattern.matches(&host(name)), "{name}");
        }
    }

    #[test]
    fn a_pattern_over_what_a_registry_sells_is_refused() {
        for text in [
            "*.com",
            "*.co.uk",
            "*.com.au",
            "*.kobe.jp",
            "*.",
            "*",
            "*.*.example.com",
            "a.*.example.com",
            "a*.example.com",
            "*.10.0.0.1",
        ] {
            assert!(HostPattern::with_port(text, 443).is_err(), "{text}");
        }
        for text in ["*.bbc.co.uk", "*.amazonaws.com", "*.corp.test", "co.uk"] {
            assert!(HostPattern::with_port(text, 443).is_ok(), "{text}");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_a_host_and_a_port_and_nothing_else() {
        for (text, shown) in [
            ("https://*.Example.com:8443", "https://*.example.com:8443"),
            ("https://[::1]", "https://[::1]"),
            ("2001:DB8::1", "https://[2001:db8::1]"),
            ("[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
            ("api.example.com", "https://api.example.com"),
        ] {
            let read: OriginPattern = text.parse().unwrap();
            assert_eq!(read.to_string(), shown);
        }
        for text in [
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
            assert!(text.parse::<OriginPattern>().is_err(), "{text}");
        }
    }

    #[test]
    fn overlap_is_symmetric_and_label_wise() {
        let cases = [
            ("*.a.test", "*.b.a.test", true),
            ("*.a.test", "x.a.test", true),
            ("*.a.test", "a.test", false),
            ("*.a.test", "*.ba.test", false),
            ("a.test", "a.test", true),
        ];
        for (left, right, expected) in cases {
            assert_eq!(
                pattern(left).overlaps(&pattern(right)),
                expected,
                "{left} {right}"
            );
            assert_eq!(
                pattern(right).overlaps(&pattern(left)),
                expected,
                "{right} {left}"
            );
        }
    }
}
