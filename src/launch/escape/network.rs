//! Probes of the network: every protocol and address by which bytes could leave.

use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixStream};
use std::time::Duration;

use super::{Probe, Targets, Verdict, all_refused, attempt};
use crate::netlink::{ACK, Netlink};
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
    Probe {
        name: "icmp",
        tries: "opens ping sockets, IPv4 and IPv6",
        run: icmp,
    },
    Probe {
        name: "raw-sockets",
        tries: "opens raw and packet sockets",
        run: raw_sockets,
    },
    Probe {
        name: "transports",
        tries: "opens SCTP, DCCP, UDP-Lite and L2TP sockets",
        run: transports,
    },
    Probe {
        name: "socket-families",
        tries: "opens sockets of every other family: vsock, AF_ALG, XDP, CAN and so on",
        run: families,
    },
    Probe {
        name: "socket-pair-families",
        tries: "opens socket pairs of other families",
        run: pair_families,
    },
    Probe {
        name: "socket-options",
        tries: "marks packets, binds to devices, becomes transparent",
        run: options,
    },
    Probe {
        name: "routes",
        tries: "takes loopback down by rtnetlink",
        run: routes,
    },
    Probe {
        name: "nftables",
        tries: "opens the netfilter socket by which the capture rules are changed",
        run: nftables,
    },
    Probe {
        name: "abstract-sockets",
        tries: "connects to an abstract Unix socket of the host",
        run: abstract_socket,
    },
    Probe {
        name: "path-sockets",
        tries: "connects to agents, buses and daemons by their socket files",
        run: path_sockets,
    },
    Probe {
        name: "proxy-variables",
        tries: "finds a proxy in the environment",
        run: proxy_variables,
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
        Err(error) => return Verdict::Held(super::error_name(&error)),
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
    // `Guard::breaches`. Its loopback is not ours.
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

fn icmp(_: &Targets) -> Verdict {
    all_refused([
        (
            "ICMP",
            open(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP),
        ),
        (
            "ICMPv6",
            open(libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6),
        ),
    ])
}

fn raw_sockets(_: &Targets) -> Verdict {
    let mut attempts = vec![("packet", open(libc::AF_PACKET, libc::SOCK_RAW, 0x0300))];
    for protocol in [
        libc::IPPROTO_RAW,
        libc::IPPROTO_ICMP,
        libc::IPPROTO_TCP,
        libc::IPPROTO_UDP,
    ] {
        attempts.push(("raw IPv4", open(libc::AF_INET, libc::SOCK_RAW, protocol)));
        attempts.push(("raw IPv6", open(libc::AF_INET6, libc::SOCK_RAW, protocol)));
    }
    all_refused(attempts)
}

fn transports(_: &Targets) -> Verdict {
    let mut attempts = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        attempts.push(("SCTP", open(family, libc::SOCK_STREAM, libc::IPPROTO_SCTP)));
        attempts.push((
            "SCTP",
            open(family, libc::SOCK_SEQPACKET, libc::IPPROTO_SCTP),
        ));
        attempts.push(("DCCP", open(family, SOCK_DCCP, libc::IPPROTO_DCCP)));
        attempts.push((
            "UDP-Lite",
            open(family, libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE),
        ));
        attempts.push(("L2TP", open(family, libc::SOCK_DGRAM, IPPROTO_L2TP)));
    }
    all_refused(attempts)
}

fn families(_: &Targets) -> Verdict {
    let known = [
        libc::AF_UNIX,
        libc::AF_INET,
        libc::AF_INET6,
        libc::AF_NETLINK,
    ];
    let kinds = [
        libc::SOCK_STREAM,
        libc::SOCK_DGRAM,
        libc::SOCK_RAW,
        libc::SOCK_SEQPACKET,
    ];
    all_refused(
        (0..64)
            .filter(|family| !known.contains(family))
            .flat_map(|family| {
                kinds.map(|kind| (format!("family {family}"), open(family, kind, 0)))
            }),
    )
}

fn pair_families(_: &Targets) -> Verdict {
    all_refused((2..64).map(|family| {
        let mut pair = [0_i32; 2];
        let arguments = [
            family,
            libc::SOCK_STREAM as usize,
            0,
            (&raw mut pair) as usize,
            0,
            0,
        ];
        (
            format!("family {family}"),
            attempt(libc::SYS_socketpair, arguments),
        )
    }))
}

