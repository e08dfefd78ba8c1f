//! The networks and interfaces of this network namespace, by `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::thread;
use std::time::{Duration, Instant};

/// A network that an interface other than loopback is in.
pub(super) struct Nearby {
    is_ipv6: bool,
    /// The interface, with IPv6.
    device: Option<String>,
    /// Another host's address in it. `None` if there is no other, or it is unknown.
    pub(super) neighbour: Option<SocketAddr>,
}

impl Nearby {
    /// Returns the networks once no IPv6 address is tentative, since such a one sends nothing.
    pub(super) fn settled() -> Vec<Self> {
        let until = Instant::now() + SETTLES_WITHIN;
        let is_tentative = |row: &str| {
            let mut flags = row.split_ascii_whitespace().skip(4);
            let flags = flags
                .next()
                .and_then(|flags| u32::from_str_radix(flags, 16).ok());
            flags.is_some_and(|flags| flags & (TENTATIVE | FAILED) == TENTATIVE)
        };
        let table = || fs::read_to_string("/proc/self/net/if_inet6").unwrap_or_default();
        while table().lines().any(is_tentative) && Instant::now() < until {
            thread::sleep(Duration::from_millis(50));
        }
        Self::all()
    }

    /// Returns every network; one without a neighbour where `/proc` cannot be read.
    pub(super) fn all() -> Vec<Self> {
        let read = |name| fs::read_to_string(format!("/proc/self/net/{name}"));
        let untold = |is_ipv6| Self {
            is_ipv6,
            device: None,
            neighbour: None,
        };
        let mut all = read("fib_trie").map_or_else(|_| vec![untold(false)], |text| ipv4(&text));
        match read("if_inet6") {
            Ok(text) => all.extend(text.lines().filter_map(ipv6)),
            Err(_) => all.push(untold(true)),
        }
        all
    }

    /// Whether packets of this address family leave by this network, or by this interface.
    pub(super) fn leads_to(&self, to: SocketAddr, device: Option<&str>) -> bool {
        let is_by = device.is_none_or(|device| self.device.as_deref() == Some(device));
        self.is_ipv6 == to.is_ipv6() && is_by
    }

    /// Returns a link-local neighbour on an interface, whose link has any number of addresses.
    pub(super) fn on_link(&self, device: &str) -> Option<SocketAddr> {
        let is_its = self.device.as_deref() == Some(device);
        self.neighbour.filter(|to| is_its && is_scoped(*to))
    }
}

/// Whether an address is link-local, with its scope.
pub(super) fn is_scoped(to: SocketAddr) -> bool {
    matches!(to, SocketAddr::V6(to) if to.scope_id() != 0)
}

/// Returns the networks that routes of any table reach without a router, and lone addresses.
fn ipv4(tables: &str) -> Vec<Nearby> {
    let (mut own, mut networks, mut at) = (BTreeSet::new(), BTreeSet::new(), 0);
    for line in tables.lines() {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["|--", address] => at = address.parse().map_or(0, |ip: Ipv4Addr| ip.into()),
            ["/32", "host", "LOCAL", ..] if at >> 24 != 127 => _ = own.insert(at),
            [length, "link", "UNICAST", ..] => {
                let length = length.trim_start_matches('/').parse().unwrap_or(0);
                _ = networks.insert((at, at | u32::MAX.checked_shr(length).unwrap_or(0)));
            }
            _ => {}
        }
    }
    let neighbours = networks.iter().map(|&(first, last)| {
        let ends = u32::from(last - first > 1);
        let mut hosts = (first + ends..=last - ends).rev();
        hosts.find(|host| !own.contains(host))
    });
    let is_in = |ip: &u32| {
        networks
            .iter()
            .any(|(first, last)| (first..=last).contains(&ip))
    };
    let alone = own.iter().filter(|ip| !is_in(ip)).map(|_| None);
    let all = neighbours.chain(alone).map(|neighbour| Nearby {
        is_ipv6: false,
        device: None,
        neighbour: neighbour.map(|ip| (IpAddr::V4(ip.into()), 0).into()),
    });
    all.collect()
}

/// Returns the network of an interface's address.
fn ipv6(row: &str) -> Option<Nearby> {
    let mut words = row.split_ascii_whitespace();
    let own = u128::from_str_radix(words.next()?, 16).ok()?;
    let mut number = || u32::from_str_radix(words.next()?, 16).ok();
    let (index, length) = (number()?, number()?);
    let device = words.nth(2).filter(|device| *device != "lo")?.to_owned();
    let others = u128::MAX.checked_shr(length).unwrap_or(0) & SOMEBODY;
    let ip = Ipv6Addr::from(own ^ others);
    let scope = if ip.is_unicast_link_local() { index } else { 0 };
    Some(Nearby {
        is_ipv6: true,
        device: Some(device),
        neighbour: (others != 0).then(|| SocketAddrV6::new(ip, 0, 0, scope).into()),
    })
}

/// Returns the interfaces other than loopback, with the number of packets each has sent.
pub(super) fn devices() -> Vec<(String, u64)> {
    let table = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let rows = table.lines().filter_map(|line| {
        let (name, counts) = line.split_once(':')?;
        let sent = counts.split_ascii_whitespace().nth(SENT_PACKETS)?;
        Some((name.trim().to_owned(), sent.parse().ok()?))
    });
    rows.filter(|(name, _)| name != "lo").collect()
}

/// Whether the kernel is resolving the IPv4 neighbour that these packets go to.
pub(super) fn waits(to: SocketAddr, device: &str) -> bool {
    let table = |name| fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default();
    let routes = table("route");
    let is_router = |ip: Ipv4Addr| {
        let number = u32::from_ne_bytes(ip.octets());
        routes.contains(&format!("\t{number:08X}\t"))
    };
    let is_next = |ip: &str| {
        let ip = ip.parse();
        ip.is_ok_and(|ip| to.ip() == ip || is_router(ip))
    };
    table("arp").lines().any(|row| {
        let words: Vec<_> = row.split_ascii_whitespace().collect();
        matches!(words[..], [ip, _, "0x0", _, _, by] if by == device && is_next(ip))
    })
}

/// Bits that turn an address into another's. As nanoseconds they are more than a second.
const SOMEBODY: u128 = 0x9e37_79b9;
const SENT_PACKETS: usize = 9;
/// The flags of an address that is still checked for duplicates, or is one (`IFA_F_TENTATIVE`,
/// `IFA_F_DADFAILED`).
const TENTATIVE: u32 = 0x40;
const FAILED: u32 = 0x08;
/// A host checks for a second, after a delay of at most as much.
const SETTLES_WITHIN: Duration = Duration::from_secs(3);
