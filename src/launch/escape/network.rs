//! Probes of the network: every protocol and address through which bytes could leave.

use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use super::probe::{Probe, Verdict, all_refused, attempt, error_name};
use super::targets::Targets;
use crate::network::{ADDRESS_V4, ADDRESS_V6};

pub const PROBES: &[Probe] = &[
    Probe {
        name: "interfaces",
        tries: "finds a network interface besides loopback",
        run: interfaces,
    },
    Probe {
        name: "tcp-anywhere",
        tries: "connects to addresses of the world by TCP, past the gateway",
        run: tcp_anywhere,
    },
    Probe {
        name: "mptcp",
        tries: "connects by Multipath TCP, past the gateway",
        run: mptcp,
    },
    Probe {
        name: "tcp-host",
        tries: "reaches a server on the host's addresses",
        run: tcp_host,
    },
    Probe {
        name: "udp-anywhere",
        tries: "sends UDP to QUIC, NTP, mDNS, STUN and other ports",
        run: udp_anywhere,
    },
    Probe {
        name: "udp-host",
        tries: "sends a datagram to a socket on the host",
        run: udp_host,
    },
];

fn interfaces(_: &Targets) -> Verdict {
    let Ok(table) = fs::read_to_string("/proc/net/dev") else {
        return Verdict::NotApplicable("no /proc/net/dev".into());
    };
    let names: Vec<&str> = table
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim()))
        .collect();
    match names.iter().find(|name| **name != "lo") {
        // The kernel puts fallback tunnels without a way out into every namespace if their modules
        // are loaded.
        Some(name) if !FALLBACK_TUNNELS.contains(name) => Verdict::Escaped((*name).into()),
        _ => Verdict::Held("only lo".into()),
    }
}

fn tcp_anywhere(_: &Targets) -> Verdict {
    judge_connections(TCP_ADDRESSES.iter().map(|address| {
        let parsed: Option<SocketAddr> = address.parse().ok();
        let connected = parsed
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
            .and_then(|address| TcpStream::connect_timeout(&address, PATIENCE));
        (*address, connected)
    }))
}

fn mptcp(_: &Targets) -> Verdict {
    let fd = match attempt(
        libc::SYS_socket,
        [
            libc::AF_INET as usize,
            libc::SOCK_STREAM as usize,
            MPTCP,
            0,
            0,
            0,
        ],
    ) {
        Err(error) => return Verdict::Held(error_name(&error)),
        // SAFETY: the kernel has just given this descriptor, which nothing else owns.
        Ok(fd) => unsafe { OwnedFd::from_raw_fd(fd as i32) },
    };
    let address = std::net::SocketAddrV4::new(std::net::Ipv4Addr::new(192, 0, 2, 9), 443);
    let stream = TcpStream::from(fd);
    let connected = rustix::net::connect(&stream, &address)
        .map(|()| stream)
        .map_err(Into::into);
    judge_connections([("192.0.2.9:443", connected)])
}

/// A connection inside ends at the gateway's listener, so it starts at the sandbox's own address.
fn judge_connections<'a>(
    connections: impl IntoIterator<Item = (&'a str, io::Result<TcpStream>)>,
) -> Verdict {
    let (mut captured, mut refused) = (0, 0);
    for (to, connection) in connections {
        let Ok(stream) = connection else {
            refused += 1;
            continue;
        };
        match stream.local_addr().map(|local| local.ip().to_canonical()) {
            Ok(IpAddr::V4(ip)) if ip == ADDRESS_V4 || ip.is_loopback() => captured += 1,
            Ok(IpAddr::V6(ip)) if ip == ADDRESS_V6 || ip.is_loopback() => captured += 1,
            Ok(ip) => return Verdict::Escaped(format!("{to}, from {ip}")),
            Err(_) => refused += 1,
        }
    }
    Verdict::Held(format!("{captured} captured, {refused} refused"))
}

fn tcp_host(targets: &Targets) -> Verdict {
    if targets.tcp.is_empty() {
        return Verdict::NotApplicable("no server was planted".into());
    }
    for address in &targets.tcp {
        let Ok(mut stream) = TcpStream::connect_timeout(address, PATIENCE) else {
            continue;
        };
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let mut greeting = vec![0; targets.nonce.len()];
        if stream.read_exact(&mut greeting).is_ok() && greeting == targets.nonce.as_bytes() {
            return Verdict::Escaped(address.to_string());
        }
    }
    Verdict::Held(format!("{} addresses, no greeting", targets.tcp.len()))
}

fn udp_anywhere(_: &Targets) -> Verdict {
    all_refused(
        UDP_ADDRESSES
            .iter()
            .map(|address| (*address, send_datagram(address, b"out"))),
    )
}

fn udp_host(targets: &Targets) -> Verdict {
    if targets.udp.is_empty() {
        return Verdict::NotApplicable("no socket was planted".into());
    }
    // Sending without an error does not mean receiving: the host's side decides in
    // `Fixtures::breaches`. Its loopback is not ours.
    let sent = targets.udp.iter().filter(|address| {
        !address.ip().is_loopback()
            && send_datagram(&address.to_string(), targets.nonce.as_bytes()).is_ok()
    });
    let sent: Vec<String> = sent.map(ToString::to_string).collect();
    for address in targets
        .udp
        .iter()
        .filter(|address| address.ip().is_loopback())
    {
        let _ = send_datagram(&address.to_string(), targets.nonce.as_bytes());
    }
    if sent.is_empty() {
        Verdict::Held("no address took it".into())
    } else {
        Verdict::Escaped(sent.join(", "))
    }
}

fn send_datagram(address: &str, content: &[u8]) -> io::Result<()> {
    let address: SocketAddr = address.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let socket = UdpSocket::bind(if address.is_ipv6() {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    })?;
    socket.send_to(content, address).map(drop)
}

const PATIENCE: Duration = Duration::from_millis(300);
const MPTCP: usize = 262;
const FALLBACK_TUNNELS: [&str; 11] = [
    "tunl0",
    "gre0",
    "gretap0",
    "erspan0",
    "ip_vti0",
    "ip6_vti0",
    "sit0",
    "ip6tnl0",
    "ip6gre0",
    "ip6gretap0",
    "ip6erspan0",
];
const TCP_ADDRESSES: &[&str] = &[
    "192.0.2.1:80",
    "198.51.100.1:443",
    "203.0.113.1:22",
    "1.1.1.1:853",
    "8.8.8.8:53",
    "169.254.169.254:80",
    "10.0.0.1:8080",
    "172.17.0.1:2375",
    "192.168.0.1:445",
    "100.100.100.200:80",
    "[2001:db8::1]:443",
    "[fd00:ec2::254]:80",
    "[fe80::1]:80",
    "[2001:4860:4860::8888]:53",
];
const UDP_ADDRESSES: &[&str] = &[
    "1.1.1.1:443",
    "8.8.8.8:123",
    "8.8.8.8:853",
    "192.0.2.1:3478",
    "192.0.2.1:51820",
    "192.0.2.1:4500",
    "169.254.169.254:80",
    "224.0.0.251:5353",
    "224.0.0.252:5355",
    "255.255.255.255:9",
    "192.0.2.1:137",
    "203.0.113.7:40000",
    "[2001:db8::1]:443",
    "[ff02::fb]:5353",
    "[2001:db8::1]:40000",
];
