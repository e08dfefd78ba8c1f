//! Networks that the operator exempts from the address floor, and the ones that nobody may exempt.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::mistake::Doubt;

/// Names a range of addresses: an address and the number of its leading bits that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The network of exactly one address.
    #[must_use]
    pub fn single(address: IpAddr) -> Self {
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        Self { address, prefix }
    }

    /// The first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The number of leading bits that count.
    #[must_use]
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether an address lies within; an IPv4 address mapped into IPv6 counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.prefix))
                    .unwrap_or(0);
                network.to_bits() == address.to_bits() & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.prefix))
                    .unwrap_or(0);
                network.to_bits() == address.to_bits() & mask
            }
            _ => false,
        }
    }

    /// Reads `address/prefix`, or one address.
    ///
    /// # Errors
    /// A [`Doubt`] where it is none, has bits set behind its prefix, is wider than any exception
    /// should be, or reaches a cloud's metadata service.
    pub fn exception(text: &str) -> Result<Self, Doubt> {
        let network = Self::parse(text)?;
        let narrowest_wide = if network.address.is_ipv4() { 8 } else { 32 };
        if network.prefix < narrowest_wide {
            return Err(Doubt::new(
                "an exception that wide lifts the floor that keeps the workload from the operator's own network",
                "name the network that the origin lies in, such as `10.1.0.0/16`",
            ));
        }
        if let Some(metadata) = METADATA.iter().find(|address| network.contains(**address)) {
            return Err(Doubt::new(
                format!(
                    "it reaches {metadata}, a cloud's metadata service, which hands out the machine's own credentials"
                ),
                "name a narrower network that leaves it out",
            ));
        }
        reachable(network.address)?;
        Ok(network)
    }

    fn parse(text: &str) -> Result<Self, Doubt> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| {
            Doubt::new(
                "it is no address and prefix",
                "write for example `10.1.0.0/16` or `fd12:3456::/48`",
            )
        })?;
        if address.to_canonical() != address {
            return Err(Doubt::new(
                "an IPv4 network is written as IPv4",
                "write it without `::ffff:`",
            ));
        }
        let whole = Self::single(address);
        let Some(prefix) = prefix else {
            return Ok(whole);
        };
        let digits = prefix.len() <= 3 && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = prefix
            .parse::<u8>()
            .ok()
            .filter(|bits| digits && *bits <= whole.prefix)
            .ok_or_else(|| {
                Doubt::new(
                    "the prefix is no number of bits of that address",
                    "write 0 to 32, or 0 to 128 for IPv6",
                )
            })?;
        let network = Self { address, prefix };
        if !network.contains(address) {
            return Err(Doubt::new(
                "bits are set behind the prefix",
                "write the network's first address, or one address without a prefix",
            ));
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Refuses addresses that no origin has: unspecified, multicast, broadcast, metadata.
///
/// # Errors
/// A [`Doubt`] that names the kind of address.
pub fn reachable(address: IpAddr) -> Result<(), Doubt> {
    let address = address.to_canonical();
    let kind = if address.is_unspecified() {
        "the unspecified address"
    } else if address.is_multicast() {
        "a multicast address"
    } else if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        "the broadcast address"
    } else if METADATA.contains(&address) {
        "a cloud's metadata service, which hands out the machine's own credentials"
    } else {
        return Ok(());
    };
    Err(Doubt::new(
        format!("{address} is {kind}"),
        "write the address of the origin",
    ))
}

/// The metadata services of the clouds: AWS, GCP, Azure and others, ECS, EKS, Alibaba, Azure's wire
/// server, Oracle.
const METADATA: &[IpAddr] = &[
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
];

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
            assert!(Network::exception(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn everything_wide_or_metadata_is_refused() {
        for text in [
            "0.0.0.0/0",
            "::/0",
            "0.0.0.0/7",
            "fc00::/7",
            "169.254.169.254",
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
            assert!(Network::exception(text).is_err(), "{text}");
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
            assert!(Network::exception(text).is_err(), "{text}");
        }
    }

    #[test]
    fn membership_counts_the_leading_bits() {
        let network = Network::exception("10.1.0.0/16").unwrap();
        assert!(network.contains("10.1.255.255".parse().unwrap()));
        assert!(network.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!network.contains("10.2.0.0".parse().unwrap()));
        assert!(!network.contains("::1".parse().unwrap()));
    }
}
