//! Ports: those of the host that the command reaches, and how the gateway reaches the command's.
//!
//! All sockets are created inside the sandbox. One that connects can therefore reach nothing but
//! the sandbox, whatever it is asked for; one that listens is reached from nowhere else.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use super::failure::{At, Failure, Step};
use super::network::{BACKLOG, DNS_PORT, TCP_PORT};
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
    /// Why a port cannot be one of the host's in the sandbox, if it cannot.
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
        let one = || {
            if !ipv6 {
                return socket(AddressFamily::INET);
            }
            let socket = socket(AddressFamily::INET6)?;
            // They reach servers of either family.
            syscall::set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
            Ok(socket)
        };
        let count = if self.inward { INWARD } else { 0 };
        (0..count)
            .map(|_| one().at(Step::Listeners, "a socket for published ports"))
            .collect()
    }
}

fn socket(family: AddressFamily) -> std::io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    Ok(socket)
}

/// The addresses at which a server inside may listen, for a socket of the sandbox.
#[must_use]
pub fn inside(ipv6: bool, port: u16) -> Vec<std::net::SocketAddr> {
    if !ipv6 {
        return vec![(Ipv4Addr::LOCALHOST, port).into()];
    }
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    vec![(mapped, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
}

/// How many connections to all published ports of a sandbox are open at once. Further ones wait.
pub const INWARD: usize = 64;
/// How many ports of the host a sandbox may reach.
pub const MOST_HOST: usize = 32;
