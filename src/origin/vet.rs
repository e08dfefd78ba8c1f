//! Which addresses may be dialled: the floor that no policy lifts (R20).

use crate::names::ReasonCode;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Why an address is not dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prohibited {
    /// An address of a cloud's metadata service; no exception lifts it.
    Metadata,
    /// The gateway's own machine.
    Own,
    /// Loopback, private, link-local, shared, reserved, multicast, or an IPv6 form that embeds
    /// IPv4.
    Special,
}

impl Prohibited {
    /// The reason code in refusals and in the audit log.
    #[must_use]
    pub fn reason(self) -> ReasonCode {
        match self {
            Self::Metadata => ReasonCode::Metadata,
            Self::Own => ReasonCode::OwnAddress,
            Self::Special => ReasonCode::SsrfResolvedIp,
        }
    }
}

/// A range of addresses in CIDR notation: what the operator excepts from the floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    base: IpAddr,
    bits: u8,
}

impl AddressRange {
    /// A range; `None` where `bits` is more than the address has.
    #[must_use]
    pub fn new(base: IpAddr, bits: u8) -> Option<Self> {
        let most = if base.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some(Self { base, bits })
    }

    /// Exactly one address.
    #[must_use]
    pub fn single(address: IpAddr) -> Self {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        Self {
            base: address,
            bits,
        }
    }

    /// Whether the address lies in the range.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => in4(address, base, self.bits),
            (IpAddr::V6(base), IpAddr::V6(address)) => in6(address, base, self.bits),
            _ => false,
        }
    }
}

fn in4(address: Ipv4Addr, base: Ipv4Addr, bits: u8) -> bool {
    let shift = 32 - u32::from(bits);
    shift == 32 || (u32::from(address) ^ u32::from(base)) >> shift == 0
}

fn in6(address: Ipv6Addr, base: Ipv6Addr, bits: u8) -> bool {
    let shift = 128 - u32::from(bits);
    shift == 128 || (u128::from(address) ^ u128::from(base)) >> shift == 0
}

/// Judges an address before it is dialled.
///
/// # Errors
/// [`Prohibited`] where the address is special and no exception of the operator names it. Metadata
/// services stay prohibited whatever the exceptions say.
pub fn vet(address: IpAddr, port: u16, exceptions: &[AddressRange]) -> Result<(), Prohibited> {
    let address = unmapped(address);
    if exceptions.iter().any(|range| range.contains(address)) {
        return if is_metadata(address) {
            Err(Prohibited::Metadata)
        } else {
            Ok(())
        };
    }
    if is_metadata(address) {
        return Err(Prohibited::Metadata);
    }
    let special = match address {
        IpAddr::V4(address) => is_special4(address),
        IpAddr::V6(address) => is_special6(address),
    };
    if special {
        return Err(Prohibited::Special);
    }
    if is_own(address, port) {
        return Err(Prohibited::Own);
    }
    Ok(())
}

fn unmapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// AWS, GCP and Azure (169.254.169.254 and kin), ECS and EKS, Alibaba, Oracle, Scaleway, Tencent,
/// OpenStack; and Azure's host agent, which has a public address and hands out the machine's
/// certificates.
fn is_metadata(address: IpAddr) -> bool {
    const V4: [Ipv4Addr; 9] = [
        Ipv4Addr::new(169, 254, 169, 254),
        Ipv4Addr::new(169, 254, 170, 2),
        Ipv4Addr::new(169, 254, 170, 23),
        Ipv4Addr::new(169, 254, 169, 253),
        Ipv4Addr::new(100, 100, 100, 200),
        Ipv4Addr::new(192, 0, 0, 192),
        Ipv4Addr::new(169, 254, 42, 42),
        Ipv4Addr::new(169, 254, 0, 23),
        Ipv4Addr::new(168, 63, 129, 16),
    ];
    const V6: [Ipv6Addr; 5] = [
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
        Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
        Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
    ];
    match address {
        IpAddr::V4(address) => V4.contains(&address),
        IpAddr::V6(address) => V6.contains(&address),
    }
}

