//! Probes of sockets that could bypass the gateway, change the sandbox's network, or reach agents,
//! buses and daemons of the host.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixStream};
use std::path::PathBuf;

use gateway_launch::netlink::{ACK, Batch, REQUEST};
use libc::{AF_INET, AF_INET6, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_STREAM, SYS_setsockopt};

use super::probe::{
    Verdict, address, all_refused, call, calls_refused, not_applicable, paths_refused, walk, words,
};
use super::targets::Targets;

pub fn icmp(_: &Targets) -> Verdict {
    sockets_refused([
        ("ICMP", AF_INET, SOCK_DGRAM, libc::IPPROTO_ICMP),
        ("ICMPv6", AF_INET6, SOCK_DGRAM, libc::IPPROTO_ICMPV6),
    ])
}

pub fn raw_sockets(_: &Targets) -> Verdict {
    let protocols = [
        libc::IPPROTO_RAW,
        libc::IPPROTO_ICMP,
        libc::IPPROTO_TCP,
        libc::IPPROTO_UDP,
    ];
    let v4 = protocols.map(|protocol| ("raw IPv4", AF_INET, SOCK_RAW, protocol));
    let v6 = protocols.map(|protocol| ("raw IPv6", AF_INET6, SOCK_RAW, protocol));
    let packet = ("packet", libc::AF_PACKET, SOCK_RAW, 0x0300);
    sockets_refused([packet].into_iter().chain(v4).chain(v6))
}

pub fn transports(_: &Targets) -> Verdict {
    sockets_refused([AF_INET, AF_INET6].into_iter().flat_map(|family| {
        [
            ("SCTP", family, SOCK_STREAM, libc::IPPROTO_SCTP),
            ("SCTP", family, SOCK_SEQPACKET, libc::IPPROTO_SCTP),
            ("DCCP", family, SOCK_DCCP, libc::IPPROTO_DCCP),
            ("UDP-Lite", family, SOCK_DGRAM, libc::IPPROTO_UDPLITE),
            ("L2TP", family, SOCK_DGRAM, IPPROTO_L2TP),
        ]
    }))
}

pub fn families(_: &Targets) -> Verdict {
    let known = [libc::AF_UNIX, AF_INET, AF_INET6, libc::AF_NETLINK];
    let others = (0..64).filter(|family| !known.contains(family));
    let kinds = [SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET];
    sockets_refused(
        others.flat_map(|family| kinds.map(|kind| (format!("family {family}"), family, kind, 0))),
    )
}

/// Held if none of these sockets can be opened: each is a name, a family, a kind and a protocol.
fn sockets_refused<S: Into<String>>(
    sockets: impl IntoIterator<Item = (S, i32, i32, i32)>,
) -> Verdict {
    let attempts = sockets.into_iter().map(|(name, family, kind, protocol)| {
        let arguments = [family, kind | libc::SOCK_CLOEXEC, protocol].map(|one| one as usize);
        (name, call(libc::SYS_socket, &arguments))
    });
    all_refused(attempts)
}

pub fn pair_families(_: &Targets) -> Verdict {
    all_refused((2..64).map(|family| {
        let mut pair = [0_i32; 2];
        let arguments = [family, SOCK_STREAM as usize, 0, (&raw mut pair) as usize];
        let made = call(libc::SYS_socketpair, &arguments);
        (format!("family {family}"), made)
    }))
}

pub fn options(_: &Targets) -> Verdict {
    let Ok(socket) = UdpSocket::bind("0.0.0.0:0") else {
        return not_applicable("no socket");
    };
    let (fd, one, device) = (socket.as_raw_fd() as usize, 1_i32, b"eth0\0");
    let set = |level: i32, option: i32| [fd, level as usize, option as usize, address(&one), 4];
    let bind = libc::SO_BINDTODEVICE as usize;
    let bind = [fd, libc::SOL_SOCKET as usize, bind, address(device), 5];
    let mark = set(libc::SOL_SOCKET, libc::SO_MARK);
    let transparent = set(libc::SOL_IP, libc::IP_TRANSPARENT);
    calls_refused(&[
        ("SO_MARK", SYS_setsockopt, &mark),
        ("IP_TRANSPARENT", SYS_setsockopt, &transparent),
        ("SO_BINDTODEVICE", SYS_setsockopt, &bind),
    ])
}

pub fn routes(_: &Targets) -> Verdict {
    let mut batch = Batch::default();
    // struct ifinfomsg for index 1: no flag, IFF_UP to change
    let mut header = [0; 16];
    header[4] = 1;
    header[12] = libc::IFF_UP as u8;
    batch.message(libc::RTM_NEWLINK, ACK, &header, |_| {});
    all_refused([("loopback is down", batch.commit(None))])
}

pub fn nftables(_: &Targets) -> Verdict {
    let mut batch = Batch::default();
    batch.message(16, REQUEST, &[0, 0, 0, 10], |_| {});
    batch.message((10 << 8) | 2, ACK, &[0, 0, 0, 0], |_| {}); // NFT_MSG_DELTABLE, of all families
    batch.message(17, REQUEST, &[0, 0, 0, 10], |_| {});
    let flushed = batch.commit(Some(rustix::net::netlink::NETFILTER));
    all_refused([("the rules are flushed", flushed)])
}

pub fn abstract_sockets(targets: &Targets) -> Verdict {
    let Some(planted) = &targets.abstract_socket else {
        return not_applicable("none was planted");
    };
    let connect = |name| UnixStream::connect_addr(&UnixAddr::from_abstract_name(name)?);
    let names = [
        planted,
        "/tmp/.X11-unix/X0",
        "/tmp/dbus-session",
        "/containerd-shim",
    ];
    all_refused(names.map(|name| (name, connect(name))))
}

pub fn path_sockets(targets: &Targets) -> Verdict {
    let uid = rustix::process::getuid().as_raw();
    let of_the_user = words(SOCKETS_OF_A_USER).map(|name| format!("/run/user/{uid}/{name}"));
    let mut paths: Vec<PathBuf> = words(SOCKETS).map(PathBuf::from).collect();
    paths.extend(of_the_user.map(PathBuf::from));
    paths.extend(targets.sockets.iter().cloned());
    for root in ["/run", "/tmp", "/var", "/home", "/srv", "/opt", "/mnt"] {
        walk(root.as_ref(), &mut |path, kind| {
            if kind.is_socket() {
                paths.push(path.to_owned());
            }
        });
    }
    paths_refused(paths, |path| -> io::Result<()> {
        let stream = UnixStream::connect(path).map(drop);
        stream.or_else(|_| UnixDatagram::unbound()?.connect(path))
    })
}

const SOCK_DCCP: i32 = 6;
const IPPROTO_L2TP: i32 = 115;
const SOCKETS: &str = "
    /var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock /run/podman/podman.sock
    /run/crio/crio.sock /run/dbus/system_bus_socket /run/systemd/private
    /run/systemd/resolve/io.systemd.Resolve /run/systemd/notify /run/nscd/socket /var/run/nscd/socket
    /run/avahi-daemon/socket /run/pcscd/pcscd.comm /run/snapd.socket /run/tailscale/tailscaled.sock
    /run/WSL /run/gnupg/S.gpg-agent /tmp/.X11-unix/X0 /run/udev/control /run/libvirt/libvirt-sock
    /run/postgresql/.s.PGSQL.5432 /var/run/mysqld/mysqld.sock /var/lib/lxd/unix.socket
";
const SOCKETS_OF_A_USER: &str = "
    bus systemd/private gnupg/S.gpg-agent keyring/ssh keyring/control docker.sock podman/podman.sock
";
