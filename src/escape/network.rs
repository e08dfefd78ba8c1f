//! Probes of the network: every protocol and address through which bytes could leave, and ports
//! that a person opened, which each lead to one port and nowhere else.

use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use gateway_launch::{ADDRESS_V4, ADDRESS_V6};
use rustix::net::{AddressFamily, SocketType, ipproto};

use super::probe::{Verdict, all_refused, error_name, found, not_applicable, words};
use super::targets::{OpenedPorts, Targets};

pub fn interfaces(_: &Targets) -> Verdict {
    let Ok(table) = fs::read_to_string("/proc/net/dev") else {
        return not_applicable("no /proc/net/dev");
    };
    let mut names = table
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim()));
    // The kernel puts fallback tunnels without a way out into every namespace if their modules are
    // loaded.
    match names.find(|name| *name != "lo" && words(FALLBACK_TUNNELS).all(|known| known != *name)) {
        Some(name) => Verdict::Escaped(name.into()),
        None => Verdict::Held("only lo".into()),
    }
}

pub fn tcp_anywhere(_: &Targets) -> Verdict {
    let connect = |address: &str| TcpStream::connect_timeout(&parsed(address)?, PATIENCE);
    judge_connections(words(TCP_ADDRESSES).map(|address| (address, connect(address))))
}

pub fn mptcp(_: &Targets) -> Verdict {
    let tcp = (AddressFamily::INET, SocketType::STREAM);
    let stream = match rustix::net::socket(tcp.0, tcp.1, Some(ipproto::MPTCP)) {
        Ok(socket) => TcpStream::from(socket),
        Err(error) => return Verdict::Held(error_name(&error.into())),
    };
    let to = "192.0.2.9:443";
    let connected = parsed(to).and_then(|address| Ok(rustix::net::connect(&stream, &address)?));
    judge_connections([(to, connected.map(|()| stream))])
}

/// A connection inside ends at the gateway's listener, so it starts at the sandbox's own address.
fn judge_connections<'a>(
    connections: impl IntoIterator<Item = (&'a str, io::Result<TcpStream>)>,
) -> Verdict {
    let (mut captured, mut refused) = (0, 0);
    for (to, connection) in connections {
        match connection.and_then(|stream| stream.local_addr()) {
            Err(_) => refused += 1,
            Ok(from) => match from.ip().to_canonical() {
                ip if ip == ADDRESS_V4 || ip == ADDRESS_V6 || ip.is_loopback() => captured += 1,
                ip => return Verdict::Escaped(format!("{to}, from {ip}")),
            },
        }
    }
    Verdict::Held(format!("{captured} captured, {refused} refused"))
}

pub fn tcp_host(targets: &Targets) -> Verdict {
    let servers = targets.tcp.iter();
    all_refused(servers.map(|server| (server.to_string(), greets(*server, &targets.nonce))))
}

pub fn udp_anywhere(_: &Targets) -> Verdict {
    let send = |address| parsed(address).and_then(|address| send_datagram(address, b"out"));
    all_refused(words(UDP_ADDRESSES).map(|address| (address, send(address))))
}

/// Sending without an error does not mean receiving: the host's side sees what arrives. Its
/// loopback is not ours, so datagrams to that address are not judged here.
pub fn udp_host(targets: &Targets) -> Verdict {
    let sent = targets.udp.iter().map(|address| {
        let sent = send_datagram(*address, targets.nonce.as_bytes());
        let is_the_hosts = !address.ip().is_loopback();
        (address.to_string(), sent.and_then(|()| found(is_the_hosts)))
    });
    all_refused(sent)
}

