//! Hosts: a name or an address in canonical form.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

/// A canonical host: a lower-case name of A-labels without a trailing dot, or an address.
///
/// Two hosts are equal exactly if a resolver would treat them alike. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host {
    text: Arc<str>,
    ip: Option<IpAddr>,
}

gateway_names::faults! {
    /// Why bytes are not a host.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    pub enum HostMalformed {
        /// An empty host or label, a second trailing dot, brackets on a name, or a label or name
        /// that is too long.
        Syntax = HostSyntax "the host is not a name or an address",
        /// A byte that no host contains: userinfo, percent, space, control, separators.
        Charset = HostCharset "the host holds a character that no host may hold",
        /// A label that UTS 46 refuses, or that does not survive conversion to its A-label and
        /// back.
        Idna = HostIdna "the host is not a valid internationalised name",
        /// An IPv6 zone identifier, which has a meaning on one machine only (RFC 6874).
        Zone = HostZone "the host has an IPv6 zone identifier",
        /// The last label is a number, but the name is not an IPv4 address in any spelling.
        Ipv4 = HostSyntax "the host looks like an IPv4 address but is not one",
    }
}

impl Host {
    /// Parses a host that the client wrote, in any spelling, into canonical form.
    ///
    /// Accepts a name, an IPv4 address in any form that `inet_aton` accepts, and an IPv6 address
    /// with or without brackets. An IPv4-mapped IPv6 address becomes the IPv4 address. One trailing
    /// dot is dropped.
    ///
    /// # Errors
    /// [`HostMalformed`] by cause.
    pub fn parse(bytes: &[u8]) -> Result<Host, HostMalformed> {
        if bytes.is_empty() || bytes.len() > LONGEST_SPELLING {
            return Err(HostMalformed::Syntax);
        }
        if let Some(inner) = bytes.strip_prefix(b"[") {
            return v6(inner.strip_suffix(b"]").ok_or(HostMalformed::Syntax)?);
        }
        if memchr::memchr2(b'[', b']', bytes).is_some() {
            return Err(HostMalformed::Syntax);
        }
        if bytes.iter().filter(|b| **b == b':').count() >= 2 {
            return v6(bytes);
        }
        name(bytes)
    }

    /// The canonical host of an address.
    pub fn from_ip(ip: IpAddr) -> Host {
        let ip = ip.to_canonical();
        Host {
            text: ip.to_string().into(),
            ip: Some(ip),
        }
    }

    /// The canonical text. An IPv6 address has no brackets.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host as written in a URI: an IPv6 address in brackets (RFC 3986 §3.2.2).
    pub fn to_uri(&self) -> String {
        match self.ip {
            Some(IpAddr::V6(_)) => format!("[{}]", self.text),
            _ => self.text.to_string(),
        }
    }

    /// The address, if the host is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// Whether it is this machine: `localhost`, or a loopback address.
    pub fn is_loopback(&self) -> bool {
        self.as_str() == "localhost" || self.ip().is_some_and(|ip| ip.is_loopback())
    }