fn options(_: &Targets) -> Verdict {
    let Ok(socket) = UdpSocket::bind("0.0.0.0:0") else {
        return Verdict::NotApplicable("no socket".into());
    };
    let set = |level: i32, option: i32| crate::syscall::set_option(&socket, level, option, 1);
    let device = *b"eth0\0";
    let arguments = [
        socket.as_raw_fd() as usize,
        libc::SOL_SOCKET as usize,
        libc::SO_BINDTODEVICE as usize,
        device.as_ptr() as usize,
        device.len(),
        0,
    ];
    all_refused([
        ("SO_MARK", set(libc::SOL_SOCKET, libc::SO_MARK)),
        ("IP_TRANSPARENT", set(libc::SOL_IP, libc::IP_TRANSPARENT)),
        (
            "SO_BINDTODEVICE",
            attempt(libc::SYS_setsockopt, arguments).map(drop),
        ),
    ])
}

fn routes(_: &Targets) -> Verdict {
    let down = Netlink::open(None).and_then(|mut netlink| {
        // struct ifinfomsg for index 1: no flag, IFF_UP to change
        let mut header = [0; 16];
        header[4] = 1;
        header[12] = libc::IFF_UP as u8;
        netlink.message(libc::RTM_NEWLINK, ACK, &header, |_| {});
        netlink.commit()
    });
    all_refused([("loopback is down", down)])
}

fn nftables(_: &Targets) -> Verdict {
    let flushed = Netlink::open(Some(rustix::net::netlink::NETFILTER)).and_then(|mut netlink| {
        netlink.message(16, 1, &[0, 0, 0, 10], |_| {});
        netlink.message((10 << 8) | 2, ACK, &[0, 0, 0, 0], |_| {}); // NFT_MSG_DELTABLE, of all families
        netlink.message(17, 1, &[0, 0, 0, 10], |_| {});
        netlink.commit()
    });
    all_refused([("the rules are flushed", flushed)])
}

fn abstract_socket(targets: &Targets) -> Verdict {
    let Some(name) = &targets.abstract_socket else {
        return Verdict::NotApplicable("none was planted".into());
    };
    let mut names = vec![name.clone()];
    names.extend(["/tmp/.X11-unix/X0", "/tmp/dbus-session", "/containerd-shim"].map(String::from));
    all_refused(names.into_iter().map(|name| {
        let connected = UnixAddr::from_abstract_name(&name)
            .and_then(|address| UnixStream::connect_addr(&address));
        (name, connected)
    }))
}

fn path_sockets(targets: &Targets) -> Verdict {
    let mut paths: Vec<String> = SOCKETS.iter().map(|path| (*path).to_owned()).collect();
    paths.extend(
        targets
            .sockets
            .iter()
            .map(|path| path.display().to_string()),
    );
    let uid = rustix::process::getuid().as_raw();
    for name in [
        "bus",
        "systemd/private",
        "gnupg/S.gpg-agent",
        "keyring/ssh",
        "keyring/control",
        "docker.sock",
        "podman/podman.sock",
    ] {
        paths.push(format!("/run/user/{uid}/{name}"));
    }
    for root in ["/run", "/tmp", "/var", "/home", "/srv", "/opt", "/mnt"] {
        super::files::walk(root.as_ref(), &mut |path, found| {
            use std::os::unix::fs::FileTypeExt;
            if found.is_socket() {
                paths.push(path.display().to_string());
            }
        });
    }
    let streams = paths
        .iter()
        .map(|path| (path.clone(), UnixStream::connect(path).map(drop)));
    let datagrams = paths.iter().map(|path| {
        let sent = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
        (path.clone(), sent)
    });
    all_refused(streams.chain(datagrams))
}

fn proxy_variables(_: &Targets) -> Verdict {
    let found = std::env::vars_os()
        .find(|(name, _)| name.to_string_lossy().to_lowercase().ends_with("_proxy"));
    match found {
        Some((name, _)) => Verdict::Escaped(name.to_string_lossy().into_owned()),
        None => Verdict::Held("none".into()),
    }
}

fn open(family: i32, kind: i32, protocol: i32) -> io::Result<i64> {
    attempt(
        libc::SYS_socket,
        [
            family as usize,
            (kind | libc::SOCK_CLOEXEC) as usize,
            protocol as usize,
            0,
            0,
            0,
        ],
    )
}

const PATIENCE: Duration = Duration::from_millis(300);
const MPTCP: usize = 262;
const SOCK_DCCP: i32 = 6;
const IPPROTO_L2TP: i32 = 115;
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
const SOCKETS: &[&str] = &[
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/systemd/notify",
    "/run/nscd/socket",
    "/var/run/nscd/socket",
    "/run/avahi-daemon/socket",
    "/run/pcscd/pcscd.comm",
    "/run/snapd.socket",
    "/run/tailscale/tailscaled.sock",
    "/run/WSL",
    "/run/gnupg/S.gpg-agent",
    "/tmp/.X11-unix/X0",
    "/run/udev/control",
    "/run/libvirt/libvirt-sock",
    "/run/postgresql/.s.PGSQL.5432",
    "/var/run/mysqld/mysqld.sock",
    "/var/lib/lxd/unix.socket",
];
