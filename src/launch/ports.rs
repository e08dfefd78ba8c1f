//! Ports: those of the host that the command reaches, and the sockets to the command's servers.
//!
//! All sockets are created inside the sandbox. A connecting socket can therefore reach only the
//! sandbox, whatever the destination; a listening one is reached only from the sandbox.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use super::failure::{AtStep, Failure, Step};
use super::syscall;

/// The ports that connect a sandbox with the host's loopback.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// Ports of the host that the command reaches at the same port of its own loopback.
    pub host: Vec<u16>,
    /// Whether the gateway connects to the command's servers.
    pub inward: bool,
}

impl Ports {
    /// Returns why a port cannot be one of the host's in the sandbox, if it cannot.
    #[must_use]
    pub fn taken_inside(port: u16) -> Option<&'static str> {
        match port {
            DNS_PORT => Some("the gateway answers DNS there"),
            TCP_PORT => Some("the gateway takes the sandbox's connections there"),
            _ => None,
        }
    }

    /// Listens inside at each port of the host.
    pub(super) fn listen(&self) -> Result<Vec<OwnedFd>, Failure> {
        let one = |port: &u16| {
            let socket = socket(AddressFamily::INET)?;
            syscall::set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
            rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, *port))?;
            rustix::net::listen(&socket, BACKLOG)?;
            std::io::Result::Ok(socket)
        };
        let listen = |port| one(port).at(Step::Listeners, format!("host port {port}"));
        self.host.iter().map(listen).collect()
    }

    /// Creates the sockets by which the gateway connects to the command's servers.
    pub(super) fn inward(&self, ipv6: bool) -> Result<Vec<OwnedFd>, Failure> {
        let count = if self.inward { INWARD } else { 0 };
        let v4 = std::iter::repeat_n(AddressFamily::INET, count);
        let v6 = std::iter::repeat_n(AddressFamily::INET6, if ipv6 { count } else { 0 });
        let one = |family| socket(family).at(Step::Listeners, "a socket for published ports");
        v4.chain(v6).map(one).collect()
    }
}

fn socket(family: AddressFamily) -> std::io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    Ok(socket)
}

/// Sorts the sockets that a sandbox passed for connections to its servers: each connection gets one
/// for each loopback address at which a server may listen.
///
/// One socket for both would not do: after trying IPv4, it can no longer reach IPv6.
#[must_use]
pub fn inward_places(sockets: Vec<OwnedFd>) -> Vec<Vec<(IpAddr, OwnedFd)>> {
    let is_v6 = |socket: &OwnedFd| {
        let own = rustix::net::getsockname(socket);
        own.is_ok_and(|own| own.address_family() == AddressFamily::INET6)
    };
    let (v6, v4): (Vec<_>, Vec<_>) = sockets.into_iter().partition(is_v6);
    let mut v6 = v6.into_iter();
    let place = |v4: OwnedFd| {
        let v4 = (IpAddr::from(Ipv4Addr::LOCALHOST), v4);
        let v6 = v6.next().map(|v6| (IpAddr::from(Ipv6Addr::LOCALHOST), v6));
        std::iter::once(v4).chain(v6).collect()
    };
    v4.into_iter().map(place).collect()
}

/// The TCP port, inside the sandbox, of the listener that accepts every connection.
pub(super) const TCP_PORT: u16 = 15001;
/// The port of the listeners for DNS.
pub(super) const DNS_PORT: u16 = 53;
/// How many connections may wait to be accepted at a listener.
pub(super) const BACKLOG: i32 = 4096;
/// How many connections to all published ports of a sandbox are open at once. Further ones wait.
pub const INWARD: usize = 64;
/// How many ports of the host a sandbox may reach.
pub const MOST_HOST: usize = 32;