    /// The host, then each of its parent domains: `api.github.com`, `github.com`, `com`. An address
    /// yields only itself.
    pub fn domains(&self) -> impl Iterator<Item = &str> + Clone {
        let is_name = self.ip.is_none();
        std::iter::successors(Some(self.as_str()), move |domain| {
            let dot = domain.bytes().position(|byte| byte == b'.')?;
            is_name.then(|| &domain[dot + 1..])
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({})", self.text)
    }
}

/// Hashes only the text: hosts with the same text are equal.
impl Hash for Host {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl FromStr for Host {
    type Err = HostMalformed;

    fn from_str(text: &str) -> Result<Host, HostMalformed> {
        Host::parse(text.as_bytes())
    }
}

/// Parses RFC 4291 text without brackets. Refuses RFC 6874 zones, which select an interface of this
/// machine.
fn v6(inner: &[u8]) -> Result<Host, HostMalformed> {
    let text = std::str::from_utf8(inner).map_err(|_| HostMalformed::Charset)?;
    if text.contains('%') {
        return Err(if text.contains(':') {
            HostMalformed::Zone
        } else {
            HostMalformed::Charset
        });
    }
    let ip = Ipv6Addr::from_str(text).map_err(|_| HostMalformed::Syntax)?;
    Ok(Host::from_ip(IpAddr::V6(ip)))
}

fn name(bytes: &[u8]) -> Result<Host, HostMalformed> {
    if !bytes.iter().all(|&b| b >= 0x80 || is_name_byte(b)) {
        return Err(HostMalformed::Charset);
    }
    let mapped = a_labels(bytes)?;
    // UTS 46 maps some characters to ASCII (full width, `℀`), so the result is checked as if it had
    // been written that way.
    if !mapped.bytes().all(is_name_byte) {
        return Err(HostMalformed::Idna);
    }
    let text = mapped.strip_suffix('.').unwrap_or(&mapped);
    if text.len() > LONGEST_NAME || !text.split('.').all(is_label) {
        return Err(HostMalformed::Syntax);
    }
    match ipv4(text)? {
        Some(ip) => Ok(Host::from_ip(IpAddr::V4(ip))),
        None => Ok(Host {
            text: text.into(),
            ip: None,
        }),
    }
}

/// Converts to lower case and A-labels. Only names that are, or claim to be, internationalised take
/// the slow path.
fn a_labels(bytes: &[u8]) -> Result<Cow<'_, str>, HostMalformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| HostMalformed::Idna)?;
    let international = !bytes.is_ascii()
        || bytes
            .split(|b| *b == b'.')
            .any(|l| l.len() >= 4 && l[..4].eq_ignore_ascii_case(b"xn--"));
    if international {
        return Uts46::new()
            .to_ascii(bytes, AsciiDenyList::URL, Hyphens::Allow, DnsLength::Ignore)
            .map_err(|_| HostMalformed::Idna);
    }
    if bytes.iter().any(u8::is_ascii_uppercase) {
        return Ok(Cow::Owned(text.to_ascii_lowercase()));
    }
    Ok(Cow::Borrowed(text))
}

/// RFC 1123 letters, digits and hyphens, and the underscore, which service names and some buckets
/// use.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

fn is_label(label: &str) -> bool {
    (1..=LONGEST_LABEL).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
}

/// The address that `inet_aton` reads from a name. Refuses a name that is not an address but whose
/// last label is a number, because resolvers disagree about it.
fn ipv4(text: &str) -> Result<Option<Ipv4Addr>, HostMalformed> {
    let last = text.rsplit('.').next().unwrap_or(text);
    let numeric = last.bytes().all(|b| b.is_ascii_digit())
        || last.starts_with("0x") && number(last).is_some()
        || last == "0x";
    if !numeric {
        return Ok(None);
    }
    let mut parts = [0_u32; 4];
    let mut count = 0;
    for part in text.split('.') {
        *parts.get_mut(count).ok_or(HostMalformed::Ipv4)? =
            number(part).ok_or(HostMalformed::Ipv4)?;
        count += 1;
    }
    // The last part fills the remaining bytes: `127.1` is 127.0.0.1.
    let tail = parts[count - 1];
    let head = &parts[..count - 1];
    let room = 32 - 8 * head.len() as u32;
    if head.iter().any(|part| *part > 255) || (room < 32 && tail >> room != 0) {
        return Err(HostMalformed::Ipv4);
    }
    let high = head.iter().enumerate();
    let high = high.fold(0, |acc, (at, part)| acc | part << (24 - 8 * at));
    Ok(Some(Ipv4Addr::from(high | tail)))
}

/// Parses a decimal, octal (`0…`) or hexadecimal (`0x…`) number of 32 bits.
fn number(part: &str) -> Option<u32> {
    let (digits, radix) = match part.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None if part.len() > 1 && part.starts_with('0') => (&part[1..], 8),
        None => (part, 10),
    };
    // `from_str_radix` accepts a sign, but a host must not have one. The only sign in a name is
    // `-`.
    if digits.starts_with('-') {
        None
    } else {
        u32::from_str_radix(digits, radix).ok()
    }
}

/// More than any real client needs to spell a name of 253 A-label bytes.
const LONGEST_SPELLING: usize = 1024;
/// RFC 1035 §2.3.4, as text without the trailing dot.
const LONGEST_NAME: usize = 253;
/// RFC 1035 §2.3.4.
const LONGEST_LABEL: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> String {
        Host::parse(text.as_bytes())
            .map(|h| h.to_string())
            .unwrap_or_else(|e| e.reason().as_str().to_owned())
    }

    #[test]
    fn a_name_has_one_spelling() {
        for spelling in [
            "good.example",
            "GOOD.Example",
            "good.example.",
            "ｇｏｏｄ.example",
            "good。example",
            "go\u{ad}od.example",
        ] {
            assert_eq!(parsed(spelling), "good.example", "{spelling}");
        }
        assert_eq!(parsed("bücher.example"), "xn--bcher-kva.example");
        assert_eq!(parsed("XN--BCHER-KVA.example"), "xn--bcher-kva.example");
        assert_eq!(
            parsed("_dmarc.good_bucket.example"),
            "_dmarc.good_bucket.example"
        );
        assert_eq!(parsed("r3---sn-4g5e.example"), "r3---sn-4g5e.example");
    }

