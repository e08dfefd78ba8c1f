//! Vets the addresses that may be dialled. No policy changes this (R20).

use gateway_message::Authority;
use gateway_names::ReasonCode;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use rustix::io::Errno;

/// Why an address must not be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prohibited {
    /// An address of a cloud's metadata service. No exception can allow it.
    Metadata,
    /// The gateway's own machine.
    Own,
    /// Loopback, private, link-local, shared, reserved, multicast, or an IPv6 form that embeds
    /// IPv4.
    Special,
}

impl Prohibited {
    /// Returns the reason code for refusals and the audit log.
    pub fn reason(self) -> ReasonCode {
        match self {
            Self::Metadata => ReasonCode::Metadata,
            Self::Own => ReasonCode::OwnAddress,
            Self::Special => ReasonCode::SsrfResolvedIp,
        }
    }
}

/// Checks an address before it is dialled.
///
/// # Errors
/// [`Prohibited`] if the address is special and no exception of the operator covers it. Metadata
/// services stay prohibited whatever the exceptions say.
pub fn vet(address: IpAddr, port: u16, exceptions: &[IpNet]) -> Result<(), Prohibited> {
    let address = address.to_canonical();
    if METADATA.contains(&address) {
        return Err(Prohibited::Metadata);
    }
    if exceptions.iter().any(|range| range.contains(&address)) {
        return Ok(());
    }
    if is_special(address) {
        return Err(Prohibited::Special);
    }
    if is_own(address, port) {
        return Err(Prohibited::Own);
    }
    Ok(())
}

/// Checks a host that another machine will resolve and dial, as far as this machine can.
///
/// # Errors
/// [`Prohibited`] as for [`vet`], and for the known names of metadata services.
pub fn vet_host(to: &Authority, exceptions: &[IpNet]) -> Result<(), Prohibited> {
    if METADATA_NAMES.contains(&to.host.as_str()) {
        return Err(Prohibited::Metadata);
    }
    let address = to.host.ip();
    address.map_or(Ok(()), |address| vet(address, to.port, exceptions))
}

/// Returns the address of a metadata service that is in the network, if there is one.
pub fn metadata_within(network: &IpNet) -> Option<IpAddr> {
    METADATA
        .into_iter()
        .find(|address| network.contains(address))
}

/// Whether the address is multicast, embeds an IPv4 address, or is reserved by IANA's
/// special-purpose registries (RFC 6890). Of IPv6, only global unicast (2000::/3) is dialled.
fn is_special(address: IpAddr) -> bool {
    let beyond = match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => {
            let isatap = matches!(address.segments(), [.., 0 | 0x200, 0x5efe, _, _]);
            isatap || !GLOBAL_UNICAST.contains(&address)
        }
    };
    beyond || SPECIAL.iter().any(|range| range.contains(&address))
}

/// Whether the address is this machine's own: the kernel would use it as the source address. Sends
/// no packet.
fn is_own(address: IpAddr, port: u16) -> bool {
    let any: IpAddr = if address.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = match UdpSocket::bind((any, 0)) {
        Ok(socket) => socket,
        // Without the family, no address of it can be reached. After another error this is unknown,
        // and connecting may succeed where the check failed, as for lack of a descriptor.
        Err(error) => return !lacks_family(&error),
    };
    socket.connect((address, port.max(1))).is_ok()
        && socket
            .local_addr()
            .is_ok_and(|local| local.ip().to_canonical() == address)
}

fn lacks_family(error: &std::io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL)
    )
}

/// The metadata services of the clouds, which hand out a machine's own credentials: AWS, GCP and
/// Azure (169.254.169.254 and kin), ECS and EKS, Alibaba, Oracle, Scaleway, Tencent, OpenStack; and
/// Azure's host agent, which has a public address.
const METADATA: [IpAddr; 14] = [
    v4(169, 254, 169, 254),
    v4(169, 254, 170, 2),
    v4(169, 254, 170, 23),
    v4(169, 254, 169, 253),
    v4(100, 100, 100, 200),
    v4(192, 0, 0, 192),
    v4(169, 254, 42, 42),
    v4(169, 254, 0, 23),
    v4(168, 63, 129, 16),
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]),
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23]),
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]),
    v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42]),
    v6([0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe]),
];

/// The names of metadata services.
const METADATA_NAMES: [&str; 4] = [
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
];

/// The usual address of a metadata service.
pub(super) const OF_METADATA_NAMES: IpAddr = METADATA[0];

const GLOBAL_UNICAST: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

const SPECIAL: [IpNet; 23] = [
    range(v4(0, 0, 0, 0), 8),
    range(v4(10, 0, 0, 0), 8),
    range(v4(100, 64, 0, 0), 10),
    range(v4(127, 0, 0, 0), 8),
    range(v4(169, 254, 0, 0), 16),
    range(v4(172, 16, 0, 0), 12),
    range(v4(192, 0, 0, 0), 24),
    range(v4(192, 0, 2, 0), 24),
    range(v4(192, 31, 196, 0), 24),
    range(v4(192, 88, 99, 0), 24),
    range(v4(192, 168, 0, 0), 16),
    range(v4(198, 18, 0, 0), 15),
    range(v4(198, 51, 100, 0), 24),
    range(v4(203, 0, 113, 0), 24),
    range(v4(224, 0, 0, 0), 4),
    range(v4(240, 0, 0, 0), 4),
    range(v6([0x2001, 0, 0, 0, 0, 0, 0, 0]), 23), // IETF protocols, Teredo and ORCHID among them
    range(v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0]), 32), // documentation
    range(v6([0x2002, 0, 0, 0, 0, 0, 0, 0]), 16), // 6to4
    range(v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0]), 48), // AS112
    range(v6([0x3fff, 0, 0, 0, 0, 0, 0, 0]), 20), // documentation
    range(v6([0x3ffe, 0, 0, 0, 0, 0, 0, 0]), 16), // 6bone, returned
    range(v6([0x5f00, 0, 0, 0, 0, 0, 0, 0]), 16), // SRv6 identifiers
];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(segments: [u16; 8]) -> IpAddr {
    let [a, b, c, d, e, f, g, h] = segments;
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h))
}

const fn range(base: IpAddr, bits: u8) -> IpNet {
    match base {
        IpAddr::V4(base) => IpNet::V4(Ipv4Net::new_assert(base, bits)),
        IpAddr::V6(base) => IpNet::V6(Ipv6Net::new_assert(base, bits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str) -> Result<(), Prohibited> {
        vet(text.parse().unwrap(), 443, &[])
    }

    #[test]
    fn an_address_counts_as_own_if_it_cannot_be_checked() {
        for (errno, lacks) in [
            (Errno::MFILE, false),
            (Errno::NFILE, false),
            (Errno::NOBUFS, false),
            (Errno::AFNOSUPPORT, true),
            (Errno::ADDRNOTAVAIL, true),
        ] {
            assert_eq!(lacks_family(&errno.into()), lacks, "{errno}");
        }
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
        let wide: IpNet = "169.254.0.0/16".parse().unwrap();
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
        let range: IpNet = "10.1.0.0/16".parse().unwrap();
        assert_eq!(vet("10.1.2.3".parse().unwrap(), 443, &[range]), Ok(()));
        assert_eq!(
            vet("::ffff:10.1.2.3".parse().unwrap(), 443, &[range]),
            Ok(())
        );
        assert!(vet("10.2.2.3".parse().unwrap(), 443, &[range]).is_err());
    }
}
