//! Attempts to leave, to documentation addresses (RFC 5737, RFC 3849) and to neighbours. Their
//! packets have a hop limit of 1, so no router forwards them.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use super::nearby::{Nearby, devices, is_scoped, waits};
use crate::intercept::{GATEWAY_NAME, is_synthetic};

/// The result of an attempt, and why.
pub(super) enum Fate {
    /// It leads to the gateway, or nowhere.
    Holds(String),
    /// It leads past the rules.
    Leaves(String),
    /// Privileges of this process lead past the rules.
    Allowed(String),
    /// It shows nothing.
    Unclear(String),
    /// No route leads there. Neighbours may still be reachable.
    Unrouted(io::ErrorKind),
}

/// Tries a way to an address. The flag says whether the rules are in this network namespace.
type Attempt = fn(SocketAddr, bool) -> Fate;

/// Tries every way out that needs no privilege. With `is_shared`, the rules are in this network
/// namespace: then privileges bypass them, and neighbours, who need not answer, are tried too.
pub(super) fn all(is_shared: bool) -> Vec<(String, Fate)> {
    let ways: [(&str, u16, Attempt); 5] = [
        ("TCP to", 80, tcp),
        ("TCP to", 22, tcp),
        ("UDP to", 443, udp),
        ("ICMP to", 0, ping),
        ("DNS by", 53, name),
    ];
    let nearby = Nearby::settled();
    let near = nearby.iter().filter(|_| is_shared);
    let neighbours: Vec<_> = near.filter_map(|one| one.neighbour).collect();
    // An address without a route counts as refused only if all directly reachable networks are
    // tried too. A neighbour has a route until a rule redirects its packet.
    let judged = |fate, to: SocketAddr, device: Option<&str>| {
        let is_it = |ip: SocketAddr| ip.ip() == to.ip();
        let is_near = neighbours.iter().any(|ip| is_it(*ip));
        let mut near = nearby.iter().filter(|one| one.leads_to(to, device));
        let mut is_tried =
            || near.all(|one| one.neighbour.is_some_and(|ip| is_shared && !is_it(ip)));
        match fate {
            Fate::Unrouted(why @ io::ErrorKind::NetworkUnreachable) if is_near => {
                refused(why.to_string())
            }
            Fate::Unrouted(why) if is_tried() => refused(why.to_string()),
            fate => fate,
        }
    };
    let ways = ways.into_iter().flat_map(|(what, port, attempt)| {
        // TCP to link-local addresses is tried once per interface: see `bound`.
        let is_tried = move |to: &&SocketAddr| what != "TCP to" || !is_scoped(**to);
        let others = neighbours.iter().filter(is_tried);
        let others = others.map(move |to| with_port(*to, port));
        let all = nobody(port).into_iter().chain(others);
        all.map(move |to| (what, to, attempt))
    });
    let servers = servers().into_iter().map(|to| ("DNS by", to, name as _));
    let mut found = std::thread::scope(|scope| {
        let begun = ways.chain(servers).map(|(what, to, attempt)| {
            let fate = scope.spawn(move || attempt(to, is_shared));
            (what, to, fate)
        });
        let begun: Vec<_> = begun.collect();
        let ended = begun.into_iter().map(|(what, to, fate)| {
            let fate = fate.join();
            let fate = fate.unwrap_or(Fate::Unclear("it panicked".into()));
            let (fate, to) = (judged(fate, to, None), to.to_string());
            (format!("{what} {}", to.trim_end_matches(":0")), fate)
        });
        ended.collect::<Vec<_>>()
    });
    for (device, _) in devices() {
        let near = nearby.iter().filter_map(|one| one.on_link(&device));
        let near = near.filter(|_| is_shared).map(|to| with_port(to, 80));
        found.extend(nobody(80).into_iter().chain(near).map(|to| {
            let fate = judged(bound(to, &device), to, Some(&device));
            (format!("TCP to {to} bound to {device}"), fate)
        }));
    }
    if is_shared {
        found.push(("raw and marked packets".into(), raw()));
    }
    found
}

fn tcp(to: SocketAddr, _: bool) -> Fate {
    connect(to, None, PATIENCE).unwrap_or_else(lost)
}

