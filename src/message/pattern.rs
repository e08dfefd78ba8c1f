//! Patterns of hosts and origins: one host, or every name below a domain.

use std::fmt;
use std::str::FromStr;

use super::{Authority, Host, Origin, Scheme};

/// Origins: a scheme, one host or all names below a domain, one port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OriginPattern {
    /// The scheme; [`Scheme::Http`] matches loopback addresses only.
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
    /// Every name below the domain, at any depth, by whole labels; not the domain itself.
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

/// Why a text is no origin pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an origin is `https://host`, `https://*.domain` or either with `:port`, without a path")]
pub struct OriginMalformed(());

impl OriginPattern {
    /// Whether an origin matches.
    #[must_use]
    pub fn matches(&self, origin: &Origin) -> bool {
        self.scheme == origin.scheme
            && self.port == origin.authority.port
            && self.hosts.matches(&origin.authority.host)
    }

    /// Whether some origin matches both patterns.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.port == other.port && self.hosts.overlaps(&other.hosts)
    }

    /// Whether the origin's name itself puts it on this machine: `localhost` or a loopback address.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match &self.hosts {
            HostPattern::Exact(host) => {
                host.as_str() == "localhost" || host.ip().is_some_and(|ip| ip.is_loopback())
            }
            HostPattern::Below(_) => false,
        }
    }
}

impl HostPattern {
    /// Whether a host is one of these.
    #[must_use]
    pub fn matches(&self, host: &Host) -> bool {
        match self {
            Self::Exact(exact) => exact == host,
            Self::Below(domain) => host.domains().skip(1).any(|above| above == domain.as_str()),
        }
    }

    /// Whether some host matches both patterns.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(host), pattern) | (pattern, Self::Exact(host)) => pattern.matches(host),
            (Self::Below(one), Self::Below(two)) => {
                one.domains().any(|domain| domain == two.as_str())
                    || two.domains().any(|domain| domain == one.as_str())
            }
        }
    }

    /// The host or the domain.
    #[must_use]
    pub fn host(&self) -> &Host {
        match self {
            Self::Exact(host) | Self::Below(host) => host,
        }
    }
}

/// Parses `https://host`, `https://*.domain`, `http://127.0.0.1:8080`; the default scheme is
/// `https`.
impl FromStr for OriginPattern {
    type Err = OriginMalformed;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = match text.split_once("://") {
            Some(("https", rest)) => (Scheme::Https, rest),
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(_) => return Err(OriginMalformed(())),
            None => (Scheme::Https, text),
        };
        let (below, rest) = rest
            .strip_prefix("*.")
            .map_or((false, rest), |rest| (true, rest));
        let authority = Authority::parse(rest.as_bytes(), Some(scheme.default_port()))
            .map_err(|_| OriginMalformed(()))?;
        if below && authority.host.ip().is_some() {
            return Err(OriginMalformed(()));
        }
        let hosts = if below {
            HostPattern::Below(authority.host)
        } else {
            HostPattern::Exact(authority.host)
        };
        Ok(Self {
            scheme,
            hosts,
            port: authority.port,
        })
    }
}

impl fmt::Display for OriginPattern {
    /// As written: without the port if it is the scheme's default.
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
