//! Synthetic addresses: the addresses that names resolve to inside the sandbox, and the lookup from
//! an address back to its name.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use gateway_message::Host;

/// The address pool of one session; a name keeps its pair of addresses until the session ends.
///
/// IPv4 from 198.18.0.0/15 (RFC 2544: never routed), IPv6 from fd65::/16 (RFC 4193: never global).
/// Both are bounded: the first `capacity` names get addresses and later ones get none, so no name
/// ever loses its address to another. Names that no policy reaches have a bound of their own.
#[derive(Debug)]
pub struct AddressPool {
    capacity: usize,
    /// How many names that no policy reaches may have an address of their own; `None` if such a
    /// name has no address at all.
    unlisted_capacity: Option<usize>,
    unlisted: usize,
    names: Vec<Host>,
    slots: HashMap<Host, u32>,
}

/// The pair of addresses of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressPair {
    /// The address for A queries.
    pub v4: Ipv4Addr,
    /// The address for AAAA queries.
    pub v6: Ipv6Addr,
}

/// The gateway's own name inside a sandbox.
pub const GATEWAY_NAME: &str = "gateway.internal";
/// The address of `gateway.internal`.
pub const GATEWAY: AddressPair = addresses(1);
/// The address that names without one of their own share, if no policy reaches them.
const UNLISTED: AddressPair = addresses(2);

impl AddressPool {
    /// Creates a pool for up to `capacity` names, at most 131,056.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.min(CAPACITY_MAX),
            unlisted_capacity: None,
            unlisted: 0,
            names: Vec::new(),
            slots: HashMap::new(),
        }
    }

    /// Also gives addresses to names that no policy reaches, so that a connection to one arrives at
    /// the gateway, which refuses it with an explanation.
    #[must_use]
    pub fn explaining(self) -> Self {
        Self {
            capacity: self.capacity.min(CAPACITY_MAX - UNLISTED_MAX),
            unlisted_capacity: Some(UNLISTED_MAX),
            ..self
        }
    }

    /// Returns the addresses of a name, the same each time; `None` if the pool is full or the host
    /// is an address.
    pub fn addresses(&mut self, host: &Host) -> Option<AddressPair> {
        if host.ip().is_some() {
            return None;
        }
        if let Some(slot) = self.slots.get(host) {
            return Some(addresses(*slot));
        }
        if self.names.len() - self.unlisted >= self.capacity {
            return None;
        }
        self.take(host)
    }

    /// Returns the addresses of a name that no policy reaches; `None` if such names have none.
    ///
    /// Once these names have used up their share, further ones share one address: TLS and HTTP name
    /// the host again. They never take an address from a name that a policy reaches.
    pub fn unlisted(&mut self, host: &Host) -> Option<AddressPair> {
        let most = self.unlisted_capacity?;
        if let Some(slot) = self.slots.get(host) {
            return Some(addresses(*slot));
        }
        if self.unlisted >= most {
            return Some(UNLISTED);
        }
        self.unlisted += 1;
        self.take(host)
    }

    fn take(&mut self, host: &Host) -> Option<AddressPair> {
        let slot = RESERVED + u32::try_from(self.names.len()).ok()?;
        self.names.push(host.clone());
        self.slots.insert(host.clone(), slot);
        Some(addresses(slot))
    }

    /// Returns the name to which an address was given.
    #[must_use]
    pub fn name(&self, address: IpAddr) -> Option<&Host> {
        let slot = slot(address.to_canonical())?;
        self.names.get(slot.checked_sub(RESERVED)? as usize)
    }
}

impl Default for AddressPool {
    /// Allows 16,384 names: at most a few megabytes.
    fn default() -> Self {
        Self::new(16_384)
    }
}

/// Whether an address is in the synthetic ranges, in which no real host is.
#[must_use]
pub fn is_synthetic(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => u32::from(v4) & V4_MASK == u32::from(V4_BASE),
        IpAddr::V6(v6) => v6.segments()[0] == V6_PREFIX,
    }
}

const fn addresses(slot: u32) -> AddressPair {
    let [a, b] = [(slot >> 16) as u16, slot as u16];
    AddressPair {
        v4: Ipv4Addr::from_bits(V4_BASE.to_bits() | slot),
        v6: Ipv6Addr::new(V6_PREFIX, 0, 0, 0, 0, 0, a, b),
    }
}

fn slot(address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(v4) if is_synthetic(address) => Some(u32::from(v4) & !V4_MASK),
        IpAddr::V6(v6) => match v6.segments() {
            [V6_PREFIX, 0, 0, 0, 0, 0, high, low] => Some(u32::from(high) << 16 | u32::from(low)),
            _ => None,
        },
        IpAddr::V4(_) => None,
    }
}

