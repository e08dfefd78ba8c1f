//! Authorities: a host and a port, both always present.

use std::fmt;
use std::net::IpAddr;

use super::host::{Host, HostMalformed};

/// A canonical host and an explicit port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Authority {
    /// The host.
    pub host: Host,
    /// The port, 1 to 65535.
    pub port: u16,
}

gateway_names::faults! {
    /// Why bytes are not an authority.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    pub enum AuthorityMalformed {
        /// The host part is not a host.
        Host(#[from] HostMalformed) = inner transparent,
        /// The port is empty, zero, above 65535, or not written as plain digits without a leading
        /// zero.
        Port = Port "the port is not a number from 1 to 65535 in plain digits",
        /// There is no port where one is required.
        PortMissing = Port "the authority has no port",
    }
}

impl Authority {
    /// Parses `host`, `host:port`, `[v6]` or `[v6]:port` as the client wrote it.
    ///
    /// Refuses userinfo (RFC 9110 §4.2.4), and a port that is not in plain digits. An IPv6 address
    /// must have brackets.
    ///
    /// # Errors
    /// [`AuthorityMalformed`] by cause. [`AuthorityMalformed::PortMissing`] only if `default_port`
    /// is `None`.
    pub fn parse(bytes: &[u8], default_port: Option<u16>) -> Result<Authority, AuthorityMalformed> {
        if bytes.contains(&b'@') {
            return Err(HostMalformed::Charset.into());
        }
        let (host, port) = split(bytes)?;
        let port = match port {
            Some(digits) => parse_port(digits)?,
            None => default_port.ok_or(AuthorityMalformed::PortMissing)?,
        };
        Ok(Authority {
            host: Host::parse(host)?,
            port,
        })
    }

    /// Returns the host, with the port unless that is 443: as `gateway allow` accepts it. A host
    /// alone has no brackets, which a shell would expand.
    pub fn shown(&self) -> String {
        match self.port {
            443 => self.host.as_str().to_owned(),
            _ => self.to_string(),
        }
    }
}

/// Writes `host:port`, with brackets around an IPv6 address.
impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.ip() {
            Some(IpAddr::V6(_)) => write!(f, "[{}]:{}", self.host, self.port),
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

fn split(bytes: &[u8]) -> Result<(&[u8], Option<&[u8]>), HostMalformed> {
    if bytes.first() == Some(&b'[') {
        let close = memchr::memchr(b']', bytes).ok_or(HostMalformed::Syntax)?;
        let (host, rest) = bytes.split_at(close + 1);
        return match rest {
            [] => Ok((host, None)),
            [b':', port @ ..] => Ok((host, Some(port))),
            _ => Err(HostMalformed::Syntax),
        };
    }
    match memchr::memchr(b':', bytes) {
        None => Ok((bytes, None)),
        // A second colon means an IPv6 address without brackets, whose port cannot be distinguished
        // from its last group.
        Some(colon) if memchr::memchr(b':', &bytes[colon + 1..]).is_some() => {
            Err(HostMalformed::Syntax)
        }
        Some(colon) => Ok((&bytes[..colon], Some(&bytes[colon + 1..]))),
    }
}

/// Parses `[1-9][0-9]{0,4}`, up to 65535. Parsers disagree about other spellings.
fn parse_port(digits: &[u8]) -> Result<u16, AuthorityMalformed> {
    if !matches!(digits, [b'1'..=b'9', ..])
        || digits.len() > 5
        || !digits.iter().all(u8::is_ascii_digit)
    {
        return Err(AuthorityMalformed::Port);
    }
    let port = digits
        .iter()
        .fold(0_u32, |port, digit| port * 10 + u32::from(digit - b'0'));
    u16::try_from(port).map_err(|_| AuthorityMalformed::Port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> String {
        Authority::parse(text.as_bytes(), Some(443))
            .map(|a| a.to_string())
            .unwrap_or_else(|e| e.reason().as_str().to_owned())
    }

    #[test]
    fn a_port_is_plain_digits_or_absent() {
        assert_eq!(parsed("good.example"), "good.example:443");
        assert_eq!(parsed("good.example.:8443"), "good.example:8443");
        assert_eq!(parsed("good.example:65535"), "good.example:65535");
        for port in [
            "", "0", "0443", "+443", "-1", "99999", "65536", "443 ", " 443", "4a", "0x1bb", "００",
        ] {
            assert_eq!(parsed(&format!("good.example:{port}")), "port", "{port}");
            assert_eq!(parsed(&format!("[::1]:{port}")), "port", "{port}");
        }
        assert_eq!(
            Authority::parse(b"good", None),
            Err(AuthorityMalformed::PortMissing)
        );
    }

    #[test]
    fn an_ipv6_address_has_brackets() {
        assert_eq!(parsed("[::1]"), "[::1]:443");
        assert_eq!(parsed("[::1]:80"), "[::1]:80");
        for spelling in [
            "::1",
            "::1:443",
            "[::1]x:80",
            "[::1]]:80",
            "[good]:80",
            "a:b:80",
            "[::1",
        ] {
            assert_eq!(parsed(spelling), "host_syntax", "{spelling}");
        }
    }

    #[test]
    fn userinfo_is_no_host() {
        for spelling in [
            "good@evil",
            "a@b@h",
            "user:pw@evil:443",
            "@evil",
            "good:443@evil",
        ] {
            assert_eq!(parsed(spelling), "host_charset", "{spelling}");
        }
    }

    proptest! {
        #[test]
        fn a_shown_authority_parses_to_itself(bytes in "[a-zA-Z0-9.:\\[\\]_-]{1,24}", port: Option<u16>) {
            if let Ok(authority) = Authority::parse(bytes.as_bytes(), port.filter(|p| *p != 0)) {
                prop_assert_eq!(Authority::parse(authority.to_string().as_bytes(), None), Ok(authority));
            }
        }
    }
}
