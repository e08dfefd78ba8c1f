//! The sandbox's network: only a loopback interface, on which every address is local.
//!
//! This namespace has no other interface, so no way out needs to be forbidden. Everything done here
//! makes connections *arrive* at the gateway's listeners. Undoing any of it from inside would only
//! make them fail.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::failure::{AtStep, Failure, Step};
use super::netlink::{ACK, Batch, CREATE, EXCL};
use super::ports::{BACKLOG, DNS_PORT, Ports, TCP_PORT};
use super::{ruleset, syscall};
use crate::enroll::{Capture, Listeners};

/// The sandbox's own IPv4 address. It is not a loopback address, so resolvers and "what is my
/// address" probes work.
pub const ADDRESS_V4: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 2);
/// The sandbox's own IPv6 address.
pub const ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd64, 0, 0, 0, 0, 0, 0, 2);

/// The network after setup.
#[derive(Debug)]
pub struct Network {
    /// The sockets for the gateway.
    pub listeners: Listeners,
    /// How TCP reaches them.
    pub capture: Capture,
    /// Whether there is IPv6.
    pub ipv6: bool,
}

/// Sets up the caller's network namespace.
///
/// `wanted` forces one way of capture; `None` takes TPROXY, or REDIRECT if the kernel lacks it.
///
/// # Errors
/// The step and errno of whatever the kernel refused.
pub fn set_up(wanted: Option<Capture>, ports: &Ports) -> Result<Network, Failure> {
    raise_loopback().at(Step::Loopback, "bring `lo` up")?;
    add_addresses(AddressFamily::INET).at(Step::Routes, "make every IPv4 address local")?;
    let ipv6 = match add_addresses(AddressFamily::INET6) {
        Ok(()) => true,
        // A kernel booted without IPv6 has no IPv6 to leak through either.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::EACCES)
            ) =>
        {
            false
        }
        Err(error) => return Err(error).at(Step::Routes, "make every IPv6 address local"),
    };
    // This lets the command serve on low ports of its own loopback, which it could not do on the
    // host. Optional.
    let _ = std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
    let capture = install_rules(wanted)?;
    let listeners = Listeners {
        host_ports: ports.listen()?,
        inward: ports.inward(ipv6)?,
        ..listen(capture, ipv6)?
    };
    Ok(Network {
        listeners,
        capture,
        ipv6,
    })
}

fn install_rules(wanted: Option<Capture>) -> Result<Capture, Failure> {
    if let Some(capture) = wanted {
        ruleset::install(capture, TCP_PORT).at(Step::Rules, format!("{capture:?}"))?;
        return Ok(capture);
    }
    let Err(tproxy) = ruleset::install(Capture::Tproxy, TCP_PORT) else {
        return Ok(Capture::Tproxy);
    };
    match ruleset::install(Capture::Redirect, TCP_PORT) {
        Ok(()) => Ok(Capture::Redirect),
        Err(_) => Err(tproxy).at(Step::Rules, "TPROXY, and REDIRECT neither"),
    }
}

fn raise_loopback() -> io::Result<()> {
    let mut batch = Batch::default();
    // struct ifinfomsg: family, type, index, flags, change
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&LOOPBACK.to_ne_bytes());
    header[8..12].copy_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
    header[12..16].copy_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
    batch.message(libc::RTM_NEWLINK, ACK, &header, |_| {});
    batch.commit(None)
}

fn add_addresses(family: AddressFamily) -> io::Result<()> {
    let (address, flags) = match family {
        AddressFamily::INET => (ADDRESS_V4.octets().to_vec(), 0),
        // Without NODAD the address is tentative for a while, and cannot be a preferred source.
        _ => (ADDRESS_V6.octets().to_vec(), libc::IFA_F_NODAD as u8),
    };
    let family = family.as_raw() as u8;
    let mut batch = Batch::default();
    // struct ifaddrmsg: family, prefix length, flags, scope, index
    let mut header = vec![family, (address.len() * 8) as u8, flags, 0];
    header.extend_from_slice(&LOOPBACK.to_ne_bytes());
    batch.message(libc::RTM_NEWADDR, ACK | CREATE | EXCL, &header, |n| {
        n.attribute(libc::IFA_LOCAL, &address);
        n.attribute(libc::IFA_ADDRESS, &address);
    });
    // struct rtmsg: family, destination and source length, tos, table, protocol, scope, type,
    // flags. "local 0/0 dev lo": every destination is this host. The preferred source keeps a
    // connection from seeming to come from its own destination.
    let (table, scope) = (libc::RT_TABLE_LOCAL, libc::RT_SCOPE_HOST);
    let mut header = [0; 12];
    header[0] = family;
    header[4..8].copy_from_slice(&[table, libc::RTPROT_STATIC, scope, libc::RTN_LOCAL]);
    batch.message(libc::RTM_NEWROUTE, ACK | CREATE | EXCL, &header, |n| {
        n.attribute(libc::RTA_OIF, &LOOPBACK.to_ne_bytes());
        n.attribute(libc::RTA_PREFSRC, &address);
    });
    batch.commit(None)
}

fn listen(capture: Capture, ipv6: bool) -> Result<Listeners, Failure> {
    let transparent = capture == Capture::Tproxy;
    let tcp = socket(SocketType::STREAM, TCP_PORT, ipv6, transparent).at(Step::Listeners, "TCP")?;
    let dns_tcp =
        socket(SocketType::STREAM, DNS_PORT, ipv6, false).at(Step::Listeners, "DNS over TCP")?;
    let dns_udp = socket(SocketType::DGRAM, DNS_PORT, ipv6, false).at(Step::Listeners, "DNS")?;
    Ok(Listeners {
        tcp,
        dns_tcp,
        dns_udp,
        host_ports: Vec::new(),
        inward: Vec::new(),
    })
}

fn socket(kind: SocketType, port: u16, ipv6: bool, transparent: bool) -> io::Result<OwnedFd> {
    let family = if ipv6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let (level, transparency, free_bind, packet_info) = if ipv6 {
        (
            libc::IPPROTO_IPV6,
            libc::IPV6_TRANSPARENT,
            libc::IPV6_FREEBIND,
            libc::IPV6_RECVPKTINFO,
        )
    } else {
        (
            libc::IPPROTO_IP,
            libc::IP_TRANSPARENT,
            libc::IP_FREEBIND,
            libc::IP_PKTINFO,
        )
    };
    if ipv6 {
        syscall::set_option(&socket, level, libc::IPV6_V6ONLY, 0)?;
    }
    if transparent {
        syscall::set_option(&socket, level, transparency, 1)?;
    }
    if kind == SocketType::DGRAM {
        syscall::set_option(&socket, level, packet_info, 1)?;
        // A response leaves from the address that was queried, which no interface has.
        syscall::set_option(&socket, level, free_bind, 1)?;
    } else {
        syscall::set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    }
    let any: IpAddr = if ipv6 {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    rustix::net::bind(&socket, &SocketAddr::new(any, port))?;
    if kind == SocketType::STREAM {
        rustix::net::listen(&socket, BACKLOG)?;
    }
    Ok(socket)
}

const LOOPBACK: u32 = 1;
