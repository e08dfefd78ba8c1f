//! Binds the listeners of a configuration, or inherits them from the service manager, before
//! anything is published: a gateway that cannot have its addresses leaves no trace.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use socket2::{Domain, Socket, Type};

use crate::Failure;
use gateway_config::{Listener, ListenerAddress, ListenerKind};
use gateway_files::SocketFile;
use gateway_server::BoundSocket;

/// The length of the queue of connections to be accepted.
const BACKLOG: i32 = 4096;

/// The sockets of one `[[listener]]`.
pub struct BoundListener {
    /// The name of the sockets at the service manager, if it passed them.
    pub inherited: Option<String>,
    /// One socket for each thread.
    pub sockets: Vec<BoundSocket>,
    /// The UDP socket of a DNS listener.
    pub udp: Option<UdpSocket>,
}

/// Provides the sockets of all listeners, in their order: inherited from the service manager, or
/// newly bound.
///
/// # Errors
/// Returns a [`Failure`] that names the address, or the socket that no listener wants.
pub fn bind(
    listeners: &[Listener],
    passed: Vec<(String, OwnedFd)>,
    threads: NonZeroUsize,
) -> Result<Vec<BoundListener>, Failure> {
    let mut passed = passed
        .into_iter()
        .map(|(name, socket)| InheritedSocket::of(name, socket))
        .collect::<Result<Vec<_>, _>>()?;
    let unwanted = |one: &&InheritedSocket| !listeners.iter().any(|listener| one.fits(listener));
    if let Some(one) = passed.iter().find(unwanted) {
        return Err(one.refused());
    }
    let mut bound = Vec::new();
    for listener in listeners {
        let at = passed.iter().position(|one| one.fits(listener));
        let (inherited, sockets) = match (at, &listener.address) {
            (Some(at), _) => copies(passed.swap_remove(at), listener, threads)?,
            (None, ListenerAddress::Tcp(address)) => {
                let own = own(*address, listener, threads);
                (None, own.map_err(|error| unusable(*address, &error))?)
            }
            (None, ListenerAddress::Unix(path)) => (None, of_file(path, listener.mode, threads)?),
        };
        bound.push(BoundListener {
            inherited,
            sockets,
            udp: questions(listener)?,
        });
    }
    // What is left is a second socket for one address.
    match passed.first() {
        None => Ok(bound),
        Some(one) => Err(one.refused()),
    }
}

/// A socket that the service manager passed.
struct InheritedSocket {
    name: String,
    address: SocketAddr,
    socket: Socket,
}

impl InheritedSocket {
    fn of(name: String, socket: OwnedFd) -> Result<Self, Failure> {
        let socket = Socket::from(socket);
        let listens = socket.is_listener().unwrap_or(false)
            && socket.r#type().is_ok_and(|kind| kind == Type::STREAM);
        let address = socket.local_addr().ok().and_then(|own| own.as_socket());
        match address.filter(|_| listens) {
            Some(address) => Ok(Self {
                name,
                address,
                socket,
            }),
            None => Err(Failure::usage(format!(
                "the service manager passed `{name}`, which is no listening TCP socket"
            ))
            .next("give the socket unit `ListenStream=` with an address and port")),
        }
    }

    fn refused(&self) -> Failure {
        let address = self.address;
        Failure::usage(format!(
            "the service manager passed a socket on {address}, where no `[[listener]]` listens"
        ))
        .because("its connections would wait for ever")
        .next("let `ListenStream=` of the socket unit and `address` be the same")
    }

    fn fits(&self, listener: &Listener) -> bool {
        // The scope of a link-local address may be left out.
        let is_it =
            |own: SocketAddr| (self.address.ip(), self.address.port()) == (own.ip(), own.port());
        listener.address.tcp().is_some_and(is_it)
    }
}

/// Gives each thread its own handle of an inherited socket.
///
/// # Errors
/// Returns a [`Failure`] if the socket unit names another session than the listener's.
fn copies(
    one: InheritedSocket,
    listener: &Listener,
    threads: NonZeroUsize,
) -> Result<(Option<String>, Vec<BoundSocket>), Failure> {
    check_name(&one.name, listener)?;
    let copy = || {
        let socket = one.socket.try_clone()?;
        socket.set_nonblocking(true)?;
        Ok(BoundSocket::Tcp(TcpListener::from(socket)))
    };
    let copies: Result<Vec<_>, std::io::Error> = (0..threads.get()).map(|_| copy()).collect();
    let copies = copies.map_err(|error| unusable(one.address, &error))?;
    Ok((Some(one.name), copies))
}

