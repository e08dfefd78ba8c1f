//! Probes of sockets that could bypass the gateway, or change the sandbox's network.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use super::probe::{Probe, Verdict, all_refused, attempt};
use super::targets::Targets;
use crate::netlink::{ACK, Netlink};
use crate::syscall;

pub const PROBES: &[Probe] = &[
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
];

fn icmp(_: &Targets) -> Verdict {
    let v4 = open(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP);
    let v6 = open(libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6);
    all_refused([("ICMP", v4), ("ICMPv6", v6)])
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
    let set = |level: i32, option: i32| syscall::set_option(&socket, level, option, 1);
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

const SOCK_DCCP: i32 = 6;
const IPPROTO_L2TP: i32 = 115;
