//! Attempts to leave, to addresses of documentation (RFC 5737, RFC 3849). Their packets have a hop
//! limit of 1: no router passes one on.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use crate::intercept::{GATEWAY_NAME, is_synthetic};

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// The gateway answered.
    Captured,
    /// It was refused here.
    Refused(String),
    /// It was refused, by rules here or by somebody behind them.
    Rejected(String),
    /// Somebody else answered.
    Left(String),
    /// Nothing answered.
    Lost,
    /// This process is allowed what passes the rules.
    Allowed(String),
    /// It does not show anything.
    Unclear(String),
}

/// Tries every way out that needs no privilege. With `is_shared`, the rules are in this network
/// namespace, and privileges are ways past them.
pub(super) fn all(is_shared: bool) -> Vec<(String, Fate)> {
    let mut found = std::thread::scope(|scope| {
        let tcp = [80, 22].into_iter().flat_map(to);
        let tcp = tcp.map(|to| (format!("TCP to {to}"), Try::Tcp(to)));
        let udp = to(443).map(|to| (format!("UDP to {to}"), Try::Udp(to)));
        let pings = to(0).map(|to| (format!("ICMP to {}", to.ip()), Try::Ping(to)));
        let names = servers().into_iter().chain(to(53));
        let names = names.map(|to| (format!("DNS by {to}"), Try::Name(to)));
        let all = tcp.chain(udp).chain(pings).chain(names);
        let all: Vec<_> = all
            .map(|(name, one)| (name, scope.spawn(move || one.fate(is_shared))))
            .collect();
        let done = all.into_iter().map(|(name, one)| {
            let fate = one.join();
            (name, fate.unwrap_or(Fate::Unclear("it panicked".into())))
        });
        done.collect::<Vec<_>>()
    });
    for (device, _) in devices() {
        found.extend(
            to(80).map(|to| (format!("TCP to {to} bound to {device}"), bound(to, &device))),
        );
    }
    if is_shared {
        found.extend([
            ("raw sockets".into(), raw()),
            ("marked packets".into(), marked()),
        ]);
    }
    found
}

enum Try {
    Tcp(SocketAddr),
    Udp(SocketAddr),
    Ping(SocketAddr),
    Name(SocketAddr),
}

impl Try {
    fn fate(self, is_shared: bool) -> Fate {
        let answered = |_: &[u8]| Fate::Left("something answered".into());
        match self {
            // The gateway takes all.
            Self::Tcp(to) => tcp(to, None, PATIENCE).unless_by_others(),
            Self::Udp(to) => datagram(to, Protocol::UDP, &[0], answered).at_once(is_shared),
            Self::Ping(to) => {
                let (protocol, kind) = match to.is_ipv6() {
                    true => (Protocol::ICMPV6, 128),
                    false => (Protocol::ICMPV4, 8),
                };
                datagram(to, protocol, &[kind, 0, 0, 0, 0, 0, 0, 1], answered).at_once(is_shared)
            }
            Self::Name(to) => datagram(to, Protocol::UDP, &question(), |answer| {
                let last: Option<&[u8; 4]> = answer.last_chunk();
                match last.is_some_and(|last| is_synthetic(IpAddr::from(*last))) {
                    true => Fate::Captured,
                    false => Fate::Left("the server answered for itself".into()),
                }
            })
            .at_once(false),
        }
    }
}

impl Fate {
    /// With the rules in this network namespace, a datagram is refused before it is sent.
    fn at_once(self, is_shared: bool) -> Self {
        match self {
            Self::Rejected(why) if is_shared => Self::Left(format!("a router answered: {why}")),
            Self::Rejected(why) => Self::Refused(why),
            other => other,
        }
    }

    /// A reset is of the rules if no gateway listens, and else of somebody behind them.
    fn unless_by_others(self) -> Self {
        match self {
            Self::Rejected(why) => Self::Unclear(format!("{why}, by rules here or somebody else")),
            other => other,
        }
    }
}

fn tcp(to: SocketAddr, device: Option<&str>, patience: Duration) -> Fate {
    let begun = socket(to, Protocol::TCP, device).and_then(|socket| {
        socket.set_nonblocking(true)?;
        match socket.connect(&to.into()) {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::INPROGRESS) => Err(error),
            _ => Ok(socket),
        }
    });
    let socket = match begun {
        Ok(socket) => socket,
        Err(error) => return failed(&error, false),
    };
    let connected = || {
        let mut ready = [PollFd::new(&socket, PollFlags::OUT)];
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        let is_ready = poll(&mut ready, Some(&patience))? > 0;
        socket.take_error()?.map_or(Ok(is_ready), Err)
    };
    match connected() {
        Ok(true) => asked(socket.into()).unwrap_or_else(|error| failed(&error, true)),
        Ok(false) => Fate::Lost,
        Err(error) => failed(&error, true),
    }
}

/// Asks whoever accepted a connection whether it is the gateway.
fn asked(mut stream: TcpStream) -> io::Result<Fate> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
    let head = "Connection: close\r\n\r\n";
    write!(
        stream,
        "GET /ca.pem HTTP/1.1\r\nHost: {GATEWAY_NAME}\r\n{head}"
    )?;
    let mut answer = Vec::new();
    // Who closes early has said enough.
    let _ = stream.take(16 * 1024).read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).to_lowercase();
    let words = ["begin certificate", "gateway-exchange:"];
    Ok(match words.iter().any(|word| answer.contains(word)) {
        true => Fate::Captured,
        false if answer.is_empty() => {
            Fate::Unclear("whoever accepted it closed it without a word".into())
        }
        false => Fate::Left("something else than the gateway answered".into()),
    })
}