const V4_BASE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const V4_MASK: u32 = 0xfffe_0000;
const V6_PREFIX: u16 = 0xfd65;
/// The first addresses are for the gateway's own names.
const RESERVED: u32 = 16;
/// The last address of the range is left out: it would be the broadcast address.
const CAPACITY_MAX: usize = (1 << 17) - RESERVED as usize - 1;
/// How many names that no policy reaches have an address of their own: about a megabyte.
const UNLISTED_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host(text: &str) -> Host {
        Host::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_name_keeps_its_addresses_and_they_lead_back_to_it() {
        let mut pool = AddressPool::default();
        let a = pool.addresses(&host("api.github.com")).unwrap();
        let b = pool.addresses(&host("example.com")).unwrap();
        assert_ne!(a.v4, b.v4);
        assert_eq!(pool.addresses(&host("API.github.com.")), Some(a));
        for ip in [
            IpAddr::V4(a.v4),
            IpAddr::V6(a.v6),
            IpAddr::V6(a.v4.to_ipv6_mapped()),
        ] {
            assert_eq!(pool.name(ip), Some(&host("api.github.com")), "{ip}");
            assert!(is_synthetic(ip));
        }
    }

    #[test]
    fn a_full_pool_takes_no_new_name_and_keeps_the_old_ones() {
        let mut pool = AddressPool::new(2);
        let first = pool.addresses(&host("a.test"));
        assert!(pool.addresses(&host("b.test")).is_some());
        assert_eq!(pool.addresses(&host("c.test")), None);
        assert_eq!(pool.addresses(&host("a.test")), first);
    }

    #[test]
    fn names_that_no_policy_reaches_have_a_share_of_their_own() {
        assert_eq!(AddressPool::new(2).unlisted(&host("evil.test")), None);
        let mut pool = AddressPool::new(2).explaining();
        let first = pool.unlisted(&host("evil.test"));
        for n in 0..UNLISTED_MAX {
            pool.unlisted(&host(&format!("h{n}.evil.test")));
        }
        // Beyond that number, they share an address that leads back to no name.
        let shared = pool.unlisted(&host("one-more.test")).unwrap();
        assert_eq!(Some(shared), pool.unlisted(&host("another.test")));
        assert_eq!(pool.name(shared.v4.into()), None);
        assert_eq!(pool.unlisted(&host("evil.test")), first);
        // Permitted names have all of theirs.
        assert!(pool.addresses(&host("a.test")).is_some());
        assert!(pool.addresses(&host("b.test")).is_some());
        assert_eq!(pool.addresses(&host("c.test")), None);
        // A name that a policy reaches now keeps the address that its client may have cached.
        assert_eq!(pool.addresses(&host("evil.test")), first);
    }

    #[test]
    fn an_address_gets_no_synthetic_address() {
        assert_eq!(AddressPool::default().addresses(&host("192.0.2.1")), None);
    }

    #[test]
    fn the_last_slot_is_inside_the_range_and_is_no_broadcast_address() {
        let mut pool = AddressPool::new(usize::MAX);
        let mut last = None;
        for n in 0..CAPACITY_MAX {
            last = pool.addresses(&host(&format!("h{n}.test")));
        }
        assert_eq!(last.unwrap().v4, Ipv4Addr::new(198, 19, 255, 254));
        assert_eq!(pool.addresses(&host("one-more.test")), None);
        assert_eq!(
            pool.name(last.unwrap().v6.into()),
            Some(&host(&format!("h{}.test", CAPACITY_MAX - 1)))
        );
    }

    #[test]
    fn the_reserved_and_the_foreign_addresses_have_no_name() {
        let mut pool = AddressPool::default();
        pool.addresses(&host("a.test"));
        for ip in [
            "198.18.0.0",
            "198.18.0.1",
            "198.18.0.17",
            "198.20.0.16",
            "fd65::1",
            "fd65:1::10",
            "fd66::10",
            "::1",
        ] {
            assert_eq!(pool.name(ip.parse().unwrap()), None, "{ip}");
        }
    }

    proptest! {
        #[test]
        fn any_address_is_looked_up_without_a_panic(bits: u128, v4: u32) {
            let mut pool = AddressPool::new(4);
            pool.addresses(&host("a.test"));
            let _ = pool.name(Ipv6Addr::from_bits(bits).into());
            let _ = pool.name(Ipv4Addr::from_bits(v4).into());
        }
    }
}
