//! Probes of the ports that a person opened: each leads where it was meant to, and nowhere else.

use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::probe::{Probe, Verdict, error_name};
use super::targets::{OpenedPorts, Targets};
use crate::network::ADDRESS_V4;

pub const PROBES: &[Probe] = &[
    Probe {
        name: "host-port",
        tries: "reaches more of the host than the one port that was opened",
        run: host_port,
    },
    Probe {
        name: "publish",
        tries: "reaches the host through a port that is published there",
        run: publish,
    },
];

fn host_port(targets: &Targets) -> Verdict {
    let Some(OpenedPorts { host, greeting, .. }) = &targets.ports else {
        return Verdict::NotApplicable(NONE.into());
    };
    let greets = |address: IpAddr, port: u16, expected: &str| {
        greeting_of((address, port).into(), expected.len()) == Some(expected.into())
    };
    if !greets(Ipv4Addr::LOCALHOST.into(), *host, greeting) {
        return Verdict::NotApplicable("the opened port does not answer".into());
    }
    let elsewhere = [
        Ipv4Addr::new(127, 0, 0, 2),
        Ipv4Addr::new(127, 255, 0, 1),
        ADDRESS_V4,
    ];
    let elsewhere = elsewhere.into_iter().map(IpAddr::from);
    let elsewhere = elsewhere.chain(own_addresses(targets));
    for address in elsewhere {
        if greets(address, *host, greeting) {
            return Verdict::Escaped(format!("the opened port, by way of {address}"));
        }
    }
    for server in &targets.tcp {
        if greets(Ipv4Addr::LOCALHOST.into(), server.port(), &targets.nonce) {
            return Verdict::Escaped(format!("port {} of the host", server.port()));
        }
    }
    Verdict::Held(format!("only port {host} answered"))
}

/// Whoever reaches the published port of the host comes back at a server of the sandbox.
fn publish(targets: &Targets) -> Verdict {
    let Some(OpenedPorts {
        published, inside, ..
    }) = &targets.ports
    else {
        return Verdict::NotApplicable(NONE.into());
    };
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, *inside));
    let server = match server.and_then(|server| server.set_nonblocking(true).map(|()| server)) {
        Ok(server) => server,
        Err(error) => return Verdict::NotApplicable(error_name(&error)),
    };
    let addresses = own_addresses(targets).chain([Ipv4Addr::LOCALHOST.into()]);
    let tried: Vec<_> = addresses
        .map(|address| TcpStream::connect_timeout(&(address, *published).into(), PATIENCE))
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
fn own_addresses(targets: &Targets) -> impl Iterator<Item = IpAddr> {
    let addresses = targets.tcp.iter().map(SocketAddr::ip);
    addresses.filter(|address| *address != IpAddr::from(Ipv4Addr::LOCALHOST))
}

fn greeting_of(address: SocketAddr, length: usize) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut greeting = vec![0; length];
    stream.read_exact(&mut greeting).ok()?;
    String::from_utf8(greeting).ok()
}

const NONE: &str = "no port was opened";
const PATIENCE: Duration = Duration::from_millis(300);