fn datagram(
    to: SocketAddr,
    protocol: Protocol,
    content: &[u8],
    answered: impl Fn(&[u8]) -> Fate,
) -> Fate {
    let begun = socket(to, protocol, None).and_then(|socket| {
        socket.connect(&to.into())?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(UdpSocket::from(socket))
    });
    let socket = match begun {
        Ok(socket) => socket,
        Err(error) => return failed(&error, false),
    };
    // The kernel refuses a peer only so many datagrams in a second.
    for at in 0..2 {
        if let Err(error) = socket.send(content) {
            return failed(&error, at > 0);
        }
        let mut answer = [0; 512];
        match socket.recv(&mut answer) {
            Ok(length) => return answered(&answer[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return failed(&error, true),
        }
    }
    Fate::Lost
}

/// Binds a connection to an interface. Where rules notice, they can only drop it: then the interface
/// sends nothing meanwhile.
fn bound(to: SocketAddr, device: &str) -> Fate {
    let sent = || devices().into_iter().find(|(name, _)| name == device);
    for _ in 0..5 {
        let before = sent();
        match tcp(to, Some(device), PATIENCE / 10) {
            Fate::Lost if sent() == before => return Fate::Refused("dropped here".into()),
            Fate::Lost => {}
            other => return other.unless_by_others(),
        }
    }
    Fate::Unclear(format!("nothing answered, and {device} sends all the time"))
}

fn raw() -> Fate {
    let kinds = [
        (Domain::IPV4, Some(Protocol::ICMPV4)),
        (Domain::IPV6, Some(Protocol::ICMPV6)),
        (Domain::PACKET, None),
    ];
    let open = |(domain, protocol)| Socket::new(domain, Type::RAW, protocol);
    match kinds.into_iter().find_map(|kind| open(kind).ok()) {
        Some(_) => Fate::Allowed("this process may send packets of its own making".into()),
        None => Fate::Refused("permission denied".into()),
    }
}

fn marked() -> Fate {
    let marked = Socket::new(Domain::IPV4, Type::DGRAM, None).and_then(|one| one.set_mark(1));
    match marked {
        Ok(()) => Fate::Allowed("this process may mark packets as the gateway's".into()),
        Err(error) => failed(&error, false),
    }
}

fn socket(to: SocketAddr, protocol: Protocol, device: Option<&str>) -> io::Result<Socket> {
    let kind = match protocol {
        Protocol::TCP => Type::STREAM,
        _ => Type::DGRAM,
    };
    let socket = Socket::new(Domain::for_address(to), kind, Some(protocol))?;
    match to.is_ipv6() {
        true => socket.set_unicast_hops_v6(1)?,
        false => socket.set_ttl_v4(1)?,
    }
    if let Some(device) = device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    Ok(socket)
}

/// What an error says. One that comes before anything was sent is this machine's own.
fn failed(error: &io::Error, is_sent: bool) -> Fate {
    let words = error.kind().to_string();
    match Errno::from_io_error(error) {
        Some(Errno::PERM | Errno::ACCESS) => Fate::Refused(words),
        Some(Errno::CONNREFUSED | Errno::CONNRESET) => Fate::Rejected(words),
        _ if is_sent => Fate::Left(format!("a router answered: {words}")),
        Some(Errno::NETUNREACH | Errno::HOSTUNREACH) => Fate::Refused("no route".into()),
        Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT) => {
            Fate::Refused(words)
        }
        _ => Fate::Unclear(words),
    }
}

/// The servers that this process asks for names.
fn servers() -> Vec<SocketAddr> {
    let file = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let words = file.lines().map(|line| line.split_ascii_whitespace());
    let servers = words.filter_map(|mut words| {
        let server = words.next().filter(|word| *word == "nameserver");
        let server: IpAddr = server.and(words.next())?.parse().ok()?;
        Some(SocketAddr::new(server, 53))
    });
    servers.collect()
}

/// Asks for the IPv4 address of the gateway's own name.
fn question() -> Vec<u8> {
    let mut question = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in GATEWAY_NAME.split('.') {
        question.push(label.len() as u8);
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    question
}

/// The interfaces other than loopback, with how many packets each has sent.
fn devices() -> Vec<(String, u64)> {
    let table = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let rows = table.lines().filter_map(|line| {
        let (name, counts) = line.split_once(':')?;
        let sent = counts.split_ascii_whitespace().nth(SENT_PACKETS)?;
        Some((name.trim().to_owned(), sent.parse().ok()?))
    });
    rows.filter(|(name, _)| name != "lo").collect()
}

/// Addresses that nobody has, with a port.
fn to(port: u16) -> [SocketAddr; 2] {
    let v6 = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    [Ipv4Addr::new(192, 0, 2, 1).into(), v6.into()].map(|ip: IpAddr| (ip, port).into())
}

const SENT_PACKETS: usize = 9;
const PATIENCE: Duration = Duration::from_millis(500);
/// A gateway that has much to do.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
