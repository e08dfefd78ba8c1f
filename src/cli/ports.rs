//! `--publish` and `--host-port`: the ports that connect a sandbox with the host's loopback.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use super::failure::Failure;
use super::gateways::ChosenGateway;
use crate::config::{PublishedPort, Sandbox};
use crate::gateway::{InwardSockets, OpenPort, Worker};
use crate::launch::enroll::{Hello, Listeners};
use crate::launch::ports::{self, MOST_HOST, Ports};
use crate::session::Session;

/// What the launcher makes for the ports of a sandbox.
///
/// # Errors
/// Returns a [`Failure`] if the gateway itself uses one of them inside, or if there are too many.
pub(super) fn of(sandbox: &Sandbox) -> Result<Ports, Failure> {
    let inside = sandbox.publish.iter().map(|one| ("--publish", one.inside));
    let host = sandbox.host_port.iter().map(|port| ("--host-port", *port));
    for (flag, port) in inside.chain(host) {
        if let Some(why) = Ports::taken_inside(port) {
            return Err(
                Failure::usage(format!("`{flag}` cannot be port {port} inside"))
                    .because(why)
                    .next("name another port"),
            );
        }
    }
    if sandbox.host_port.len() > MOST_HOST {
        return Err(Failure::usage("too many ports of the host are named")
            .because(format!("a sandbox reaches at most {MOST_HOST}"))
            .next("name fewer with `--host-port`"));
    }
    Ok(Ports {
        host: sandbox.host_port.clone(),
        inward: !sandbox.publish.is_empty(),
    })
}

/// Refuses a port of the host at which another gateway of this user serves: the sandbox would act
/// in the name of that one's session, or see its metrics. A gateway that does not answer is not
/// known to serve there.
///
/// # Errors
/// Returns a [`Failure`] that names the gateway.
pub(super) fn refuse_other_gateways(sandbox: &Sandbox) -> Result<(), Failure> {
    let asked = !sandbox.host_port.is_empty();
    let others = asked.then(|| ChosenGateway::default().find());
    for gateway in others.transpose()?.unwrap_or_default() {
        let state = gateway.get("/v1/status").unwrap_or_default();
        let listeners = state["listeners"].as_array().into_iter().flatten();
        let served = listeners.map(|one| &one["address"]);
        let ports = served.chain([&state["metrics_address"]]).filter_map(|one| {
            let address: SocketAddr = one.as_str()?.parse().ok()?;
            Some(address.port())
        });
        let named = |port: &u16| sandbox.host_port.contains(port);
        if let Some(port) = ports.into_iter().find(named) {
            let name = &gateway.name;
            return Err(Failure::usage(format!("`--host-port {port}` is refused"))
                .because(format!(
                    "gateway `{name}` serves there, and the command would reach its sessions"
                ))
                .next("name the port of the service that the command needs"));
        }
    }
    Ok(())
}

/// Addresses of the host that lead to servers of the workload. Nothing is accepted yet.
pub(super) struct BoundPorts(Vec<(PublishedPort, TcpListener)>);

impl BoundPorts {
    /// Listens at the published addresses.
    ///
    /// # Errors
    /// Returns a [`Failure`] that names the address that is taken.
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
        hello: &Hello,
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

/// How to publish the same server elsewhere.
fn another(published: &PublishedPort) -> String {
    let PublishedPort { address, inside } = published;
    let other = address.port().checked_add(1).unwrap_or(8080);
    format!("choose another port of this machine: `--publish {other}:{inside}`")
}

/// What the summary says of the ports.
pub(super) fn told(sandbox: &Sandbox) -> Vec<(&'static str, String)> {
    let published = sandbox.publish.iter().map(|one| {
        let PublishedPort { address, inside } = one;
        let others = match address.ip().is_loopback() {
            true => "",
            false => ", also from other machines",
        };
        let text = format!("http://{address} of this machine is port {inside} inside{others}");
        ("publish", text)
    });
    let host = sandbox.host_port.iter().map(|port| {
        let text = format!("127.0.0.1:{port} inside is this machine's; no secret is injected");
        ("host port", text)
    });
    published.chain(host).collect()
}