/// Checks the name of a listener's inherited socket.
///
/// # Errors
/// Returns a [`Failure`] if it is that of another session than the listener's.
pub fn check_name(name: &str, listener: &Listener) -> Result<(), Failure> {
    // Without `FileDescriptorName=`, the name is the socket unit's.
    let named = !name.is_empty() && name != "unknown" && !name.ends_with(".socket");
    if named && name != listener.session.as_str() {
        return Err(Failure::usage(format!(
            "the socket on {} is named `{name}`, and the listener there is of session `{}`",
            listener.address, listener.session
        ))
        .next("let `FileDescriptorName=` be the listener's `session`, or remove it"));
    }
    Ok(())
}

/// Binds one socket for each thread, each with its own queue.
///
/// The first is bound without SO_REUSEPORT. With it, a second gateway of the same user could bind
/// the address too, and would get some of the connections.
fn own(
    address: SocketAddr,
    listener: &Listener,
    threads: NonZeroUsize,
) -> std::io::Result<Vec<BoundSocket>> {
    let mut sockets = Vec::new();
    for at in 0..threads.get() {
        let socket = socket(address, &listener.kind, Type::STREAM, at > 0)?;
        socket.set_reuse_port(threads.get() > 1)?;
        socket.listen(BACKLOG)?;
        sockets.push(BoundSocket::Tcp(socket.into()));
    }
    Ok(sockets)
}

/// Binds the UDP socket of a DNS listener; `None` for another kind.
fn questions(listener: &Listener) -> Result<Option<UdpSocket>, Failure> {
    let address = listener.address.tcp();
    let address = address.filter(|_| listener.kind == ListenerKind::Dns);
    let bind = |address| {
        let socket = socket(address, &listener.kind, Type::DGRAM, false);
        let socket = socket.map_err(|error| unusable(address, &error))?;
        Ok(socket.into())
    };
    address.map(bind).transpose()
}

/// Binds a socket of a listener.
///
/// # Errors
/// The error of the system.
pub fn socket(
    address: SocketAddr,
    of: &ListenerKind,
    kind: Type,
    shares: bool,
) -> std::io::Result<Socket> {
    let is_stream = kind == Type::STREAM;
    let kind = kind.cloexec().nonblocking();
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    // Two UDP sockets would share their address.
    socket.set_reuse_address(is_stream)?;
    if address.is_ipv6() {
        socket.set_only_v6(!of.is_dual_stack(address))?;
    }
    if shares {
        socket.set_reuse_port(true)?;
    }
    if *of == ListenerKind::Transparent
        && let Err(error) = socket.set_ip_transparent_v4(true)
    {
        // The option is the same for IPv6. Without it REDIRECT works, and the rules of TPROXY drop
        // what they would bring.
        tracing::info!(%error, "{address} takes what is redirected, and nothing by TPROXY");
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Binds a Unix socket, which the threads share. Its file is removed with the last handle.
fn of_file(path: &Path, mode: u32, threads: NonZeroUsize) -> Result<Vec<BoundSocket>, Failure> {
    let unusable = |error: &dyn std::error::Error| {
        Failure::of(format!("cannot listen on unix:{}", path.display()), error)
            .next("end who listens there, or choose another `address`")
    };
    let file = SocketFile::bind(path, mode).map_err(|error| unusable(&error))?;
    let file = Arc::new(file);
    let handle = || Ok(BoundSocket::Unix(file.listener()?, file.clone()));
    let handles: std::io::Result<_> = (0..threads.get()).map(|_| handle()).collect();
    handles.map_err(|error| unusable(&error))
}

fn unusable(address: SocketAddr, error: &std::io::Error) -> Failure {
    let failure = Failure::new(format!("cannot listen on {address}"));
    if error.kind() == std::io::ErrorKind::AddrInUse {
        return failure
            .because("address already in use; is another gateway running?")
            .next(format!(
                "`ss -ltnp 'sport = :{}'` shows who listens; or choose another `address`",
                address.port()
            ));
    }
    failure
        .because(error.to_string())
        .next("choose another `address`")
}