pub fn host_port(targets: &Targets) -> Verdict {
    let Some(OpenedPorts { host, greeting, .. }) = &targets.ports else {
        return not_applicable(NO_PORT);
    };
    let local = IpAddr::from(Ipv4Addr::LOCALHOST);
    if greets((local, *host).into(), greeting).is_err() {
        return not_applicable("the opened port does not answer");
    }
    let elsewhere = [[127, 0, 0, 2], [127, 255, 0, 1], ADDRESS_V4.octets()].map(IpAddr::from);
    let opened = elsewhere
        .into_iter()
        .chain(addresses_of_the_host(targets))
        .map(|address| (SocketAddr::from((address, *host)), greeting));
    let others = targets.tcp.iter().map(|server| server.port());
    let others = others.map(|port| ((local, port).into(), &targets.nonce));
    let tried = opened.chain(others);
    match all_refused(tried.map(|(to, greeting)| (to.to_string(), greets(to, greeting)))) {
        Verdict::Held(_) => Verdict::Held(format!("only port {host} answered")),
        other => other,
    }
}

/// A client of the host's published port arrives at a server in the sandbox.
pub fn publish(targets: &Targets) -> Verdict {
    let Some(ports) = &targets.ports else {
        return not_applicable(NO_PORT);
    };
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, ports.inside));
    let server = match server.and_then(|server| server.set_nonblocking(true).map(|()| server)) {
        Ok(server) => server,
        Err(error) => return not_applicable(error_name(&error)),
    };
    let tried: Vec<_> = addresses_of_the_host(targets)
        .chain([Ipv4Addr::LOCALHOST.into()])
        .map(|ip| TcpStream::connect_timeout(&(ip, ports.published).into(), PATIENCE))
        .collect();
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Ok((_, from)) = server.accept() {
            return Verdict::Escaped(format!("a connection came back, from {from}"));
        }
        std::thread::sleep(PATIENCE / 30);
    }
    Verdict::Held(format!("none of {} connections came back", tried.len()))
}

/// The host's addresses besides its loopback.
fn addresses_of_the_host(targets: &Targets) -> impl Iterator<Item = IpAddr> {
    let addresses = targets.tcp.iter().map(SocketAddr::ip);
    addresses.filter(|address| *address != IpAddr::from(Ipv4Addr::LOCALHOST))
}

/// Connects, and succeeds if a server with this greeting answers.
fn greets(address: SocketAddr, greeting: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answer = vec![0; greeting.len()];
    stream.read_exact(&mut answer)?;
    found(answer == greeting.as_bytes())
}

fn send_datagram(to: SocketAddr, content: &[u8]) -> io::Result<()> {
    let any = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    UdpSocket::bind(any)?.send_to(content, to).map(drop)
}

fn parsed(address: &str) -> io::Result<SocketAddr> {
    address
        .parse()
        .map_err(|_| io::ErrorKind::InvalidInput.into())
}

const NO_PORT: &str = "no port was opened";
const PATIENCE: Duration = Duration::from_millis(300);
const FALLBACK_TUNNELS: &str = "
    tunl0 gre0 gretap0 erspan0 ip_vti0 ip6_vti0 sit0 ip6tnl0 ip6gre0 ip6gretap0 ip6erspan0
";
const TCP_ADDRESSES: &str = "
    192.0.2.1:80 198.51.100.1:443 203.0.113.1:22 1.1.1.1:853 8.8.8.8:53 169.254.169.254:80
    10.0.0.1:8080 172.17.0.1:2375 192.168.0.1:445 100.100.100.200:80 [2001:db8::1]:443
    [fd00:ec2::254]:80 [fe80::1]:80 [2001:4860:4860::8888]:53
";
const UDP_ADDRESSES: &str = "
    1.1.1.1:443 8.8.8.8:123 8.8.8.8:853 192.0.2.1:3478 192.0.2.1:51820 192.0.2.1:4500
    169.254.169.254:80 224.0.0.251:5353 224.0.0.252:5355 255.255.255.255:9 192.0.2.1:137
    203.0.113.7:40000 [2001:db8::1]:443 [ff02::fb]:5353 [2001:db8::1]:40000
";