    #[test]
    fn a_broken_name_is_refused_by_cause() {
        for (spelling, reason) in [
            ("", "host_syntax"),
            (".", "host_syntax"),
            ("good..", "host_syntax"),
            (".good", "host_syntax"),
            ("a..b", "host_syntax"),
            ("-good.example", "host_syntax"),
            ("good-.example", "host_syntax"),
            ("xn--good-.example", "host_idna"),
            ("xn--.example", "host_idna"),
            ("a\u{200d}b.example", "host_idna"),
            ("℀.example", "host_idna"),
            ("[good]", "host_syntax"),
            ("[[::1]]", "host_syntax"),
            ("good]", "host_syntax"),
            ("[::1", "host_syntax"),
            ("[127.0.0.1]", "host_syntax"),
            ("[fe80::1%25eth0]", "host_zone"),
            ("[::1%25.good.example]", "host_zone"),
            ("fe80::1%eth0", "host_zone"),
        ] {
            assert_eq!(parsed(spelling), reason, "{spelling}");
        }
        for byte in (0..0x80_u8).filter(|b| !is_name_byte(*b) && !matches!(b, b'[' | b']')) {
            assert_eq!(
                Host::parse(&[b'a', byte, b'b']),
                Err(HostMalformed::Charset),
                "{byte:#x}"
            );
        }
        assert_eq!(Host::parse(b"good\xff.example"), Err(HostMalformed::Idna));
    }

    #[test]
    fn a_label_or_name_that_is_too_long_is_refused() {
        let label = "a".repeat(63);
        assert_eq!(parsed(&label), label);
        assert_eq!(parsed(&"a".repeat(64)), "host_syntax");
        let name = [&label[..], &label, &label, &"a".repeat(61)].join(".");
        assert_eq!(parsed(&name), name);
        assert_eq!(parsed(&format!("{name}a")), "host_syntax");
        assert_eq!(parsed(&"a.".repeat(2000)), "host_syntax");
    }

    #[test]
    fn every_spelling_of_an_ipv4_address_is_that_address() {
        for spelling in [
            "127.0.0.1",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "0X7F000001",
            "127.0.1",
            "127.0.0.1.",
            "１２７.0.0.1",
        ] {
            assert_eq!(parsed(spelling), "127.0.0.1", "{spelling}");
            assert!(Host::parse(spelling.as_bytes()).unwrap().ip().is_some());
        }
        for spelling in [
            "256.1",
            "1.2.3.4.5",
            "08.1",
            "0x",
            "1.0x",
            "good.1",
            "1..2",
            "4294967296",
            "1.2.3.256",
            "1.2.65536",
            "0x1g.1",
        ] {
            assert_eq!(parsed(spelling), "host_syntax", "{spelling}");
        }
        assert_eq!(parsed("1.2.3.example"), "1.2.3.example");
        assert_eq!(parsed("good.0xg"), "good.0xg");
    }

    #[test]
    fn every_spelling_of_an_ipv6_address_is_that_address() {
        assert_eq!(parsed("[0:0:0:0:0:0:0:1]"), "::1");
        assert_eq!(parsed("::1"), "::1");
        assert_eq!(parsed("[2001:DB8::A]"), "2001:db8::a");
        assert_eq!(parsed("[::ffff:127.0.0.1]"), "127.0.0.1");
        assert_eq!(parsed("[::ffff:7f00:1]"), "127.0.0.1");
        assert!(matches!(
            Host::parse(b"[::127.0.0.1]").unwrap().ip(),
            Some(IpAddr::V6(_))
        ));
    }

    #[test]
    fn domains_run_from_the_host_to_its_top() {
        let host = Host::parse(b"api.github.com").unwrap();
        assert_eq!(
            host.domains().collect::<Vec<_>>(),
            ["api.github.com", "github.com", "com"]
        );
        assert_eq!(
            Host::parse(b"127.1").unwrap().domains().collect::<Vec<_>>(),
            ["127.0.0.1"]
        );
    }

    proptest! {
        #[test]
        fn a_canonical_host_parses_to_itself(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(host) = Host::parse(&bytes) {
                prop_assert_eq!(Host::parse(host.as_str().as_bytes()), Ok(host));
            }
        }

        #[test]
        fn a_canonical_host_holds_only_host_bytes(text in "[a-zA-Z0-9.\u{ff0e}\u{ff41}üß。xn-]{1,30}") {
            if let Ok(host) = Host::parse(text.as_bytes()) {
                prop_assert!(host.as_str().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._".contains(&b)));
                prop_assert!(!host.as_str().ends_with('.'));
                prop_assert_eq!(Host::parse(host.as_str().as_bytes()), Ok(host));
            }
        }

        #[test]
        fn an_address_parses_to_itself(octets: [u8; 16]) {
            let host = Host::from_ip(IpAddr::V6(octets.into()));
            prop_assert_eq!(Host::parse(host.as_str().as_bytes()), Ok(host));
        }
    }
}
