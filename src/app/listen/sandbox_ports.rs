//! The ports that connect a sandbox with the host's loopback: bound, and served.

use std::net::TcpListener;
use std::sync::Arc;

use crate::Failure;
use gateway_config::{PublishedPort, Sandbox};
use gateway_launch::enroll::{Listeners, SandboxHello};
use gateway_launch::ports;
use gateway_server::{InwardSockets, OpenPort, Worker};
use gateway_session::Session;

/// Addresses of the host that lead to servers of the workload. No connection is accepted yet.
pub struct BoundPorts(Vec<(PublishedPort, TcpListener)>);

impl BoundPorts {
    /// Listens at the published addresses.
    ///
    /// # Errors
    /// Returns a [`Failure`] that names the address that is in use.
    pub fn bind(sandbox: &Sandbox) -> Result<Self, Failure> {
        let one = |published: &PublishedPort| {
            let address = published.address;
            match TcpListener::bind(address) {
                Ok(listener) => Ok((*published, listener)),
                Err(error) => Err(Failure::new(format!("{address} cannot be published"))
                    .because(error.to_string())
                    .next(another(published))),
            }
        };
        sandbox
            .publish
            .iter()
            .map(one)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Serves all ports of the sandbox on the current runtime.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the runtime does not accept a socket.
    pub fn serve(
        self,
        worker: &Arc<Worker>,
        session: &Arc<Session>,
        hello: &SandboxHello,
        listeners: &mut Listeners,
    ) -> Result<(), Failure> {
        let open = |listener: TcpListener, port| {
            listener.set_nonblocking(true)?;
            std::io::Result::Ok(OpenPort {
                session: session.clone(),
                listener: tokio::net::TcpListener::from_std(listener)?,
                port,
            })
        };
        let unusable = |error: std::io::Error| {
            Failure::new("a port of the sandbox cannot be used").because(error.to_string())
        };
        let inward = std::mem::take(&mut listeners.inward);
        let sockets = InwardSockets::new(ports::inward_places(inward));
        for (published, listener) in self.0 {
            let port = open(listener, published.inside).map_err(unusable)?;
            worker.serve_published(port, sockets.clone());
        }
        let host_ports = std::mem::take(&mut listeners.host_ports);
        for (port, socket) in hello.host_ports.iter().zip(host_ports) {
            let port = open(socket.into(), *port).map_err(unusable)?;
            worker.serve_host_port(port);
        }
        Ok(())
    }
}

/// Suggests another port to publish the same server at.
fn another(published: &PublishedPort) -> String {
    let PublishedPort { address, inside } = published;
    let other = address.port().checked_add(1).unwrap_or(8080);
    format!("choose another port of this machine: `--publish {other}:{inside}`")
}