fn udp(to: SocketAddr, is_shared: bool) -> Fate {
    let sent = datagram(to, Protocol::UDP, &[0], behind(is_shared));
    sent.map_or_else(|fate| fate, |_| Fate::Leaves("something answered".into()))
}

fn ping(to: SocketAddr, is_shared: bool) -> Fate {
    let (protocol, kind) = if to.is_ipv6() {
        (Protocol::ICMPV6, 128)
    } else {
        (Protocol::ICMPV4, 8)
    };
    let echo = [kind, 0, 0, 0, 0, 0, 0, 1];
    let sent = datagram(to, protocol, &echo, behind(is_shared));
    sent.map_or_else(|fate| fate, |_| Fate::Leaves("something answered".into()))
}

/// Queries a server for the address of the gateway's own name.
fn name(to: SocketAddr, _: bool) -> Fate {
    let mut question = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in GATEWAY_NAME.split('.') {
        question.push(label.len() as u8);
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    match datagram(to, Protocol::UDP, &question, refused) {
        Ok(answer) => {
            if answer
                .last_chunk()
                .is_some_and(|last: &[u8; 4]| is_synthetic((*last).into()))
            {
                captured()
            } else {
                Fate::Leaves("the server answered for itself".into())
            }
        }
        Err(fate) => fate,
    }
}

/// Binds a connection to an interface. Rules can only drop its packets: then the interface sends
/// nothing, and no neighbour's address is being resolved.
fn bound(to: SocketAddr, device: &str) -> Fate {
    let sent = || devices().into_iter().find(|(name, _)| name == device);
    for _ in 0..5 {
        let (before, to) = (sent(), fresh(to));
        match connect(to, Some(device), PATIENCE / 10) {
            Some(fate) => return fate,
            None if sent() == before && !waits(to, device) => {
                return Fate::Holds("refused: dropped here".into());
            }
            None => {}
        }
    }
    Fate::Unclear(format!(
        "nothing answered, and {device} sends or waits all the time"
    ))
}

/// Returns another address each time, where any will do: for one that is being resolved already,
/// the kernel waits and sends nothing.
fn fresh(to: SocketAddr) -> SocketAddr {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().subsec_nanos();
    let ip = match to.ip() {
        IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) ^ ((now >> 10) % 127 * 2)).into()),
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) ^ u128::from(now)).into()),
    };
    let mut other = to;
    other.set_ip(ip);
    other
}

/// Whether this process may send raw packets, or mark them as the gateway's.
fn raw() -> Fate {
    let kinds = [Domain::IPV4, Domain::IPV6, Domain::PACKET];
    let open = |domain| Socket::new(domain, Type::RAW, Some(Protocol::UDP)).is_ok();
    let marked = Socket::new(Domain::IPV4, Type::DGRAM, None).and_then(|one| one.set_mark(1));
    if kinds.into_iter().any(open) || marked.is_ok() {
        Fate::Allowed("this process may send packets that no rule sees as its own".into())
    } else {
        refused("permission denied".into())
    }
}

/// Connects; `None` if nothing answers.
fn connect(to: SocketAddr, device: Option<&str>, patience: Duration) -> Option<Fate> {
    // The gateway accepts everything. A reset comes from rules without it, or from another host.
    let reset = |why| Fate::Unclear(format!("{why}, by rules here or somebody else"));
    let begun = socket(to, Protocol::TCP, device).and_then(|socket| {
        socket.set_nonblocking(true)?;
        match socket.connect(&to.into()) {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::INPROGRESS) => Err(error),
            _ => Ok(socket),
        }
    });
    let socket = match begun {
        Ok(socket) => socket,
        Err(error) => return Some(failed(&error, false, reset)),
    };
    let connected = || {
        let mut ready = [PollFd::new(&socket, PollFlags::OUT)];
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        let is_ready = poll(&mut ready, Some(&patience))? > 0;
        socket.take_error()?.map_or(Ok(is_ready), Err)
    };
    let answered = match connected() {
        Ok(false) => return None,
        Ok(true) => ask(socket.into()),
        Err(error) => Err(error),
    };
    Some(answered.unwrap_or_else(|error| failed(&error, true, reset)))
}

