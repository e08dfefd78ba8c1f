//! Connections that the kernel redirects to a sidecar, and their names. The sidecar gives each name
//! its own synthetic address, so that it can pass the name to the gateway.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use socket2::Type;
use tokio::net::{TcpListener, TcpStream};

use crate::app::listen::bind;
use crate::app::{Advise as _, Context as _, Failure};
use crate::config::ListenerKind;
use crate::intercept::{
    AddressPool, Responder, is_of_this_machine, original_destination, serve_tcp, serve_udp, socks,
};

/// The state of captured connections.
pub(super) struct Captured {
    names: Arc<Responder>,
    own_port: u16,
}

/// The DNS sockets.
pub(super) struct DnsSockets {
    udp: std::net::UdpSocket,
    tcp: TcpListener,
    names: Arc<Responder>,
}

impl Captured {
    /// Listens for captured connections, and for DNS.
    pub(super) fn bind(
        at: SocketAddr,
        dns: Option<SocketAddr>,
    ) -> Result<(TcpListener, Self, Option<DnsSockets>), Failure> {
        // The gateway judges every name when a connection arrives.
        let pool = AddressPool::default().explaining();
        let names = Arc::new(Responder::new(
            pool,
            Box::new(|_, _| false),
            Box::new(|_| {}),
        ));
        let questions = dns.map(|dns| {
            let udp = bind::socket(dns, &ListenerKind::Dns, Type::DGRAM, false);
            Ok::<_, Failure>(DnsSockets {
                udp: unusable(dns, udp)?.into(),
                tcp: listen(dns, &ListenerKind::Dns)?,
                names: names.clone(),
            })
        });
        let captured = Self {
            names,
            own_port: at.port(),
        };
        let listener = listen(at, &ListenerKind::Transparent)?;
        Ok((listener, captured, questions.transpose()?))
    }

    /// Returns the first bytes to the gateway: the destination of the connection.
    pub(super) fn head(&self, client: &TcpStream) -> io::Result<Vec<u8>> {
        let to = original_destination(client)?;
        if to.port() == self.own_port && is_of_this_machine(to.ip()) {
            // The connection was not captured, and would loop back here.
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(socks::head_to(self.names.name(to.ip()), to))
    }
}

impl DnsSockets {
    /// Answers for as long as the sockets can be read.
    pub(super) async fn answer(self) -> io::Result<Infallible> {
        let tcp = serve_tcp(self.tcp, self.names.clone());
        tokio::select! {
            ended = serve_udp(self.udp, self.names) => ended?,
            ended = tcp => ended?,
        }
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

fn listen(at: SocketAddr, kind: &ListenerKind) -> Result<TcpListener, Failure> {
    let listening = || {
        let socket = bind::socket(at, kind, Type::STREAM, false)?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    unusable(at, listening())
}

fn unusable<T>(at: SocketAddr, bound: io::Result<T>) -> Result<T, Failure> {
    bound
        .context(format!("cannot listen on {at}"))
        .advise("name another port, and the same one in `gateway sidecar rules`")
}

const BACKLOG: i32 = 1024;