/// IANA's IPv4 special-purpose registry (RFC 6890), and multicast.
fn is_special4(address: Ipv4Addr) -> bool {
    const RANGES: [([u8; 4], u8); 16] = [
        ([0, 0, 0, 0], 8),
        ([10, 0, 0, 0], 8),
        ([100, 64, 0, 0], 10),
        ([127, 0, 0, 0], 8),
        ([169, 254, 0, 0], 16),
        ([172, 16, 0, 0], 12),
        ([192, 0, 0, 0], 24),
        ([192, 0, 2, 0], 24),
        ([192, 31, 196, 0], 24),
        ([192, 88, 99, 0], 24),
        ([192, 168, 0, 0], 16),
        ([198, 18, 0, 0], 15),
        ([198, 51, 100, 0], 24),
        ([203, 0, 113, 0], 24),
        ([224, 0, 0, 0], 4),
        ([240, 0, 0, 0], 4),
    ];
    RANGES
        .iter()
        .any(|(base, bits)| in4(address, Ipv4Addr::from(*base), *bits))
}

/// Only global unicast (2000::/3) is dialled, and of it nothing that embeds an IPv4 address or is
/// reserved.
fn is_special6(address: Ipv6Addr) -> bool {
    const RANGES: [([u16; 8], u8); 7] = [
        ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), // IETF protocol assignments, Teredo and ORCHID among them
        ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), // documentation
        ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), // 6to4
        ([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48), // AS112
        ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), // documentation
        ([0x3ffe, 0, 0, 0, 0, 0, 0, 0], 16), // 6bone, returned
        ([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), // SRv6 identifiers
    ];
    let isatap = matches!(address.segments(), [.., 0 | 0x200, 0x5efe, _, _]);
    !in6(address, Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3)
        || isatap
        || RANGES
            .iter()
            .any(|(base, bits)| in6(address, Ipv6Addr::from(*base), *bits))
}

/// Whether this machine itself answers at the address: the kernel would use it as its own source.
/// Sends nothing.
fn is_own(address: IpAddr, port: u16) -> bool {
    let any: IpAddr = if address.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let Ok(socket) = UdpSocket::bind((any, 0)) else {
        return false;
    };
    socket.connect((address, port.max(1))).is_ok()
        && socket
            .local_addr()
            .is_ok_and(|local| unmapped(local.ip()) == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str) -> Result<(), Prohibited> {
        vet(text.parse().unwrap(), 443, &[])
    }

    #[test]
    fn public_addresses_pass() {
        for text in [
            "93.184.216.34",
            "8.8.8.8",
            "2606:2800:220:1:248:1893:25c8:1946",
            "2a00:1450::1",
        ] {
            assert_eq!(verdict(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn special_addresses_are_prohibited() {
        for text in [
            "127.0.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "198.18.0.1",
            "198.19.255.255",
            "192.0.0.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::a00:1",
            "2002:7f00:1::",
            "2001:0:1::1",
            "2001:db8::1",
            "100::1",
            "2a00::5efe:10.0.0.1",
            "2a00::200:5efe:10.0.0.1",
            "5f00::1",
        ] {
            assert!(verdict(text).is_err(), "{text}");
        }
    }

    #[test]
    fn metadata_is_prohibited_even_by_a_wide_exception() {
        let wide = AddressRange::new("169.254.0.0".parse().unwrap(), 16).unwrap();
        for text in ["169.254.169.254", "169.254.170.2"] {
            assert_eq!(
                vet(text.parse().unwrap(), 80, &[wide]),
                Err(Prohibited::Metadata)
            );
        }
        assert_eq!(verdict("fd00:ec2::254"), Err(Prohibited::Metadata));
        assert_eq!(verdict("100.100.100.200"), Err(Prohibited::Metadata));
        assert_eq!(verdict("168.63.129.16"), Err(Prohibited::Metadata));
        assert_eq!(verdict("fd20:ce::254"), Err(Prohibited::Metadata));
        assert_eq!(verdict("::ffff:169.254.169.254"), Err(Prohibited::Metadata));
    }

    #[test]
    fn an_exception_lifts_the_floor_for_its_range_only() {
        let range = AddressRange::new("10.1.0.0".parse().unwrap(), 16).unwrap();
        assert_eq!(vet("10.1.2.3".parse().unwrap(), 443, &[range]), Ok(()));
        assert_eq!(
            vet("::ffff:10.1.2.3".parse().unwrap(), 443, &[range]),
            Ok(())
        );
        assert!(vet("10.2.2.3".parse().unwrap(), 443, &[range]).is_err());
    }
}