/// Asks the peer of a connection whether it is the gateway.
fn ask(mut stream: TcpStream) -> io::Result<Fate> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
    let head = "Connection: close\r\n\r\n";
    write!(
        stream,
        "GET /ca.pem HTTP/1.1\r\nHost: {GATEWAY_NAME}\r\n{head}"
    )?;
    let mut answer = Vec::new();
    // A peer that closes early has answered enough.
    let _ = stream.take(16 * 1024).read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).to_lowercase();
    let words = ["begin certificate", "gateway-exchange:"];
    Ok(match words.iter().any(|word| answer.contains(word)) {
        true => captured(),
        false if answer.is_empty() => Fate::Unclear("it was accepted and closed".into()),
        false => Fate::Leaves("something else than the gateway answered".into()),
    })
}

/// Sends a datagram, and returns the answer.
fn datagram(
    to: SocketAddr,
    protocol: Protocol,
    content: &[u8],
    refused: fn(String) -> Fate,
) -> Result<Vec<u8>, Fate> {
    let socket = socket(to, protocol, None).and_then(|socket| {
        socket.connect(&to.into())?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(UdpSocket::from(socket))
    });
    let socket = socket.map_err(|error| failed(&error, false, refused))?;
    // The kernel refuses only so many datagrams to a peer per second.
    for at in 0..2 {
        let sent = socket.send(content);
        sent.map_err(|error| failed(&error, at > 0, refused))?;
        let mut answer = vec![0; 512];
        match socket.recv(&mut answer) {
            Ok(length) => return Ok(answer[..length].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(failed(&error, true, refused)),
        }
    }
    Err(lost())
}

fn socket(to: SocketAddr, protocol: Protocol, device: Option<&str>) -> io::Result<Socket> {
    let kind = match protocol {
        Protocol::TCP => Type::STREAM,
        _ => Type::DGRAM,
    };
    let socket = Socket::new(Domain::for_address(to), kind, Some(protocol))?;
    if to.is_ipv6() {
        socket.set_unicast_hops_v6(1)?
    } else {
        socket.set_ttl_v4(1)?
    }
    socket
        .bind_device(device.map(str::as_bytes))
        .map(|()| socket)
}

/// Returns the meaning of an error. Before anything is sent, it is this machine's own.
fn failed(error: &io::Error, is_sent: bool, rejected: impl Fn(String) -> Fate) -> Fate {
    let words = error.kind().to_string();
    match Errno::from_io_error(error) {
        Some(Errno::CONNREFUSED | Errno::CONNRESET) => rejected(words),
        Some(Errno::PERM | Errno::ACCESS) => refused(words),
        _ if is_sent => routed(words),
        Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ADDRNOTAVAIL) => {
            Fate::Unrouted(error.kind())
        }
        Some(Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT) => refused(words),
        _ => Fate::Unclear(words),
    }
}

/// Returns the meaning of a datagram that is refused by an answer. Rules in this network namespace
/// refuse one before it is sent.
fn behind(is_shared: bool) -> fn(String) -> Fate {
    if is_shared { routed } else { refused }
}

fn captured() -> Fate {
    Fate::Holds("captured: the gateway answered".into())
}

fn refused(why: String) -> Fate {
    Fate::Holds(format!("refused: {why}"))
}

fn routed(why: String) -> Fate {
    Fate::Leaves(format!("a router answered: {why}"))
}

fn lost() -> Fate {
    Fate::Leaves("rules are missing".into())
}

/// Returns the name servers of this process.
fn servers() -> Vec<SocketAddr> {
    let file = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers = file.lines().filter_map(|line| {
        let server = line.strip_prefix("nameserver")?.trim();
        (server, 53).to_socket_addrs().ok()?.next()
    });
    servers.collect()
}

fn with_port(mut to: SocketAddr, port: u16) -> SocketAddr {
    to.set_port(port);
    to
}

/// Returns addresses that no host has, with a port.
fn nobody(port: u16) -> [SocketAddr; 2] {
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    [Ipv4Addr::new(192, 0, 2, 1).into(), v6.into()].map(|ip: IpAddr| (ip, port).into())
}

const PATIENCE: Duration = Duration::from_millis(500);
/// The time for a busy gateway to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
